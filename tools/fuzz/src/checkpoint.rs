//! Images as a reader's checkpoints. For any content of the file, opening a reader over it ends in
//! one of three ways: the replica is readable, the file is ignored, or a read finds damage; and the
//! reader continues with its log.

use std::cell::Cell;
use std::panic;
use std::path::Path;
use std::sync::{Arc, LazyLock, Once};
use std::time::Duration;

use bytes::Bytes;
use forebay_core::ErrorCode;
use forebay_core::catalog::ControlRecord;
use forebay_core::change::{Change, ClientBatch, Entry, EntryBody, FieldChange, FieldOp, Verb};
use forebay_core::clock::{ManualClock, Timestamp};
use forebay_core::entropy::SeededEntropy;
use forebay_core::id::{
    ClientId, FieldId, LogId, PartitionId, PartitionRef, SchemaVersion, Sequence, StoreId,
};
use forebay_core::key::{Key, KeyType};
use forebay_core::schema::{Definition, StoreSpec};
use forebay_core::value::{FieldType, Value};
use forebay_entries::CatalogFollower;
use forebay_log::disk::{Disk, SimDisk};
use forebay_log::{ChangeLog, MemoryLog};
use forebay_reader::{CheckpointOptions, LogBarriers, Reader, ReaderOptions, ReaderParts};
use forebay_wire::entry::encode_entry;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::edits::apply_edits;
use crate::runtime;

const STORE: StoreId = StoreId(1);
const AT: PartitionRef = PartitionRef { store: STORE, partition: PartitionId(0) };
const LOG: LogId = LogId(7);
const DIR: &str = "/checkpoints";
const BLOCK_BYTES: usize = 8 * 1024;
/// Offsets in the header of an image.
const BLOCKS_AT: usize = 112;
const STATE_BYTES_AT: usize = 132;
const META_CHECKSUM_AT: usize = 136;
const PARITIES_AT: usize = 144;
/// First `mode` with which one byte of a block is flipped after all other edits.
const FLIPPED_FROM: u8 = 128;
/// Number of reads of a reader over a damaged image within which the replica must be rebuilt.
const READS_MAX: usize = 100;
/// Virtual time for a reader to open a checkpoint and continue.
const OPENING: Duration = Duration::from_secs(15);

static SOUND: LazyLock<Vec<u8>> = LazyLock::new(|| runtime().block_on(make_sound()));

thread_local! {
    static HAS_PANICKED: Cell<bool> = const { Cell::new(false) };
}

/// Restores a reader from the input: mode u8, then the bytes of a checkpoint (`mode` 0 and 1), or
/// edits of a sound checkpoint (others). An edit has three bytes: an offset u16 and the byte to
/// write there. With an odd `mode` every checksum, every length and the parity are then corrected,
/// so that the decoder continues; with an even one they cannot be forged. From 128 on a byte of the
/// first block is flipped after that, which the reader must repair.
///
/// # Panics
/// Panics if a reader panics, or applies data that was never written.
pub fn checkpoint_restore(input: &[u8]) {
    let Some((mode, rest)) = input.split_first() else { return };
    // Built first, because it needs a runtime of its own.
    LazyLock::force(&SOUND);
    let mut bytes = if *mode < 2 { rest.to_vec() } else { edited(rest) };
    let is_sealed = mode % 2 == 1;
    if is_sealed {
        seal(&mut bytes);
    }
    if *mode >= FLIPPED_FROM {
        bytes.iter_mut().skip(BLOCK_BYTES + 6).take(1).for_each(|byte| *byte ^= 8);
    }
    note_panics();
    runtime().block_on(open_over(bytes, is_sealed));
    assert!(!HAS_PANICKED.replace(false), "a tail panicked");
}

/// Returns the bytes of a sound checkpoint, as a corpus's first input.
pub fn sound_checkpoint() -> Vec<u8> {
    SOUND.clone()
}

/// Records panics of this thread, which runs everything: a tail catches its own panics.
fn note_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            HAS_PANICKED.set(true);
            before(info);
        }));
    });
    HAS_PANICKED.set(false);
}

fn edited(edits: &[u8]) -> Vec<u8> {
    let mut bytes = SOUND.clone();
    apply_edits(edits, &mut bytes);
    bytes
}

