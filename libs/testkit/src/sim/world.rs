//! The simulated world: one node on a model of a disk, behind the simulated network.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forebay::{Client, ClientOptions, ClientParts};
use forebay_core::Result;
use forebay_core::entropy::{Entropy, SeededEntropy};
use forebay_core::id::{PartitionId, PartitionRef, StoreId};
use forebay_log::disk::sim::{Loss, SimDisk};
use forebay_log::embedded::{CommitMode, Durability};
use forebay_log::faulty::{FaultRates, FaultyLog};
use forebay_log::{CatalogFollower, ChangeLog, EmbeddedLog, EmbeddedOptions, RemoteLog};
use forebay_reader::{LogBarriers, Reader, ReaderOptions, ReaderParts};
use forebayd::{Node, NodeParts};
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tonic::service::Routes;

use super::clock::{Moment, SimClock};
use super::net::{NetFaults, SimNet, SimStream};
use super::plant::{Plant, PlantedLog};
use super::readers::Opening;
use super::trace::Trace;

/// Small segments, so that logs roll and recovery has several files to read.
const SEGMENT_BYTES: u64 = 16 * 1024;
/// A small journal, so that its halves take turns.
const JOURNAL_BYTES: u64 = 2 * 16 * 1024;
/// Attempts to start the node; more would mean that a fault has not been healed.
const STARTS_MAX: usize = 50;
const START_WAIT: Duration = Duration::from_millis(100);
const DATA_DIR: &str = "/data";
/// Name of the store of the simulation.
pub(crate) const STORE: &str = "simulated";

/// Everything outside the code under test, and the node.
pub(crate) struct World {
    pub(crate) net: SimNet,
    pub(crate) disk: SimDisk,
    pub(crate) clock: Arc<SimClock>,
    pub(crate) trace: Trace,
    seed: u64,
    plant: Option<Plant>,
    /// Processes made so far; each draws from a sequence of its own.
    processes: AtomicU64,
    faults: SeededEntropy,
    plants: SeededEntropy,
    node: Mutex<Option<Running>>,
}

struct Running {
    node: Node,
    log: Arc<EmbeddedLog>,
    faulty: Arc<FaultyLog<Arc<EmbeddedLog>>>,
    server: JoinHandle<()>,
}

impl World {
    /// A world of this seed, with nothing running in it.
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

    /// Notes an event, with the time.
    pub(crate) fn note(&self, what: String) {
        self.trace.event(self.clock.elapsed_us(), what);
    }

    /// The clock with what it has been through.
    pub(crate) fn moment(&self) -> Moment {
        self.clock.moment()
    }

    /// The randomness of one more process.
    fn entropy(&self) -> Arc<dyn Entropy> {
        let number = self.processes.fetch_add(1, Ordering::Relaxed);
        Arc::new(SeededEntropy::new(self.seed ^ (4 << 56) ^ (number << 32)))
    }

    /// An empty disk of one more host.
    pub(crate) fn new_disk(&self) -> SimDisk {
        SimDisk::new(self.entropy())
    }

    /// A random number below `bound`, of the faults' own sequence.
    pub(crate) fn draw(&self, bound: u64) -> u64 {
        self.faults.next_u64().unwrap_or_default() % bound.max(1)
    }

    /// A random number below `bound`, of the plants' own sequence.
    pub(crate) fn draw_for_plant(&self, bound: u64) -> u64 {
        self.plants.next_u64().unwrap_or_default() % bound.max(1)
    }

