//! The simulated readers: how the simulator opens and reads them, and the states that they show.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use forebay::writes::Token;
use forebay_core::clock::Clock;
use forebay_core::id::{DocumentVersion, LogId, PartitionId, Position};
use forebay_core::key::KeyValue;
use forebay_core::row::Document;
use forebay_core::{Error, Result};
use forebay_log::disk::SimDisk;
use forebay_reader::{CheckpointOptions, PartitionFilter, ReadOptions, Reader, ReaderOptions};

use super::expected_state::{Fields, ShownHistory, State};
use super::net::Party;
use super::plant::{Lineage, Plant};
use super::store::{HEARTBEAT_MS, STORE, fields};
use super::world::World;

const SCAN_BATCH: usize = 64;
/// Wait of a read after a token or for the latest; the caller retries if a fault takes longer.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Age bound of bounded reads: the lowest that the heartbeats permit.
pub(crate) const AGE_MAX: Duration = Duration::from_millis(2 * HEARTBEAT_MS as u64);
const CHECKPOINT_DIR: &str = "/checkpoints";
/// Longest silence of a reader's network right after its open.
const OPENING_SILENCE_MS_MAX: u64 = 60;

/// The role of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Follows all partitions, from the log's start at each open.
    Plain,
    /// Follows two of the three partitions.
    Filtered,
    /// Follows all partitions and resumes from checkpoints on a disk of its own.
    Checkpointing,
}

/// The readers of a simulation.
pub(crate) const ROLES: [Role; 3] = [Role::Plain, Role::Filtered, Role::Checkpointing];
/// Index of the reader with checkpoints in [`ROLES`].
pub(crate) const CHECKPOINTING: usize = 2;

/// A reader over all its restarts, and the states that it has shown so far.
pub(crate) struct SimReader {
    pub(crate) role: Role,
    pub(crate) reader: Reader,
    pub(crate) shown_history: ShownHistory,
    /// Disk of the reader.
    pub(crate) disk: SimDisk,
    /// Membership of the reader in the network.
    pub(crate) party: Arc<Party>,
    /// Lower bound of a bootstrap from the log's start, at the first open.
    first_shown: ShownHistory,
    positions: BTreeMap<PartitionId, (Option<LogId>, Option<Position>)>,
    lineage: Arc<Lineage>,
    /// Last two states shown of each key; only for the plant that reads backwards.
    last_shown: BTreeMap<i64, [Option<State>; 2]>,
}

/// The parts of a reader that survive its restarts: its role, disk, membership in the network, and
/// the record of planted bugs.
type RestartParts = (Role, SimDisk, Arc<Party>, Arc<Lineage>);

fn options(world: &World, role: Role) -> ReaderOptions {
    let mut options = ReaderOptions::new(STORE);
    options.allow_incomplete_reads = world.plant() == Some(Plant::AbsentBeforeCaughtUp);
    match role {
        Role::Plain => {}
        Role::Filtered => {
            let followed_partitions = BTreeSet::from([PartitionId(0), PartitionId(2)]);
            options.partitions = PartitionFilter::Only(followed_partitions);
        }
        Role::Checkpointing => {
            let mut checkpoint = CheckpointOptions::new(CHECKPOINT_DIR);
            checkpoint.interval = Duration::from_millis(40 + world.draw(100));
            options.checkpoint = Some(checkpoint);
        }
    }
    options
}

impl SimReader {
    /// Opens a reader for the first time; `acknowledged` is its lower bound once it answers.
    pub(crate) async fn open(
        world: &World,
        role: Role,
        acknowledged: ShownHistory,
    ) -> Result<Self> {
        let (disk, party, lineage) = (world.new_disk(), Arc::default(), Arc::default());
        let parts = (role, disk, party, lineage);
        let reader = Self::reopen(world, &parts).await?;
        let (role, disk, party, lineage) = parts;
        Ok(Self {
            role,
            reader,
            shown_history: acknowledged.clone(),
            disk,
            party,
            first_shown: acknowledged,
            positions: BTreeMap::new(),
            lineage,
            last_shown: BTreeMap::new(),
        })
    }

    /// Returns the parts that a restart needs, so that the caller need not hold the reader.
    pub(crate) fn restart_parts(&self) -> RestartParts {
        let (disk, party) = (self.disk.clone(), Arc::clone(&self.party));
        (self.role, disk, party, Arc::clone(&self.lineage))
    }

    /// Opens the reader again.
    pub(crate) async fn reopen(
        world: &World,
        (role, disk, party, lineage): &RestartParts,
    ) -> Result<Reader> {
        let reader = world.reader(disk, party, lineage, options(world, *role)).await?;
        // The tails have not started; their first reads take a moment.
        party.part(Duration::from_millis(world.draw(OPENING_SILENCE_MS_MAX)));
        Ok(reader)
    }

    /// Replaces the closed reader; `acknowledged` is the lower bound as of the new open.
    pub(crate) fn replace(&mut self, reader: Reader, acknowledged: ShownHistory) {
        self.reader = reader;
        self.positions.clear();
        self.last_shown.clear();
        self.shown_history = match self.role {
            // After a restart from a checkpoint only a token prevents a reader from going back.
            Role::Checkpointing => self.first_shown.clone(),
            _ => acknowledged,
        };
    }

