//! A node in a separate process, and clients that write to it and read its shards over the network.

use std::sync::Arc;
use std::time::Duration;

use forebay::reads::ReadOptions;
use forebay::schema::{KeyType, StoreSpec, Value};
use forebay::{Client, ClientOptions, ErrorCode, Store};
use forebay_bench_micro::Failure;
use forebay_bench_micro::clock::nanos;
use forebay_bench_micro::latency::Latency;
use forebay_bench_micro::server::{Log, Server};
use forebay_core::id::FieldId;
use futures::future::try_join_all;
use tokio::runtime::Runtime;

use super::data;
use super::job::{Job, OrdersPlan, Side};

/// Partitions of each store.
const PARTITIONS: u32 = 4;
/// Time limit of one operation, after which the benchmark fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A node, and persistent connections.
pub struct Node<'r> {
    runtime: &'r Runtime,
    address: Arc<str>,
    clients: Vec<Client>,
    _server: Server,
}

impl<'r> Node<'r> {
    /// Starts a node.
    ///
    /// # Errors
    /// Fails if the node does not start, or is unreachable.
    pub fn start(runtime: &'r Runtime, is_synced: bool, plan: &OrdersPlan) -> Result<Self, String> {
        let server = Server::start(if is_synced { Log::Fsync } else { Log::Buffered })?;
        let address: Arc<str> = server.address().into();
        let connecting = try_join_all((0..plan.clients).map(|_| connect(&address)));
        let clients = runtime.block_on(connecting).map_err(|failure| failure.to_string())?;
        let stores = async {
            for value_bytes in &plan.values {
                let spec = StoreSpec::key_value(name(*value_bytes), KeyType::String)
                    .partitions(PARTITIONS);
                match clients[0].create_store(&spec).await {
                    Err(error) if error.code() == ErrorCode::Conflict => {}
                    created => drop(created?),
                }
            }
            Ok::<_, forebay::Error>(())
        };
        runtime.block_on(stores).map_err(|error| error.to_string())?;
        Ok(Self { runtime, address, clients, _server: server })
    }

    async fn run_all(&self, job: Job) -> Result<Latency, Failure> {
        let clients = self.clients.iter().take(job.clients).enumerate().map(|(place, client)| {
            let (client, address) = (client.clone(), Arc::clone(&self.address));
            async move { tokio::spawn(run_one(client, address, place, job)).await? }
        });
        let mut latency = Latency::new()?;
        for of_client in try_join_all(clients).await? {
            latency.add(&of_client)?;
        }
        if job.order.is_write {
            self.catch_up(job.value_bytes).await?;
        }
        Ok(latency)
    }

    /// Waits until the shards have all writes, so that the following reads are not delayed.
    async fn catch_up(&self, value_bytes: usize) -> Result<(), Failure> {
        let store = self.clients[0].store(&name(value_bytes)).await?;
        let keys: Vec<String> = (0..u64::from(PARTITIONS) * 8).map(data::key).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        store.ordered()?.get_many(&ReadOptions::latest(PATIENCE), &keys[..]).await?;
        Ok(())
    }
}

impl Side for Node<'_> {
    fn run(&self, job: &Job) -> Result<Latency, String> {
        self.runtime.block_on(self.run_all(*job)).map_err(|failure| failure.to_string())
    }
}

fn name(value_bytes: usize) -> String {
    format!("values-of-{value_bytes}")
}

async fn connect(address: &str) -> forebay::Result<Client> {
    let options = ClientOptions::default().deadline(PATIENCE);
    Client::connect(address, options).await
}

async fn run_one(
    client: Client,
    address: Arc<str>,
    place: usize,
    job: Job,
) -> Result<Latency, Failure> {
    let store = client.store(&name(job.value_bytes)).await?;
    let mut latency = Latency::new()?;
    for operation in job.operations_of(place) {
        let began = nanos();
        if job.is_connecting {
            let store = connect(&address).await?.store(&name(job.value_bytes)).await?;
            operate(&store, job, operation).await?;
        } else {
            operate(&store, job, operation).await?;
        }
        latency.record(nanos() - began);
    }
    Ok(latency)
}

async fn operate(store: &Store, job: Job, operation: u64) -> Result<(), Failure> {
    let document = job.document(operation);
    let key = data::key(document);
    if job.order.is_write {
        let value = data::value(document, job.value_bytes);
        store.put(key.as_str()).set("value", value).send().await?;
        return Ok(());
    }
    let found = store.ordered()?.get(&ReadOptions::local(), key.as_str()).await?;
    let value = found.as_ref().and_then(|found| found.value(FieldId(1)));
    match value {
        Some(Value::Bytes(value)) => Ok(job.check(document, Some(value))?),
        _ => Ok(job.check(document, None)?),
    }
}
