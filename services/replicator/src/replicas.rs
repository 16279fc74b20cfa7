//! The replicator's own replica of every store: an embedded reader that tells outcomes, knows how
//! long a partition has been silent, and finds the records that are skipped.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forebay_core::Result;
use forebay_core::catalog::SchemaAt;
use forebay_core::clock::Clock;
use forebay_core::entropy::Entropy;
use forebay_core::id::{ClientId, PartitionRef, Position, Sequence, StoreId};
use forebay_core::outcome::Verdict;
use forebay_log::{CatalogFollower, ChangeLog};
use forebay_reader::{LogBarriers, OnSkipped, Reader, ReaderMetrics, ReaderOptions, ReaderParts};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::dead_letters::{Copier, DeadLetterCounts, Waiting};
use crate::heartbeat::{self, Heartbeats};

/// Wait before a store whose replica could not be opened is tried again.
const REOPEN_WAIT: Duration = Duration::from_millis(200);

/// What replicas are made of; the simulator brings its own.
#[derive(Clone)]
pub struct ReplicatorParts {
    /// The change log.
    pub log: Arc<dyn ChangeLog>,
    /// The fold of the control log.
    pub catalog: Arc<CatalogFollower>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Randomness: log ids, and the jitter of back-offs.
    pub entropy: Arc<dyn Entropy>,
    /// How heartbeats get into the log.
    pub heartbeats: Arc<dyn Heartbeats>,
}

/// What a replicator has done for one store.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreMetrics {
    /// Its replica.
    pub replica: ReaderMetrics,
    /// Its dead letters; `None` for a store whose dead letters are not kept.
    pub dead_letters: Option<DeadLetterCounts>,
}

struct Replica {
    reader: Reader,
    tasks: Vec<JoinHandle<()>>,
    waiting: Option<Arc<Waiting>>,
}

impl Replica {
    fn end(&self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.reader.close();
    }
}

/// The replicas of all living stores, and a replicator's duties for them: heartbeats, outcomes of
/// conditional changes and dead letters. One process has these duties for a partition.
///
/// Dropping it ends them.
pub struct Replicas {
    replicas: Arc<Mutex<BTreeMap<StoreId, Replica>>>,
    /// Told of each replica that is opened.
    opened: Arc<watch::Sender<()>>,
    follower: JoinHandle<()>,
}

impl Replicas {
    /// Keeps one replica per living store from now on, on the current runtime.
    pub fn follow(parts: ReplicatorParts) -> Self {
        let replicas = Arc::new(Mutex::new(BTreeMap::new()));
        let opened = Arc::new(watch::Sender::new(()));
        let keeper = Keeper {
            replicas: Arc::clone(&replicas),
            opened: Arc::clone(&opened),
            parts,
            reopen: Arc::default(),
        };
        Self { replicas, opened, follower: tokio::spawn(keeper.run()) }
    }

    /// The replica of a store, once it is open.
    pub fn reader(&self, store: StoreId) -> Option<Reader> {
        lock(&self.replicas).get(&store).map(|replica| replica.reader.clone())
    }

    /// The verdict on this client's change, which the log holds at `position`; waits for the
    /// replica to apply it. `None`: no replica in time, or the outcome is no longer kept.
    pub async fn verdict(
        &self,
        at: PartitionRef,
        position: Position,
        (client, sequence): (ClientId, Sequence),
        wait_max: Duration,
    ) -> Option<Verdict> {
        let deadline = Instant::now() + wait_max;
        let opening = self.await_reader(at.store);
        let reader = tokio::time::timeout_at(deadline, opening).await.ok()??;
        let left = deadline.saturating_duration_since(Instant::now());
        reader.wait_applied(at.partition, position, left).await.ok()?;
        reader.outcome(at.partition, client, sequence).ok()?.map(|outcome| outcome.verdict)
    }

    /// The replica of a store, as soon as it is open; `None` when replicas are opened no more.
    async fn await_reader(&self, store: StoreId) -> Option<Reader> {
        let mut opened = self.opened.subscribe();
        loop {
            if let Some(reader) = self.reader(store) {
                return Some(reader);
            }
            opened.changed().await.ok()?;
        }
    }

    /// What was done for a store so far; `None` before its replica is open.
    pub fn metrics(&self, store: StoreId) -> Option<StoreMetrics> {
        let (reader, waiting) = {
            let replicas = lock(&self.replicas);
            let replica = replicas.get(&store)?;
            (replica.reader.clone(), replica.waiting.clone())
        };
        let dead_letters = waiting.map(|waiting| waiting.counts());
        Some(StoreMetrics { replica: reader.metrics(), dead_letters })
    }

