//! The simulated world: one node on a disk model, reached through the simulated network.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forebay::environment::ClientParts;
use forebay::{Client, ClientOptions};
use forebay_core::Result;
use forebay_core::entropy::{Entropy, SeededEntropy};
use forebay_core::id::{PartitionId, PartitionRef, StoreId};
use forebay_entries::CatalogFollower;
use forebay_log::disk::sim::{Loss, SimDisk};
use forebay_log::embedded_log::{CommitMode, Durability};
use forebay_log::faulty::{FaultRates, FaultyLog};
use forebay_log::{ChangeLog, EmbeddedLog, EmbeddedOptions, RemoteLog};
use forebay_reader::{LogBarriers, Reader, ReaderOptions, ReaderParts};
use forebay_runtime::{RoleServices, ServiceContext};
use forebayd::{Node, NodeParts};
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tonic::service::Routes;

use super::clock::{Moment, SimClock};
use super::net::{NetFaults, Party, SimNet, SimStream};
use super::plant::{Lineage, Plant, PlantedLog};
use super::trace::Trace;

/// Segment size; small, so that logs roll and recovery has several files to read.
const SEGMENT_BYTES: u64 = 16 * 1024;
/// Journal size; small, so that both halves are used.
const JOURNAL_BYTES: u64 = 2 * 16 * 1024;
/// Attempts to start the node; more would mean that a fault is not healed.
const STARTS_MAX: usize = 50;
const START_WAIT: Duration = Duration::from_millis(100);
const DATA_DIR: &str = "/data";

/// Everything outside the code under test, and the node.
pub(crate) struct World {
    pub(crate) net: SimNet,
    pub(crate) disk: SimDisk,
    pub(crate) clock: Arc<SimClock>,
    pub(crate) trace: Trace,
    seed: u64,
    plant: Option<Plant>,
    /// Number of processes so far; each draws from its own sequence.
    processes: AtomicU64,
    faults: SeededEntropy,
    plants: SeededEntropy,
    node: Mutex<Option<RunningNode>>,
}

struct RunningNode {
    node: Node,
    log: Arc<EmbeddedLog>,
    faulty: Arc<FaultyLog<Arc<EmbeddedLog>>>,
    server: JoinHandle<()>,
}

impl World {
    /// Returns a world of this seed, without any process.
    pub(crate) fn new(seed: u64, plant: Option<Plant>, trace: Trace) -> Self {
        let entropy = |part: u64| SeededEntropy::new(seed ^ (part << 56));
        Self {
            net: SimNet::new(seed ^ (1 << 56), NetFaults::CALM),
            disk: SimDisk::new(Arc::new(entropy(2))),
            clock: Arc::new(SimClock::start()),
            trace,
            seed,
            plant,
            processes: AtomicU64::new(0),
            faults: entropy(3),
            plants: entropy(5),
            node: Mutex::new(None),
        }
    }

    /// Records an event with the current time.
    pub(crate) fn note(&self, text: String) {
        self.trace.event(self.clock.elapsed_us(), text);
    }

    /// Returns the clock's time and its history.
    pub(crate) fn moment(&self) -> Moment {
        self.clock.moment()
    }

    /// Returns the randomness of a new process.
    fn entropy(&self) -> Arc<dyn Entropy> {
        let number = self.processes.fetch_add(1, Ordering::Relaxed);
        Arc::new(SeededEntropy::new(self.seed ^ (4 << 56) ^ (number << 32)))
    }

    /// Returns an empty disk of a new host.
    pub(crate) fn new_disk(&self) -> SimDisk {
        SimDisk::new(self.entropy())
    }

    /// Returns a random number below `bound`, from the faults' own sequence.
    pub(crate) fn draw(&self, bound: u64) -> u64 {
        self.faults.next_u64().unwrap_or_default() % bound.max(1)
    }

    /// Returns a random number below `bound`, from the plants' own sequence.
    pub(crate) fn draw_for_plant(&self, bound: u64) -> u64 {
        self.plants.next_u64().unwrap_or_default() % bound.max(1)
    }

    /// Starts the node, and retries as a supervisor would.
    ///
    /// # Errors
    /// Returns the last error, after many attempts.
    pub(crate) async fn start(&self) -> Result<()> {
        let mut attempts = 1;
        loop {
            match self.try_start().await {
                Ok(()) => return Ok(()),
                Err(error) if attempts == STARTS_MAX => return Err(error),
                Err(error) => {
                    self.note(format!("the node does not start: {error}"));
                    self.trace.count_event("node start refused", 1);
                    attempts += 1;
                    tokio::time::sleep(START_WAIT).await;
                }
            }
        }
    }

