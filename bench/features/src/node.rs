//! A node with the stream and its views, and its statistics.

use std::fs;
use std::time::Duration;

use forebay::{Client, ClientOptions, Store};
use forebay_bench_micro::Failure;
use forebay_bench_micro::clock::nanos;
use forebay_bench_micro::rusage::ProcessUsage;
use forebay_bench_micro::server::{Log, Server, scratch};
use forebay_wire::v1;
use forebay_wire::v1::features_client::FeaturesClient;
use forebay_wire::v1::writer_client::WriterClient;
use tempfile::TempDir;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use crate::data::{self, VIEWS};

/// Deadline of a call, after which the benchmark fails.
pub const DEADLINE: Duration = Duration::from_secs(120);
/// Longest wait until inserted events are folded.
const PATIENCE: Duration = Duration::from_secs(30 * 60);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Processor use of an idle node is below this.
const REST_CORES: f64 = 0.02;
/// Shards are read and written past the page cache, so that selects read from the disk.
const SETTINGS: [&str; 1] = ["--direct-io"];
/// Path of the tiles of views in a node's data directory.
const TILES: &str = "features/tiles";

/// A node; dropping it kills the process and removes its data.
pub struct Node {
    server: Server,
    channel: Channel,
}

/// Connects to the stream.
///
/// # Errors
/// Errors of the client.
pub async fn connect(address: &str) -> Result<Store, Failure> {
    let options = ClientOptions::default().deadline(DEADLINE);
    Ok(Client::connect(address, options).await?.store(data::STREAM).await?)
}

/// Creates the stream.
///
/// # Errors
/// Errors of the client.
pub async fn make_stream(address: &str) -> Result<(), Failure> {
    let client = Client::connect(address, ClientOptions::default()).await?;
    client.create_store(&data::spec()).await?;
    Ok(())
}

impl Node {
    /// Starts a node with the stream and its views, on an embedded log that is synced before it
    /// acknowledges.
    ///
    /// # Errors
    /// Fails if the node does not start, or refuses the stream or its views.
    pub async fn start() -> Result<Self, Failure> {
        let node = Self::start_again(scratch()?)?;
        make_stream(node.address()).await?;
        for (_, declaration) in VIEWS {
            let declaration = declaration.to_owned();
            let request = v1::ApplyViewRequest { declaration, dry_run: false, first_line: 1 };
            WriterClient::new(node.channel.clone()).apply_view(request).await?;
        }
        Ok(node)
    }

    /// Starts a node on existing data.
    ///
    /// # Errors
    /// Fails if the node does not start.
    pub fn start_again(data: TempDir) -> Result<Self, Failure> {
        let server = Server::start_with(data, Log::Fsync, &SETTINGS)?;
        let endpoint = Endpoint::from_shared(format!("http://{}", server.address()))?;
        Ok(Self { channel: endpoint.connect_lazy(), server })
    }

    /// Stops the node, and removes the tiles of its views; returns its data, with the embedded log.
    ///
    /// # Errors
    /// Fails if the node does not stop.
    pub fn stop_without_tiles(self) -> Result<TempDir, Failure> {
        let data = self.server.stop()?;
        fs::remove_dir_all(data.path().join(TILES))?;
        Ok(data)
    }

    /// Returns the node's address.
    #[must_use]
    pub fn address(&self) -> &str {
        self.server.address()
    }

    /// Returns the resources that the node's process has taken.
    ///
    /// # Errors
    /// Fails if the process has ended.
    pub fn usage(&self) -> Result<ProcessUsage, String> {
        ProcessUsage::by(self.server.process_id())
    }

    /// Waits until the process has folded `events` events for each view; returns the seconds that
    /// the wait took.
    ///
    /// # Errors
    /// Fails if the wait takes too long, or if the node counts dropped events.
    pub async fn await_folded(&self, events: u64) -> Result<f64, Failure> {
        let began = nanos();
        for (view, _) in VIEWS {
            let wait = async {
                while self.folded(view).await? < events {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                Ok::<_, Failure>(())
            };
            let outcome = tokio::time::timeout(PATIENCE, wait).await;
            outcome.map_err(|_| format!("{view} has not folded {events} events"))??;
        }
        Ok((nanos() - began) as f64 / 1e9)
    }

    /// Waits until the process has been idle for `rest`: its periodic flushes are done, and
    /// compaction has finished.
    ///
    /// # Errors
    /// Fails if the process is never idle, or has ended.
    pub async fn await_rest(&self, rest: Duration) -> Result<(), Failure> {
        let wait = async {
            loop {
                let before = self.usage()?.cpu_seconds;
                tokio::time::sleep(rest).await;
                if self.usage()?.cpu_seconds - before <= REST_CORES * rest.as_secs_f64() {
                    return Ok(());
                }
            }
        };
        let outcome = tokio::time::timeout(PATIENCE, wait).await;
        outcome.map_err(|_| "the node did not become idle")?
    }

    async fn folded(&self, view: &str) -> Result<u64, Failure> {
        let request = v1::GetViewStatsRequest { view: view.to_owned() };
        let stats = FeaturesClient::new(self.channel.clone()).get_view_stats(request).await;
        let stats = match stats {
            Ok(stats) => stats.into_inner(),
            // The node is not open yet.
            Err(status) if matches!(status.code(), Code::Unavailable | Code::NotFound) => {
                return Ok(0);
            }
            Err(status) => return Err(status.into()),
        };
        let lost_events = stats.late_dropped
            + stats.future_dropped
            + stats.invalid_dropped
            + stats.ungrouped_dropped
            + stats.oversized_dropped;
        if lost_events > 0 {
            return Err(format!("{view} lacks {lost_events} of its events: {stats:?}").into());
        }
        Ok(stats.folded_events)
    }
}