    /// Closes every replica and ends the duties.
    pub fn stop(&self) {
        self.follower.abort();
        for replica in std::mem::take(&mut *lock(&self.replicas)).into_values() {
            replica.end();
        }
    }
}

impl Drop for Replicas {
    fn drop(&mut self) {
        self.stop();
    }
}

fn lock(
    replicas: &Mutex<BTreeMap<StoreId, Replica>>,
) -> std::sync::MutexGuard<'_, BTreeMap<StoreId, Replica>> {
    replicas.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The task that opens and closes replicas.
struct Keeper {
    replicas: Arc<Mutex<BTreeMap<StoreId, Replica>>>,
    opened: Arc<watch::Sender<()>>,
    parts: ReplicatorParts,
    /// Told when a replica must be opened anew.
    reopen: Arc<Notify>,
}

impl Keeper {
    async fn run(self) {
        loop {
            let changed = self.parts.catalog.changes();
            if !self.refresh().await {
                tokio::time::sleep(REOPEN_WAIT).await;
                continue;
            }
            tokio::select! {
                biased;
                () = self.reopen.notified() => {}
                is_alive = changed => if !is_alive { return },
            }
        }
    }

    /// Opens what is new and closes what is gone; whether all of it worked.
    async fn refresh(&self) -> bool {
        let now = self.parts.catalog.catalog();
        let living: BTreeMap<_, _> =
            now.living().map(|schema| (schema.definition.store, Arc::clone(schema))).collect();
        lock(&self.replicas).retain(|store, replica| {
            let stays = living.contains_key(store);
            if !stays {
                replica.end();
            }
            stays
        });
        let mut complete = true;
        for (store, schema) in living {
            let Some(waiting) = self.is_wanted(store) else { continue };
            match self.open(&schema, waiting).await {
                Ok(replica) => {
                    lock(&self.replicas).insert(store, replica);
                    self.opened.send_replace(());
                }
                Err(error) => {
                    let name = &schema.definition.name;
                    warn!(store = %name, %error, "the replicator's replica is not open yet");
                    complete = false;
                }
            }
        }
        complete
    }

    /// Whether a store's replica is to be opened; with what the one before it had waiting, if there
    /// was one that must give way.
    fn is_wanted(&self, store: StoreId) -> Option<Option<Arc<Waiting>>> {
        let mut replicas = lock(&self.replicas);
        let Some(replica) = replicas.get(&store) else { return Some(None) };
        let waiting = replica.waiting.clone()?;
        if !waiting.must_reopen() {
            return None;
        }
        info!(%store, "more records were skipped than wait to be copied; folding the log again");
        replica.end();
        replicas.remove(&store);
        waiting.restart();
        Some(Some(waiting))
    }

    async fn open(&self, schema: &Arc<SchemaAt>, before: Option<Arc<Waiting>>) -> Result<Replica> {
        let copier = self.copier(schema, before).await?;
        let waiting = copier.as_ref().map(|copier| Arc::clone(copier.waiting()));
        let on_skipped = waiting.clone().map(|waiting| {
            let on_skipped: OnSkipped = Arc::new(move |skipped| waiting.push(skipped));
            on_skipped
        });
        let mut options = ReaderOptions::new(&schema.definition.name);
        options.keep_outcomes = true;
        let ReplicatorParts { log, catalog, clock, entropy, heartbeats } = self.parts.clone();
        let barriers = Arc::new(LogBarriers(Arc::clone(&log)));
        let parts = ReaderParts { log, catalog, clock, entropy, barriers, on_skipped, disk: None };
        let reader = Reader::open(options, parts).await?;
        let beats = heartbeat::beat(reader.clone(), heartbeats, Arc::clone(schema));
        let mut tasks = vec![tokio::spawn(beats)];
        tasks.extend(copier.map(|copier| tokio::spawn(copier.run())));
        Ok(Replica { reader, tasks, waiting })
    }

    /// The copier of a store's dead letters, which has read back how far an earlier one came.
    async fn copier(
        &self,
        schema: &SchemaAt,
        before: Option<Arc<Waiting>>,
    ) -> Result<Option<Copier>> {
        let definition = &schema.definition;
        let Some(letters) = definition.store.dead_letters() else { return Ok(None) };
        let (waiting, reopen) = (before.unwrap_or_default(), Arc::clone(&self.reopen));
        let mut copier = Copier::new(&self.parts, definition, letters, waiting, reopen);
        copier.read_back().await?;
        Ok(Some(copier))
    }
}
