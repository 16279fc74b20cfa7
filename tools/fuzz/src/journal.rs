//! The embedded log's journal: after any crash or damage, opening and reading return a typed error
//! or entries that were appended.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::ErrorCode;
use forebay_core::clock::{ManualClock, Timestamp};
use forebay_core::entropy::SeededEntropy;
use forebay_core::id::{Offset, PartitionCount, PartitionId, PartitionRef, StoreId};
use forebay_log::disk::SimDisk;
use forebay_log::disk::sim::Loss;
use forebay_log::embedded_log::CommitMode;
use forebay_log::{ChangeLog, EmbeddedLog, EmbeddedOptions, ReadLimit};

use crate::runtime;

const STORE: StoreId = StoreId(1);
const PARTITIONS: u32 = 3;
const ROUNDS: u64 = 6;
const HALF_BYTES: usize = 4_096 + 600;
/// Offset of the records in a half.
const RECORDS_AT: usize = 4_096;
const HEADER_BYTES: usize = 28;
const RECORD_HEADER_BYTES: usize = 16;

/// Opens a log over the input: mode u8, then the bytes of a journal (`mode` 0), or edits of three
/// bytes each: an offset u16 into the headers and records, and the byte to write there. With `mode`
/// 1 checksums stay as they are, so that every entry read must be one that was appended; otherwise
/// checksums are corrected.
///
/// # Panics
/// Panics if an open or read fails untyped, or returns an entry that was never appended.
pub fn embedded_journal(input: &[u8]) {
    let Some((mode, rest)) = input.split_first() else { return };
    runtime().block_on(damage_and_open(*mode, rest));
}

async fn damage_and_open(mode: u8, rest: &[u8]) {
    let disk = crashed().await;
    let journal = journal(&disk);
    disk.damage(&journal, |bytes| damage(mode, rest, bytes)).expect("a file to damage");
    match open(&disk).await {
        Ok(log) => read(&log, mode == 1).await,
        Err(error) => check_code(error.code()),
    }
}

/// Returns the disk of a log that lost power after some groups over all partitions: the last groups
/// are only in the journal, in both its halves.
async fn crashed() -> SimDisk {
    let disk = SimDisk::new(Arc::new(SeededEntropy::new(1)));
    let log = open(&disk).await.expect("an empty disk");
    let count = PartitionCount::new(PARTITIONS).expect("a few partitions");
    log.create(STORE, count).await.expect("a new store");
    for round in 0..ROUNDS {
        let append = |partition| log.append(at(partition), entry(round));
        let (first, second, third) = tokio::join!(append(0), append(1), append(2));
        for appended in [first, second, third] {
            appended.expect("an append to a good disk");
        }
    }
    disk.power_cut(Loss::Everything);
    disk
}

async fn open(disk: &SimDisk) -> forebay_core::Result<EmbeddedLog> {
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_000)));
    let mut options = EmbeddedOptions::new("/log");
    options.commit = CommitMode::Task;
    options.journal_bytes = 2 * HALF_BYTES as u64;
    EmbeddedLog::open(Arc::new(disk.clone()), clock, options).await
}

fn at(partition: u32) -> PartitionRef {
    PartitionRef { store: STORE, partition: PartitionId(partition) }
}

fn entry(round: u64) -> Bytes {
    Bytes::from(vec![round as u8; 20])
}

fn journal(disk: &SimDisk) -> PathBuf {
    let files = disk.files(Path::new("/log")).expect("a directory");
    let is_journal = |path: &PathBuf| path.to_string_lossy().ends_with(".journal.new");
    files.into_iter().find(is_journal).expect("a journal")
}

fn damage(mode: u8, rest: &[u8], bytes: &mut Vec<u8>) {
    if mode == 0 {
        *bytes = rest.to_vec();
        return;
    }
    for [low, high, byte] in rest.as_chunks::<3>().0 {
        let place = usize::from(u16::from_le_bytes([*low, *high]));
        // The space between a header and its records is unused, so no edits go there.
        let (half_number, place) = (place / 1_024 % 2, place % 1_024);
        let behind_header = RECORDS_AT + place.saturating_sub(HEADER_BYTES);
        let offset = if place < HEADER_BYTES { place } else { behind_header };
        let half_bytes = bytes.chunks_mut(HALF_BYTES).nth(half_number);
        if let Some(edited) = half_bytes.and_then(|half_bytes| half_bytes.get_mut(offset)) {
            *edited = *byte;
        }
    }
    if mode != 1 {
        bytes.chunks_mut(HALF_BYTES).for_each(forge);
    }
}

/// Corrects the checksums of a half: of its header and of its consecutive records.
fn forge(half_bytes: &mut [u8]) {
    if let Some((header, checksum)) =
        half_bytes.get_mut(..HEADER_BYTES).and_then(|header| header.split_last_chunk_mut::<4>())
    {
        *checksum = crc32c::crc32c(header).to_le_bytes();
    }
    let mut rest = half_bytes.get_mut(RECORDS_AT..).unwrap_or_default();
    while let Some(length) = rest.first_chunk::<4>() {
        let record_bytes = RECORD_HEADER_BYTES + u32::from_le_bytes(*length) as usize;
        let Some((record, later_records)) = rest.split_at_mut_checked(record_bytes) else { return };
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&record[..4]), &record[8..]);
        record[4..8].copy_from_slice(&checksum.to_le_bytes());
        rest = later_records;
    }
}

async fn read(log: &EmbeddedLog, is_sound: bool) {
    let limit = ReadLimit { bytes_max: 1 << 20, wait_max: Duration::ZERO };
    for partition in 0..PARTITIONS {
        let records = match log.read(at(partition), Offset(0), limit).await {
            Ok(records) => records.records,
            Err(error) => {
                check_code(error.code());
                continue;
            }
        };
        if is_sound {
            assert!(records.len() as u64 <= ROUNDS, "more was read than appended");
            for record in records {
                assert_eq!(record.entry, entry(record.offset.0), "read at {}", record.offset);
            }
        }
    }
}

fn check_code(code: ErrorCode) {
    assert!([ErrorCode::Corrupt, ErrorCode::UpgradeNeeded].contains(&code), "{code:?}");
}