    /// Drops the expectations about a lost log.
    pub(crate) fn forget(&mut self) {
        self.shown_history = ShownHistory::default();
        self.first_shown = ShownHistory::default();
        self.positions.clear();
    }

    /// Returns whether the reader follows a key's partition.
    pub(crate) fn follows(&self, key: i64) -> bool {
        let partition = self.reader.partition_of(KeyValue::Int64(key));
        self.role != Role::Filtered || partition.is_ok_and(|partition| partition.0 != 1)
    }

    /// Reads the applied state without waiting; with a bound, no older than the bound.
    pub(crate) fn read_local(
        &mut self,
        world: &World,
        key: i64,
        max_staleness: Option<Duration>,
    ) -> Result<State> {
        let max_staleness = max_staleness.filter(|_| world.plant() != Some(Plant::ServesStale));
        let document = self
            .reader
            .read_local(max_staleness, |view| view.get_document(KeyValue::Int64(key)))?;
        let state = document.map(|document| self.fields(&document)).transpose()?;
        if world.plant() != Some(Plant::ReadsBackwards) {
            return Ok(state);
        }
        let [older, newer] = self.last_shown.entry(key).or_default();
        if newer.as_ref() != Some(&state) {
            *older = newer.replace(state.clone());
        }
        let turns_back = older.is_some() && world.draw_for_plant(20) == 0;
        Ok(if turns_back { older.clone().flatten() } else { state })
    }

    fn fields(&self, document: &Document) -> Result<Fields> {
        fields(&self.reader, document)
    }

    /// Compares the positions that the reader serves with the positions that it has served before.
    ///
    /// # Errors
    /// Returns an error if one has fallen.
    pub(crate) fn check_positions(&mut self) -> std::result::Result<(), String> {
        for status in self.reader.status().partitions {
            let now = (status.log_id, status.position);
            let before = self.positions.insert(status.partition, now).unwrap_or_default();
            if before.0 == now.0 && now.1 < before.1 {
                return Err(format!(
                    "{:?} reader: partition {} went back from {:?} to {:?}",
                    self.role, status.partition, before.1, now.1
                ));
            }
        }
        Ok(())
    }

    /// Counts the reader's recovery paths since it was opened.
    pub(crate) fn count(&self, world: &World) {
        let counts = self.reader.metrics().counts;
        let (checkpoints, count_event) =
            (counts.checkpoints, |event, n| world.trace.count_event(event, n));
        count_event("duplicate skipped", counts.duplicates_skipped);
        count_event("tail held up and gone on", counts.log_errors);
        count_event("copy built anew", counts.rebuilds);
        count_event("checkpoint written", checkpoints.written);
        count_event("checkpoint not written", checkpoints.failed);
        count_event("checkpoint restored", checkpoints.restored);
        count_event("damaged checkpoint ignored", checkpoints.damaged);
        count_event("checkpoint block repaired", checkpoints.blocks_repaired);
    }
}

/// Reads a key after the token, with the document's version.
pub(crate) async fn read_after(
    world: &World,
    reader: &Reader,
    key: i64,
    token: &Token,
) -> Result<(State, Option<DocumentVersion>)> {
    let read = match world.plant() {
        Some(Plant::TokenNotAwaited) => ReadOptions::local(),
        _ => ReadOptions::after(token.clone(), WAIT_MAX),
    };
    read_one(reader, &read, key).await
}

/// Reads a key after everything that the log holds now, with the document's version.
pub(crate) async fn read_latest(
    world: &World,
    reader: &Reader,
    key: i64,
) -> Result<(State, Option<DocumentVersion>)> {
    let read = match world.plant() {
        Some(Plant::LatestWithoutBarrier) => ReadOptions::local(),
        _ => ReadOptions::latest(WAIT_MAX),
    };
    read_one(reader, &read, key).await
}

async fn read_one(
    reader: &Reader,
    read: &ReadOptions,
    key: i64,
) -> Result<(State, Option<DocumentVersion>)> {
    let partitions = [reader.partition_of(KeyValue::Int64(key))?];
    let get = reader.read(read, &partitions, |view| view.get_document(KeyValue::Int64(key)));
    let Some(document) = get.await? else { return Ok((None, None)) };
    Ok((Some(fields(reader, &document)?), document.version))
}

/// Reads every document.
pub(crate) fn read_all(reader: &Reader) -> Result<BTreeMap<i64, Fields>> {
    let mut found = BTreeMap::new();
    let mut scan = reader.scan();
    loop {
        let visited_count = reader.scan_next(&mut scan, None, SCAN_BATCH, |scanned| {
            let KeyValue::Int64(key) = scanned.key.primary() else {
                return Err(Error::internal("a key of another type"));
            };
            found.insert(key, fields(reader, &scanned.row.document()?)?);
            Ok(())
        })?;
        if visited_count == 0 {
            return Ok(found);
        }
    }
}

/// Waits until a reader is ready, even if several faults interrupt; the wait is bounded.
pub(crate) async fn await_ready(world: &World, reader: &Reader) -> Result<()> {
    let mut last = None;
    for _ in 0..20 {
        match reader.await_ready(Duration::from_secs(30)).await {
            Ok(()) => return Ok(()),
            Err(error) => last = Some(error),
        }
    }
    let now = world.clock.now();
    Err(last.unwrap_or_else(|| Error::internal(format!("not ready at {now}"))))
}