    async fn open_log(&self) -> Result<EmbeddedLog> {
        let mut options = EmbeddedOptions::new(DATA_DIR);
        options.commit = CommitMode::Task;
        options.segment_bytes = SEGMENT_BYTES;
        options.journal_bytes = JOURNAL_BYTES;
        if self.plant == Some(Plant::AcknowledgesBeforeSync) {
            options.durability = Durability::Buffered;
        }
        EmbeddedLog::open(Arc::new(self.disk.clone()), self.clock.clone(), options).await
    }

    async fn try_start(&self) -> Result<()> {
        let log = Arc::new(self.open_log().await?);
        let rates = FaultRates::default();
        let faulty = Arc::new(FaultyLog::new(Arc::clone(&log), self.entropy(), rates));
        let log_of_node =
            self.with_plant(Arc::clone(&faulty) as Arc<dyn ChangeLog>, Plant::WrongPartition);
        let context = ServiceContext::start(log_of_node, self.clock.clone(), self.entropy());
        let parts = NodeParts {
            context,
            // A storage engine writes its own files, outside the simulated disk.
            shards: None,
            features: None,
        };
        let node = match Node::start(parts).await {
            Ok(node) => node,
            Err(error) => {
                log.close().await;
                return Err(error);
            }
        };
        let server = tokio::spawn(serve(self.net.listen(), node.add_to(Routes::default())));
        self.note("the node runs".to_owned());
        let running = RunningNode { node, log, faulty, server };
        *self.node.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
        Ok(())
    }

    /// Returns the node's log, with the bug if this run's plant is `plant`.
    fn with_plant(&self, log: Arc<dyn ChangeLog>, plant: Plant) -> Arc<dyn ChangeLog> {
        if self.plant != Some(plant) {
            return log;
        }
        Arc::new(PlantedLog::new(log, plant, Arc::clone(&self.clock), Arc::default()))
    }