    /// Starts the node, again if need be, as a supervisor would.
    ///
    /// # Errors
    /// The last refusal, after many attempts.
    pub(crate) async fn start(&self) -> Result<()> {
        let mut attempts = 1;
        loop {
            match self.try_start().await {
                Ok(()) => return Ok(()),
                Err(error) if attempts == STARTS_MAX => return Err(error),
                Err(error) => {
                    self.note(format!("the node does not start: {error}"));
                    self.trace.fired("node start refused", 1);
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
        let parts = NodeParts {
            log: self.planted(Arc::clone(&faulty) as Arc<dyn ChangeLog>, Plant::WrongPartition),
            clock: self.clock.clone(),
            entropy: self.entropy(),
            // Files of an engine of its own are no part of the simulated disk.
            shards: None,
            snapshots: None,
            features: None,
        };
        let node = match Node::start(parts).await {
            Ok(node) => node,
            Err(error) => {
                log.close().await;
                return Err(error);
            }
        };
        let server = tokio::spawn(serve(self.net.listen(), node.routes()));
        self.note("the node runs".to_owned());
        let running = Running { node, log, faulty, server };
        *self.node.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
        Ok(())
    }

    /// The node's log, with the bug of this run if it is this one.
    fn planted(&self, log: Arc<dyn ChangeLog>, plant: Plant) -> Arc<dyn ChangeLog> {
        if self.plant != Some(plant) {
            return log;
        }
        Arc::new(PlantedLog::new(log, plant, Arc::clone(&self.clock), Arc::default()))
    }

    fn take_node(&self) -> Option<Running> {
        self.node.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The log of the node that runs, without faults.
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
        // What was on its way inside the dead process ends before the next one starts.
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

    /// The segment files of the store's logs, those of one partition behind each other.
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
        // Opened and closed once: a journal would have again what is cut away.
        if let Ok(log) = self.open_log().await {
            log.close().await;
        }
        let segments = self.segments();
        let last = segments.iter().zip(segments.iter().skip(1).map(Some).chain([None]));
        let is_last = |(path, next): &(&PathBuf, Option<&PathBuf>)| {
            next.is_none_or(|next| next.parent() != path.parent())
        };
        for (path, _) in last.filter(is_last) {
            // One byte less, and the last frame is torn.
            let _ = self.disk.damage(path, |bytes| bytes.truncate(bytes.len() - 1));
        }
    }

    /// Takes the log of one partition away while the node is down, as if its disk was replaced.
    ///
    /// # Errors
    /// The disk's.
    pub(crate) fn lose_log(&self, store: StoreId, partition: PartitionId) -> std::io::Result<()> {
        use forebay_log::disk::Disk;
        let dir = format!("{DATA_DIR}/logs/{:016x}/{:04}", store.0, partition.0);
        let files = self.segments().into_iter().filter(|path| path.starts_with(&dir));
        let files: Vec<_> = files.collect();
        assert!(!files.is_empty(), "no segment below {dir}");
        files.iter().try_for_each(|path| self.disk.remove(path))?;
        self.disk.sync_dir(Path::new(&dir))
    }

    fn count_log_faults(&self, running: &Running) {
        self.fired(running.faulty.counts().by_name());
    }

    fn fired(&self, counts: impl IntoIterator<Item = (&'static str, u64)>) {
        counts.into_iter().for_each(|(what, times)| self.trace.fired(what, times));
    }

    /// Counts what network and disk did over the whole run.
    pub(crate) fn count_faults(&self) {
        self.fired(self.net.counts().by_name());
        let disk = self.disk.counts();
        self.fired([
            ("write to a full disk", disk.full_writes),
            ("sync failed", disk.failed_syncs),
            ("file left torn by a power cut", disk.torn_files),
        ]);
    }

    /// From now on the log that the node sees is this unreliable.
    pub(crate) fn set_log_faults(&self, rates: FaultRates) {
        let node = self.node.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = node.as_ref() {
            running.faulty.set_rates(rates);
        }
    }

    /// Waits until the node's log has failed for good, at most this long.
    pub(crate) async fn log_failed(&self, wait_max: Duration) -> bool {
        match self.log() {
            Some(log) => tokio::time::timeout(wait_max, log.failed()).await.is_ok(),
            None => false,
        }
    }

    /// The bug of this run, if it has one.
    pub(crate) fn plant(&self) -> Option<Plant> {
        self.plant
    }

    /// A client of its own connection.
    pub(crate) fn client(&self) -> Result<Client> {
        let parts = ClientParts { clock: self.clock.clone(), entropy: self.entropy() };
        // Short, so that faults outlast some calls and the retry of a write is part of every run.
        let options = ClientOptions {
            deadline: Duration::from_millis(400),
            attempt: Duration::from_millis(150),
        };
        Client::from_channel(self.net.channel(&Arc::default()), options, parts)
    }

    /// An embedded reader over the change stream, on a connection of its own.
    pub(crate) async fn reader(
        &self,
        opening: &Opening<'_>,
        options: ReaderOptions,
    ) -> Result<Reader> {
        let mut log: Arc<dyn ChangeLog> = Arc::new(RemoteLog::new(self.net.channel(opening.party)));
        if let Some(plant) = self.plant.filter(|plant| plant.is_in_readers_log()) {
            let (clock, lineage) = (Arc::clone(&self.clock), Arc::clone(opening.lineage));
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
            on_skipped: None,
            disk: options.checkpoint.as_ref().map(|_| Arc::new(opening.disk.clone()) as _),
            replicator: None,
        };
        Reader::open(options, parts).await
    }
}

/// Serves connections as they come. This is tonic's own server but for its `select!`s, which choose
/// by a thread's randomness and would make a run unrepeatable.
async fn serve(mut connections: mpsc::Receiver<std::io::Result<SimStream>>, routes: Routes) {
    let service = TowerToHyperService::new(routes.prepare());
    let mut served = JoinSet::new();
    while let Some(Ok(stream)) = connections.recv().await {
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        // A date is the host's: when its second changes, headers get longer, and a run another.
        http2.timer(TokioTimer::new()).auto_date_header(false);
        let served_one = http2.serve_connection(TokioIo::new(stream), service.clone());
        // Connections end by faults all the time; the node's state is what is checked.
        served.spawn(async move { drop(served_one.await) });
        while served.try_join_next().is_some() {}
    }
}