/// Corrects magic, version, lengths, parity and checksums, for as many blocks as fit in the file.
fn seal(bytes: &mut [u8]) {
    let Some(room_bytes) = bytes.len().checked_sub(BLOCK_BYTES) else { return };
    bytes[..6].copy_from_slice(b"FBIM\x03\x00");
    let room = (room_bytes / BLOCK_BYTES) as u64;
    let blocks = u64_at(bytes, BLOCKS_AT).min(room);
    let parities = u64_at(bytes, PARITIES_AT).min(blocks).min(room - blocks);
    write_number(bytes, BLOCKS_AT, &blocks.to_le_bytes());
    write_number(bytes, PARITIES_AT, &parities.to_le_bytes());
    set_parity(&mut bytes[BLOCK_BYTES..], blocks as usize, parities as usize);
    let blocks = blocks + parities;
    let meta_at = BLOCK_BYTES * (1 + blocks as usize);
    let [extents, groups, segments] =
        [120, 124, 128].map(|offset| u64_at(bytes, offset) & u64::from(u32::MAX));
    let fixed = 8 * (blocks + extents + groups) + 32 * segments;
    let state_bytes = ((bytes.len() - meta_at) as u64).saturating_sub(fixed) as u32;
    write_number(bytes, STATE_BYTES_AT, &state_bytes.to_le_bytes());
    let (body, meta) = bytes.split_at_mut(meta_at);
    let numbered = body.as_chunks::<BLOCK_BYTES>().0.iter().skip(1).enumerate();
    for ((number, block), place) in numbered.zip(meta.as_chunks_mut::<8>().0) {
        *place = xxh3_64_with_seed(block, number as u64).to_le_bytes();
    }
    write_number(body, META_CHECKSUM_AT, &xxh3_64(meta).to_le_bytes());
    let header = xxh3_64(&body[..BLOCK_BYTES - 8]);
    write_number(body, BLOCK_BYTES - 8, &header.to_le_bytes());
}

fn set_parity(bytes: &mut [u8], blocks: usize, parities: usize) {
    let (blocks, rest) = bytes.as_chunks_mut::<BLOCK_BYTES>().0.split_at_mut(blocks);
    for (number, parity) in (blocks.len()..).zip(rest.iter_mut().take(parities)) {
        parity.fill(0);
        for block in blocks.iter().skip(number % parities).step_by(parities) {
            parity.iter_mut().zip(block).for_each(|(sum, byte)| *sum ^= byte);
        }
    }
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    bytes[offset..].first_chunk().copied().map_or(0, u64::from_le_bytes)
}

fn write_number(bytes: &mut [u8], offset: usize, number: &[u8]) {
    bytes[offset..offset + number.len()].copy_from_slice(number);
}

/// A store of one partition with a few documents in its log.
struct World {
    log: Arc<MemoryLog>,
    clock: Arc<ManualClock>,
    catalog: Arc<CatalogFollower>,
}

fn definition() -> Definition {
    StoreSpec::documents("fuzz", KeyType::String)
        .partitions(1)
        .field("n", FieldType::INT64)
        .field("s", FieldType::STRING)
        .define(STORE)
        .expect("a definition of distinct fields")
}

fn entry(log_id: LogId, version: u32, body: EntryBody) -> Bytes {
    let entry = Entry::original(log_id, SchemaVersion(version), body);
    encode_entry(&entry).expect("a small entry")
}

fn put(number: u64) -> Bytes {
    let set = |field, value| {
        let op = FieldOp::Set(Some(value));
        FieldChange { field: FieldId(field), op, ttl_us: None }
    };
    let change = Change {
        sequence: Sequence(number),
        key: Key::plain(format!("key-{number}").as_bytes()).expect("a short key"),
        verb: Verb::Put,
        fields: vec![set(1, Value::Int64(number as i64)), set(2, Value::String("text".into()))],
        condition: None,
        ttl_us: number.is_multiple_of(2).then_some(3_600_000_000),
    };
    let batch = ClientBatch { client: ClientId(9), changes: vec![change] };
    entry(LOG, 1, EntryBody::Changes(vec![batch]))
}