    fn take_node(&self) -> Option<RunningNode> {
        self.node.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Returns the log of the running node, without faults.
    pub(crate) fn log(&self) -> Option<Arc<EmbeddedLog>> {
        let node = self.node.lock().unwrap_or_else(PoisonError::into_inner);
        node.as_ref().map(|running| Arc::clone(&running.log))
    }

    /// Cuts the power of the node's host.
    pub(crate) async fn power_cut(&self, loss: Loss) {
        self.disk.power_cut(loss);
        self.net.take_down();
        if let Some(running) = self.take_node() {
            running.server.abort();
            running.node.stop().await;
            self.count_log_faults(&running);
        }
        // Calls in progress inside the dead process end before the next process starts.
        tokio::time::sleep(Duration::from_millis(1)).await;
        if self.plant == Some(Plant::LosesTail) {
            self.lose_tail().await;
        }
        self.note(format!("power cut: {loss:?}"));
    }

    /// Stops the node as SIGTERM does.
    pub(crate) async fn stop(&self) {
        if let Some(running) = self.take_node() {
            self.net.take_down();
            running.server.abort();
            running.node.stop().await;
            running.log.close().await;
            self.count_log_faults(&running);
            self.note("the node stopped".to_owned());
        }
    }

    /// Returns the segment files of the store's logs; the files of one partition are consecutive.
    fn segments(&self) -> Vec<PathBuf> {
        let files = self.disk.files(Path::new(DATA_DIR)).unwrap_or_default();
        let control = format!("{:016x}", PartitionRef::CONTROL.store.0);
        let of_store = |path: &PathBuf| {
            let is_segment = path.extension().is_some_and(|ending| ending == "seg");
            is_segment && !path.components().any(|part| part.as_os_str() == control.as_str())
        };
        files.into_iter().filter(of_store).collect()
    }

    async fn lose_tail(&self) {
        // Open and close the log once first, because a journal would restore the removed entry.
        if let Ok(log) = self.open_log().await {
            log.close().await;
        }
        let segments = self.segments();
        let last = segments.iter().zip(segments.iter().skip(1).map(Some).chain([None]));
        let is_last = |(path, next): &(&PathBuf, Option<&PathBuf>)| {
            next.is_none_or(|next| next.parent() != path.parent())
        };
        for (path, _) in last.filter(is_last) {
            // The last frame is torn without its last byte.
            let _ = self.disk.damage(path, |bytes| bytes.truncate(bytes.len() - 1));
        }
    }

    /// Removes the log of one partition while the node is down, as if its disk was replaced.
    ///
    /// # Errors
    /// Returns the disk's errors.
    pub(crate) fn lose_log(&self, store: StoreId, partition: PartitionId) -> std::io::Result<()> {
        use forebay_log::disk::Disk;
        let dir = format!("{DATA_DIR}/logs/{:016x}/{:04}", store.0, partition.0);
        let files = self.segments().into_iter().filter(|path| path.starts_with(&dir));
        let files: Vec<_> = files.collect();
        assert!(!files.is_empty(), "no segment below {dir}");
        files.iter().try_for_each(|path| self.disk.remove(path))?;
        self.disk.sync_dir(Path::new(&dir))
    }

    fn count_log_faults(&self, running: &RunningNode) {
        self.count_events(running.faulty.counts().by_name());
    }

    fn count_events(&self, counts: impl IntoIterator<Item = (&'static str, u64)>) {
        counts.into_iter().for_each(|(event, times)| self.trace.count_event(event, times));
    }

    /// Counts the faults of network and disk over the whole run.
    pub(crate) fn count_faults(&self) {
        self.count_events(self.net.counts().by_name());
        let disk = self.disk.counts();
        self.count_events([
            ("write to a full disk", disk.full_writes),
            ("sync failed", disk.failed_syncs),
            ("file left torn by a power cut", disk.torn_files),
        ]);
    }

    /// Sets the fault rates of the log that the node sees, from now on.
    pub(crate) fn set_log_faults(&self, rates: FaultRates) {
        let node = self.node.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = node.as_ref() {
            running.faulty.set_rates(rates);
        }
    }

    /// Waits, for at most `wait_max`, until the node's log has failed permanently.
    pub(crate) async fn log_failed(&self, wait_max: Duration) -> bool {
        match self.log() {
            Some(log) => tokio::time::timeout(wait_max, log.failed()).await.is_ok(),
            None => false,
        }
    }

    /// Returns the planted bug of this run, if any.
    pub(crate) fn plant(&self) -> Option<Plant> {
        self.plant
    }

    /// Returns a client on a connection of its own.
    pub(crate) fn client(&self) -> Result<Client> {
        let parts = ClientParts::default().clock(self.clock.clone()).entropy(self.entropy());
        // The deadline is short, so that faults outlast some calls and every run retries writes.
        let options = ClientOptions::default()
            .deadline(Duration::from_millis(400))
            .attempt(Duration::from_millis(150));
        Client::from_channel(self.net.channel(&Arc::default()), options, parts)
    }

    /// Opens an embedded reader over the change stream, on a connection of its own.
    pub(crate) async fn reader(
        &self,
        disk: &SimDisk,
        party: &Arc<Party>,
        lineage: &Arc<Lineage>,
        options: ReaderOptions,
    ) -> Result<Reader> {
        let mut log: Arc<dyn ChangeLog> = Arc::new(RemoteLog::new(self.net.channel(party)));
        if let Some(plant) = self.plant.filter(|plant| plant.is_in_readers_log()) {
            let (clock, lineage) = (Arc::clone(&self.clock), Arc::clone(lineage));
            log = Arc::new(PlantedLog::new(log, plant, clock, lineage));
        }
        let entropy = self.entropy();
        let catalog = CatalogFollower::start(Arc::clone(&log), Arc::clone(&entropy));
        let parts = ReaderParts {
            log: Arc::clone(&log),
            catalog: Arc::new(catalog),
            clock: self.clock.clone(),
            entropy,
            barriers: Arc::new(LogBarriers(log)),
            disk: options.checkpoint.as_ref().map(|_| Arc::new(disk.clone()) as _),
            replicator: None,
        };
        Reader::open(options, parts).await
    }
}

/// Serves connections as they arrive. The code is that of tonic's server, except for `select!`,
/// which chooses by a thread's randomness and would make runs unrepeatable.
async fn serve(mut connections: mpsc::Receiver<std::io::Result<SimStream>>, routes: Routes) {
    let service = TowerToHyperService::new(routes.prepare());
    let mut connection_tasks = JoinSet::new();
    while let Some(Ok(stream)) = connections.recv().await {
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        // A date header has the host's time, and its length would change the run.
        http2.timer(TokioTimer::new()).auto_date_header(false);
        let served_one = http2.serve_connection(TokioIo::new(stream), service.clone());
        // Connections end by faults all the time; the checks concern the node's state.
        connection_tasks.spawn(async move { drop(served_one.await) });
        while connection_tasks.try_join_next().is_some() {}
    }
}
