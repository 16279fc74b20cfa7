//! The embedded log: for any content of a segment, opening and reading return a typed error or
//! entries that were appended.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::ErrorCode;
use forebay_core::change::{Entry, EntryBody};
use forebay_core::clock::{ManualClock, Timestamp};
use forebay_core::entropy::SeededEntropy;
use forebay_core::id::{
    LogId, Offset, PartitionCount, PartitionId, PartitionRef, SchemaVersion, StoreId,
};
use forebay_log::disk::SimDisk;
use forebay_log::embedded_log::CommitMode;
use forebay_log::{ChangeLog, EmbeddedLog, EmbeddedOptions, ReadLimit};
use forebay_wire::entry::encode_entry;

use crate::edits::apply_edits;
use crate::runtime;

const STORE: StoreId = StoreId(1);
const AT: PartitionRef = PartitionRef { store: STORE, partition: PartitionId(0) };
const ENTRIES: usize = 3;

/// Opens a log over the input: mode u8, then the bytes of a segment (`mode` 0), bytes to append to
/// it (1), or edits of three bytes each: an offset u16 and the byte to write there (others); an
/// offset past the end truncates the segment. Edits and additions cannot forge a checksum, so with
/// these every entry read must be one that was appended.
///
/// # Panics
/// Panics if an open or read fails untyped, or returns an entry that was never appended.
pub fn embedded_segment(input: &[u8]) {
    let Some((mode, rest)) = input.split_first() else { return };
    runtime().block_on(damage_and_open(*mode, rest));
}

/// Returns the bytes of the undamaged segment, as a corpus's first input.
pub fn sound_segment() -> Vec<u8> {
    let disk = runtime().block_on(async {
        let (disk, _) = fill_log().await;
        disk
    });
    disk.bytes(&segment(&disk)).expect("a file to read")
}

/// Returns a closed log of a few entries in one segment, and these entries.
async fn fill_log() -> (SimDisk, Vec<Bytes>) {
    let disk = SimDisk::new(Arc::new(SeededEntropy::new(1)));
    let log = open(&disk).await.expect("an empty disk");
    let count = PartitionCount::new(1).expect("one partition");
    log.create(STORE, count).await.expect("a new store");
    let mut appended = Vec::new();
    for number in 0..ENTRIES {
        let entry = entry(number as u64);
        log.append(AT, entry.clone()).await.expect("an append to a good disk");
        appended.push(entry);
    }
    log.close().await;
    (disk, appended)
}

async fn damage_and_open(mode: u8, rest: &[u8]) {
    let (disk, appended) = fill_log().await;
    disk.damage(&segment(&disk), |bytes| damage(mode, rest, bytes)).expect("a file to damage");
    match open(&disk).await {
        Ok(log) => read(&log, mode, &appended).await,
        Err(error) => check_code(error.code()),
    }
}

async fn open(disk: &SimDisk) -> forebay_core::Result<EmbeddedLog> {
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_000)));
    let mut options = EmbeddedOptions::new("/log");
    options.commit = CommitMode::Task;
    EmbeddedLog::open(Arc::new(disk.clone()), clock, options).await
}

fn entry(number: u64) -> Bytes {
    let body = if number == 0 { EntryBody::LogHeader } else { EntryBody::Heartbeat };
    let entry = Entry::original(LogId(7), SchemaVersion(number as u32), body);
    encode_entry(&entry).expect("a small entry")
}

fn segment(disk: &SimDisk) -> PathBuf {
    let of_store = format!("{:016x}", STORE.0);
    let files = disk.files(Path::new("/log")).expect("a directory");
    let is_segment = |path: &PathBuf| {
        path.extension().is_some_and(|extension| extension == "seg")
            && path.to_string_lossy().contains(&of_store)
    };
    files.into_iter().find(is_segment).expect("a segment of the store")
}

fn damage(mode: u8, rest: &[u8], bytes: &mut Vec<u8>) {
    match mode {
        0 => *bytes = rest.to_vec(),
        1 => bytes.extend_from_slice(rest),
        _ => apply_edits(rest, bytes),
    }
}

async fn read(log: &EmbeddedLog, mode: u8, appended: &[Bytes]) {
    let limit = ReadLimit { bytes_max: 1 << 20, wait_max: Duration::ZERO };
    let records = match log.read(AT, Offset(0), limit).await {
        Ok(records) => records.records,
        Err(error) => return check_code(error.code()),
    };
    if mode != 0 {
        assert!(records.len() <= appended.len(), "more was read than appended");
        for (record, entry) in records.iter().zip(appended) {
            assert_eq!(&record.entry, entry, "read at {}", record.offset);
        }
    }
}

fn check_code(code: ErrorCode) {
    let codes = [ErrorCode::Corrupt, ErrorCode::UpgradeNeeded, ErrorCode::TokenLost];
    assert!(codes.contains(&code), "{code:?}");
}