impl World {
    async fn with_puts(puts: u64) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_000_000)));
        let log = Arc::new(MemoryLog::new(clock.clone()));
        let define = EntryBody::Control(ControlRecord::Define(Box::new(definition())));
        for body in [EntryBody::LogHeader, define] {
            let control = entry(LogId(1), 0, body);
            log.append(PartitionRef::CONTROL, control).await.expect("an append to memory");
        }
        log.create(STORE, definition().partitions).await.expect("a new store");
        let header = entry(LOG, 1, EntryBody::LogHeader);
        for entry in std::iter::once(header).chain((1..=puts).map(put)) {
            log.append(AT, entry).await.expect("an append to memory");
        }
        let followed: Arc<dyn ChangeLog> = log.clone();
        let catalog = CatalogFollower::start(followed, Arc::new(SeededEntropy::new(3)));
        Self { log, clock, catalog: Arc::new(catalog) }
    }

    async fn open(&self, disk: &SimDisk) -> Reader {
        let log: Arc<dyn ChangeLog> = self.log.clone();
        let parts = ReaderParts {
            catalog: self.catalog.clone(),
            clock: self.clock.clone(),
            entropy: Arc::new(SeededEntropy::new(2)),
            barriers: Arc::new(LogBarriers(log.clone())),
            log,
            disk: Some(Arc::new(disk.clone())),
            replicator: None,
        };
        let checkpoint = Some(CheckpointOptions::new(DIR));
        let options =
            ReaderOptions::new("fuzz").checkpoint(checkpoint).allow_incomplete_reads(true);
        Reader::open(options, parts).await.expect("a store that is there")
    }
}

fn new_disk() -> SimDisk {
    let disk = SimDisk::new(Arc::new(SeededEntropy::new(1)));
    disk.create_dir(Path::new(DIR)).expect("an empty disk");
    disk
}

async fn make_sound() -> Vec<u8> {
    let (world, disk) = (World::with_puts(4).await, new_disk());
    let reader = world.open(&disk).await;
    tokio::time::sleep(OPENING).await;
    reader.close(OPENING).await.expect("a close on a good disk");
    let files = disk.files(Path::new(DIR)).expect("a directory");
    let checkpoint = files.iter().find(|path| path.extension().is_some());
    disk.bytes(checkpoint.expect("a checkpoint")).expect("a file to read")
}

async fn open_over(bytes: Vec<u8>, is_sealed: bool) {
    let (world, disk) = (World::with_puts(6).await, new_disk());
    let name = format!("{:016x}-0000-{:020}.checkpoint", STORE.0, 1);
    let file = disk.create(&Path::new(DIR).join(name)).expect("a new file");
    file.write_at(&bytes, 0).expect("room on the disk");
    let reader = world.open(&disk).await;
    tokio::time::sleep(OPENING).await;
    let found = reader.metrics().counts.checkpoints;
    let was_opened = found.restored == 1;
    assert!(was_opened || found.damaged + found.ignored == 1, "{found:?}");
    let described = |bytes: &[u8]| {
        let blocks = bytes.len() / BLOCK_BYTES * BLOCK_BYTES;
        (bytes[..BLOCK_BYTES.min(bytes.len())].to_vec(), bytes[blocks..].to_vec())
    };
    if was_opened && !is_sealed {
        assert_eq!(described(&bytes), described(&SOUND), "a checksum was forged");
    }
    for _ in 0..if is_sealed { 3 } else { READS_MAX } {
        if read_all(&reader, is_sealed) {
            break;
        }
        tokio::time::sleep(OPENING).await;
    }
    assert!(is_sealed || read_all(&reader, is_sealed), "the damage stays");
    reader.close(OPENING).await.expect("a close on a good disk");
}

/// Reads every document; returns whether all were readable. The documents of a checkpoint that was
/// not forged must be those of the log.
fn read_all(reader: &Reader, is_sealed: bool) -> bool {
    let mut documents = 0;
    let mut scan = reader.scan();
    loop {
        let visited = reader.scan_next(&mut scan, None, 100, |found| {
            documents += 1;
            found.row.document().map(drop)
        });
        match visited {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) => {
                check_code(error.code(), is_sealed);
                return false;
            }
        }
    }
    let mut is_whole = true;
    for number in 1..=6_i64 {
        let key = format!("key-{number}");
        match reader.get_document(key.as_str()) {
            Ok(found) if !is_sealed => {
                let found = found.expect("every document of the log");
                assert_eq!(found.value(FieldId(1)), Some(&Value::Int64(number)));
            }
            Ok(_) => {}
            Err(error) => {
                check_code(error.code(), is_sealed);
                is_whole = false;
            }
        }
    }
    assert!(is_sealed || !is_whole || documents == 6, "{documents} documents");
    is_whole
}

/// Checks the error of a read over damage. Over a forgery more errors are permitted, because a
/// forgery may break the index's assumptions.
fn check_code(code: ErrorCode, is_sealed: bool) {
    use ErrorCode as Code;
    let forged = [Code::UpgradeNeeded, Code::LimitExceeded, Code::Internal, Code::Corrupt];
    assert!(code == Code::Unavailable || (is_sealed && forged.contains(&code)), "{code:?}");
}
