//! A node that has the stream and its views, and what it says of them.

use std::fs;
use std::time::Duration;

use forebay::{Client, ClientOptions, Store};
use forebay_bench_micro::Failure;
use forebay_bench_micro::clock::nanos;
use forebay_bench_micro::server::{Log, Server, scratch};
use forebay_bench_micro::taken::Taken;
use forebay_wire::v1;
use forebay_wire::v1::features_client::FeaturesClient;
use forebay_wire::v1::writer_client::WriterClient;
use tempfile::TempDir;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use crate::data::{self, VIEWS};

/// How long a call may take before the benchmark fails.
pub const DEADLINE: Duration = Duration::from_secs(120);
/// Longest wait until what was inserted is folded.
const PATIENCE: Duration = Duration::from_secs(30 * 60);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Less of a processor than a node takes that does anything.
const REST_CORES: f64 = 0.02;
/// Shards are read and written past the page cache, so that what is selected comes of the disk.
const SETTINGS: [&str; 1] = ["--direct-io"];
/// Where a node keeps the tiles of views, in its data directory.
const TILES: &str = "features/tiles";

/// A node; killed, and its data removed, when it goes.
pub struct Node {
    server: Server,
    channel: Channel,
}

/// A connection for the stream.
///
/// # Errors
/// Those of the client.
pub async fn connect(address: &str) -> Result<Store, Failure> {
    let options = ClientOptions { deadline: DEADLINE, ..ClientOptions::default() };
    Ok(Client::connect(address, options).await?.store(data::STREAM).await?)
}

/// Makes the stream.
///
/// # Errors
/// Those of the client.
pub async fn make_stream(address: &str) -> Result<(), Failure> {
    let client = Client::connect(address, ClientOptions::default()).await?;
    client.create_store(&data::spec()).await?;
    Ok(())
}

impl Node {
    /// Starts one that has the stream and its views, on an embedded log that is synced before it
    /// acknowledges.
    ///
    /// # Errors
    /// It does not start, or refuses them.
    pub async fn start() -> Result<Self, Failure> {
        let node = Self::start_again(scratch()?)?;
        make_stream(node.address()).await?;
        for (_, declaration) in VIEWS {
            let declaration = declaration.to_owned();
            let request = v1::ApplyViewRequest { declaration, dry_run: false };
            WriterClient::new(node.channel.clone()).apply_view(request).await?;
        }
        Ok(node)
    }

    /// Starts one on data that is there.
    ///
    /// # Errors
    /// It does not start.
    pub fn start_again(data: TempDir) -> Result<Self, Failure> {
        let server = Server::start_with(data, Log::Fsync, &SETTINGS)?;
        let endpoint = Endpoint::from_shared(format!("http://{}", server.address()))?;
        Ok(Self { channel: endpoint.connect_lazy(), server })
    }

    /// Stops it, and removes the tiles of its views; its data, of the embedded log.
    ///
    /// # Errors
    /// It does not stop.
    pub fn stop_without_tiles(self) -> Result<TempDir, Failure> {
        let data = self.server.stop()?;
        fs::remove_dir_all(data.path().join(TILES))?;
        Ok(data)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> &str {
        self.server.address()
    }

    /// What its process has taken.
    ///
    /// # Errors
    /// It has ended.
    pub fn taken(&self) -> Result<Taken, String> {
        Taken::by(self.server.process_id())
    }

    /// Waits until its process has folded so many events for each of the views; how long that took,
    /// in seconds.
    ///
    /// # Errors
    /// It does not in time, or counts events that were inserted otherwise: as late, or refused.
    pub async fn await_folded(&self, events: u64) -> Result<f64, Failure> {
        let began = nanos();
        for (view, _) in VIEWS {
            let wait = async {
                while self.folded(view).await? < events {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                Ok::<_, Failure>(())
            };
            let waited = tokio::time::timeout(PATIENCE, wait).await;
            waited.map_err(|_| format!("{view} has not folded {events} events"))??;
        }
        Ok((nanos() - began) as f64 / 1e9)
    }

    /// Waits until its process has done nothing for so long: what it puts on disk from time to time
    /// is there, and its files are as few as it wants them.
    ///
    /// # Errors
    /// It always does something; or it has ended.
    pub async fn await_rest(&self, rest: Duration) -> Result<(), Failure> {
        let wait = async {
            loop {
                let before = self.taken()?.cpu_seconds;
                tokio::time::sleep(rest).await;
                if self.taken()?.cpu_seconds - before <= REST_CORES * rest.as_secs_f64() {
                    return Ok(());
                }
            }
        };
        let waited = tokio::time::timeout(PATIENCE, wait).await;
        waited.map_err(|_| "the node does not come to rest")?
    }

    async fn folded(&self, view: &str) -> Result<u64, Failure> {
        let request = v1::ViewCountsRequest { view: view.to_owned() };
        let counts = FeaturesClient::new(self.channel.clone()).counts(request).await;
        let counts = match counts {
            Ok(counts) => counts.into_inner(),
            // It is not open yet.
            Err(status) if matches!(status.code(), Code::Unavailable | Code::NotFound) => {
                return Ok(0);
            }
            Err(status) => return Err(status.into()),
        };
        let lost =
            counts.late + counts.ahead + counts.refused + counts.ungrouped + counts.oversized;
        if lost > 0 {
            return Err(format!("{view} leaves out {lost} of its events: {counts:?}").into());
        }
        Ok(counts.folded)
    }
}
