//! Tests of the embedded log: the conformance suite, crashes at every step, damage to every bit,
//! disk faults.

mod crash_test;
mod damage_test;
mod fault_test;
mod journal_test;
mod kill_test;
mod lock_test;
mod segment_test;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_core::clock::{ManualClock, Timestamp};
use forebay_core::entropy::SeededEntropy;
use forebay_core::id::{Offset, PartitionCount, PartitionId, PartitionRef, StoreId};
use forebay_core::{Error, ErrorCode};
use forebay_log::conformance::Fixture;
use forebay_log::disk::sim::Loss;
use forebay_log::disk::{Disk, RealDisk, SimDisk};
use forebay_log::embedded_log::{
    CommitMode, Durability, EmbeddedLog, EmbeddedOptions, OpenVerification,
};
use forebay_log::{ChangeLog, LogRecord, ReadLimit, change_log_conformance};

const STORE: StoreId = StoreId(0xfeed);

fn at(partition: u32) -> PartitionRef {
    PartitionRef { store: STORE, partition: PartitionId(partition) }
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000)))
}

/// Options of a simulated log: one task, small segments, a small journal.
fn sim_options() -> EmbeddedOptions {
    let mut options = EmbeddedOptions::new("/data");
    options.commit = CommitMode::Task;
    options.segment_bytes = 4_000;
    options.journal_bytes = 2 * 8_192;
    options
}

async fn open(disk: &SimDisk, options: EmbeddedOptions) -> Result<EmbeddedLog, Error> {
    open_at(disk, options, clock()).await
}

async fn open_at(
    disk: &SimDisk,
    options: EmbeddedOptions,
    clock: Arc<ManualClock>,
) -> Result<EmbeddedLog, Error> {
    EmbeddedLog::open(Arc::new(disk.clone()), clock, options).await
}

fn sim_disk(seed: u64) -> SimDisk {
    SimDisk::new(Arc::new(SeededEntropy::new(seed)))
}

async fn create(log: &EmbeddedLog, partitions: u32) {
    log.create(STORE, PartitionCount(partitions)).await.unwrap();
}

fn entry(number: u64) -> Bytes {
    let length = (number.wrapping_mul(2_654_435_761) % 300) as usize;
    number.to_le_bytes().iter().copied().cycle().take(length + 8).collect()
}

/// Reads every record from an offset to the end.
async fn read_all(
    log: &EmbeddedLog,
    at: PartitionRef,
    from: Offset,
) -> Result<Vec<LogRecord>, Error> {
    let limit = ReadLimit { bytes_max: 1_000, wait_max: std::time::Duration::ZERO };
    let mut records: Vec<LogRecord> = Vec::new();
    loop {
        let next = records.last().map_or(from, |record| record.offset.next());
        let read = log.read(at, next, limit).await?;
        if read.records.is_empty() {
            return Ok(records);
        }
        records.extend(read.records);
    }
}

fn code<T: std::fmt::Debug>(result: Result<T, Error>) -> ErrorCode {
    result.expect_err("an error was expected").code()
}

/// An embedded log on a real or simulated disk.
struct EmbeddedFixture {
    disk: Arc<dyn Disk>,
    sim: Option<SimDisk>,
    options: EmbeddedOptions,
    clock: Arc<ManualClock>,
    log: Arc<EmbeddedLog>,
    _dir: Option<tempfile::TempDir>,
}

impl EmbeddedFixture {
    async fn on_real_disk(change: impl FnOnce(&mut EmbeddedOptions)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut options = EmbeddedOptions::new(dir.path().join("data"));
        options.segment_bytes = 20_000;
        change(&mut options);
        let (disk, clock) = (Arc::new(RealDisk), clock());
        let log = EmbeddedLog::open(disk.clone(), clock.clone(), options.clone()).await.unwrap();
        Self { disk, sim: None, options, clock, log: Arc::new(log), _dir: Some(dir) }
    }

    async fn on_sim_disk(change: impl FnOnce(&mut EmbeddedOptions)) -> Self {
        let sim = sim_disk(7);
        let (disk, clock) = (Arc::new(sim.clone()), clock());
        let mut options = sim_options();
        change(&mut options);
        let log = EmbeddedLog::open(disk.clone(), clock.clone(), options.clone()).await.unwrap();
        Self { disk, sim: Some(sim), options, clock, log: Arc::new(log), _dir: None }
    }
}

#[async_trait]
impl Fixture for EmbeddedFixture {
    fn log(&self) -> Arc<dyn ChangeLog> {
        self.log.clone()
    }

    fn clock(&self) -> Option<Arc<ManualClock>> {
        Some(self.clock.clone())
    }

    async fn reopen(&mut self) -> bool {
        match &self.sim {
            Some(sim) => sim.power_cut(Loss::RandomSectors),
            None => self.log.close().await,
        }
        let opened = EmbeddedLog::open(self.disk.clone(), self.clock.clone(), self.options.clone());
        self.log = Arc::new(opened.await.unwrap());
        true
    }
}

async fn fsync() -> EmbeddedFixture {
    EmbeddedFixture::on_real_disk(|_| {}).await
}

async fn buffered() -> EmbeddedFixture {
    EmbeddedFixture::on_real_disk(|options| options.durability = Durability::Buffered).await
}

async fn without_cache() -> EmbeddedFixture {
    EmbeddedFixture::on_real_disk(|options| {
        options.tail_cache_bytes = 0;
        options.open_verification = OpenVerification::ActiveSegments;
    })
    .await
}

async fn simulated() -> EmbeddedFixture {
    EmbeddedFixture::on_sim_disk(|_| {}).await
}

async fn simulated_without_cache() -> EmbeddedFixture {
    EmbeddedFixture::on_sim_disk(|options| {
        options.tail_cache_bytes = 0;
        options.open_verification = OpenVerification::ActiveSegments;
    })
    .await
}

change_log_conformance!(fsync_suite, fsync);
change_log_conformance!(buffered_suite, buffered);
change_log_conformance!(without_cache_suite, without_cache);
change_log_conformance!(simulated_suite, simulated, start_paused = true);
change_log_conformance!(
    simulated_without_cache_suite,
    simulated_without_cache,
    start_paused = true
);

/// Returns the files below the data directory whose names have a suffix.
fn files(disk: &SimDisk, ending: &str) -> Vec<std::path::PathBuf> {
    let mut files = disk.files(Path::new("/data")).unwrap_or_default();
    files.retain(|file| file.to_str().is_some_and(|name| name.ends_with(ending)));
    files
}

fn segments(disk: &SimDisk) -> Vec<std::path::PathBuf> {
    files(disk, ".seg")
}

fn journals(disk: &SimDisk) -> Vec<std::path::PathBuf> {
    files(disk, ".journal.new")
}
