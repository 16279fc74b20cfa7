//! Feature views of a node as a process. Proves that their values include each acknowledged event
//! once, over kills, alterations and changed joins.

#[path = "../daemon/mod.rs"]
mod daemon;
mod kills;
mod life;
mod materialization;
mod oracle;
mod overlap;
mod rounds;
mod tile_differences;
mod training;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use forebay::schema::{FieldType, KeyType, ScalarType, StoreSpec, StreamSpec, Value};
use forebay::{Client, ClientOptions, Store};
use forebay_wire::v1;
use forebay_wire::v1::features_client::FeaturesClient;
use forebay_wire::v1::writer_client::WriterClient;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use crate::daemon::{Daemon, LONG};

const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Folder of a node.
struct World(tempfile::TempDir);

impl World {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn data(&self) -> &Path {
        self.0.path()
    }

    fn start(&self, listen: &str) -> Daemon {
        Daemon::start(&["--data-dir", self.data().to_str().unwrap()], listen)
    }
}

async fn client(address: &str) -> Client {
    let options = ClientOptions::default().deadline(LONG);
    Client::connect(address, options).await.unwrap()
}

fn scalar(scalar: ScalarType) -> FieldType {
    FieldType::Scalar(scalar)
}

/// Creates a stream of orders by user, with a time, a city, a price and a weight.
async fn orders(client: &Client) -> Store {
    let mut spec = StoreSpec::stream("orders", KeyType::String)
        .partitions(4)
        .field("at", scalar(ScalarType::Timestamp))
        .field("city", scalar(ScalarType::String))
        .field("price", scalar(ScalarType::Int64))
        .field("weight", scalar(ScalarType::Float64));
    spec.stream = Some(StreamSpec { event_time: Some("at".to_owned()) });
    client.create_store(&spec).await.unwrap()
}

/// Clients of a node's views.
struct ViewClients {
    channel: Channel,
    writer: WriterClient<Channel>,
    features: FeaturesClient<Channel>,
}

/// Values of a group by name, and the partition's time.
type Answer = (BTreeMap<String, Option<Value>>, i64);

impl ViewClients {
    fn at(address: &str) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let channel = endpoint.connect_lazy();
        let (writer, features) =
            (WriterClient::new(channel.clone()), FeaturesClient::new(channel.clone()));
        Self { channel, writer, features }
    }

    async fn apply(&self, declaration: &str) {
        let declaration = declaration.to_owned();
        let request = v1::ApplyViewRequest { declaration, dry_run: false, first_line: 1 };
        self.writer.clone().apply_view(request).await.unwrap();
    }

    async fn values(&self, view: &str, group: &[Value]) -> Result<Answer, Status> {
        let group = group.iter().map(Into::into).collect();
        let request = v1::GetViewValuesRequest { view: view.to_owned(), group };
        let answer = self.features.clone().get_view_values(request).await?.into_inner();
        let value = |named: v1::get_view_values_response::Named| {
            (named.name, named.value.map(|value| value.try_into().unwrap()))
        };
        let values = answer.values.into_iter().map(value).collect();
        Ok((values, answer.partition_time_us.unwrap_or(i64::MIN)))
    }

    async fn stats(&self, view: &str) -> Result<v1::GetViewStatsResponse, Status> {
        let request = v1::GetViewStatsRequest { view: view.to_owned() };
        Ok(self.features.clone().get_view_stats(request).await?.into_inner())
    }

    /// Returns the values of a group, once they are as wanted.
    async fn values_once(
        &self,
        view: &str,
        group: &[Value],
        is_wanted: impl Fn(&Answer) -> bool,
    ) -> Answer {
        let mut last = None;
        let wait = async {
            loop {
                let answer = self.values(view, group).await;
                if let Some(answer) = answer.as_ref().ok().filter(|answer| is_wanted(answer)) {
                    return answer.clone();
                }
                last = Some(answer);
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        let found = tokio::time::timeout(LONG, wait).await;
        found.unwrap_or_else(|_| panic!("{view} of {group:?} stays {last:?}"))
    }
}

fn number(answer: &Answer, name: &str) -> Option<i64> {
    match answer.0.get(name) {
        Some(Some(Value::Int64(number))) => Some(*number),
        _ => None,
    }
}
