//! Checkpoints of a reader: whatever stands in the file, opening a reader over it ends in a copy
//! that can be read, or in an ignored file; and the reader goes on with its log.

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
    ClientId, Epoch, FieldId, LogId, PartitionId, PartitionRef, SchemaVersion, Sequence, StoreId,
};
use forebay_core::key::{Key, KeyType};
use forebay_core::schema::{Definition, StoreSpec};
use forebay_core::value::{FieldType, ScalarType, Value};
use forebay_log::disk::{Disk, SimDisk};
use forebay_log::{CatalogFollower, ChangeLog, MemoryLog};
use forebay_reader::{CheckpointOptions, LogBarriers, Reader, ReaderOptions, ReaderParts};
use forebay_wire::entry::encode_entry;

const STORE: StoreId = StoreId(1);
const AT: PartitionRef = PartitionRef { store: STORE, partition: PartitionId(0) };
const LOG: LogId = LogId(7);
const DIR: &str = "/checkpoints";
const HEADER_BYTES: usize = 132;
const BLOCK_HEAD_BYTES: usize = 16;
const END: u8 = 4;
/// Virtual time for a reader to open a checkpoint and go on.
const OPENING: Duration = Duration::from_secs(15);

static SOUND: LazyLock<Vec<u8>> = LazyLock::new(|| runtime().block_on(make_sound()));

thread_local! {
    static HAS_PANICKED: Cell<bool> = const { Cell::new(false) };
}

/// Input: how u8, then the bytes of a checkpoint (`how` 0 and 1), or edits of a sound one of three
/// bytes each, a place u16 and the byte to put there (others). With an odd `how` every checksum and
/// length is then set right, so that the decoder goes on; with an even one they cannot be forged.
///
/// # Panics
/// When a reader panics over it, or takes in what was never written.
pub fn checkpoint_restore(input: &[u8]) {
    let Some((how, rest)) = input.split_first() else { return };
    // Made before, for it takes a runtime of its own.
    LazyLock::force(&SOUND);
    let mut bytes = if *how < 2 { rest.to_vec() } else { edited(rest) };
    let is_sealed = how % 2 == 1;
    if is_sealed {
        seal(&mut bytes);
    }
    note_panics();
    runtime().block_on(open_over(bytes, is_sealed));
    assert!(!HAS_PANICKED.replace(false), "a tail panicked");
}

/// The bytes of a checkpoint before it is damaged, to start a corpus from.
pub fn sound_checkpoint() -> Vec<u8> {
    SOUND.clone()
}

fn runtime() -> tokio::runtime::Runtime {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true).build().expect("a runtime")
}

/// Notes panics of this thread, which runs everything: a tail catches its own.
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
    for [low, high, byte] in edits.as_chunks::<3>().0 {
        let at = usize::from(u16::from_le_bytes([*low, *high]));
        match bytes.get_mut(at) {
            Some(place) => *place = *byte,
            None => bytes.truncate(at % (bytes.len() + 1)),
        }
    }
    bytes
}

/// Sets magic, version, lengths and checksums right, block by block, and ends the file.
fn seal(bytes: &mut Vec<u8>) {
    if bytes.len() < HEADER_BYTES {
        return;
    }
    bytes[..6].copy_from_slice(b"FBRC\x01\x00");
    put_checksum(bytes, 0, HEADER_BYTES - 4, HEADER_BYTES);
    let mut at = HEADER_BYTES;
    while bytes.len() >= at + BLOCK_HEAD_BYTES && bytes[at] != END {
        let body_at = at + BLOCK_HEAD_BYTES;
        let left = bytes.len() - body_at;
        let length = [8, 9, 10, 11].map(|place| bytes[at + place]);
        let length = (u32::from_le_bytes(length) as usize).min(left);
        bytes[at + 8..at + 12].copy_from_slice(&(length as u32).to_le_bytes());
        put_checksum(bytes, at, at + 12, body_at + length);
        at = body_at + length;
    }
    let before = crc32c::crc32c(&bytes[..at]);
    bytes.truncate(at);
    bytes.extend([END, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend(before.to_le_bytes());
    bytes.extend((bytes.len() as u64 + 8).to_le_bytes());
    put_checksum(bytes, at, at + 12, at + BLOCK_HEAD_BYTES + 12);
}

/// Puts the checksum of what is around it at a place: of `from..at` and of `at + 4..to`.
fn put_checksum(bytes: &mut [u8], from: usize, at: usize, to: usize) {
    let before = crc32c::crc32c(&bytes[from..at]);
    let checksum = crc32c::crc32c_append(before, &bytes[(at + 4).min(to)..to]);
    bytes[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
}

/// A store of one partition with a few documents in its log.
struct World {
    log: Arc<MemoryLog>,
    clock: Arc<ManualClock>,
    catalog: Arc<CatalogFollower>,
}

fn definition() -> Definition {
    StoreSpec::documents("fuzz", KeyType::String, 1)
        .field("n", FieldType::Scalar(ScalarType::Int64))
        .field("s", FieldType::Scalar(ScalarType::String))
        .define(STORE)
        .expect("a definition of distinct fields")
}

fn entry(log_id: LogId, version: u32, body: EntryBody) -> Bytes {
    let schema_version = SchemaVersion(version);
    let entry = Entry { log_id, epoch: Epoch(0), schema_version, source: None, body };
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
        for body in [EntryBody::Opening, define] {
            let control = entry(LogId(1), 0, body);
            log.append(PartitionRef::CONTROL, control).await.expect("an append to memory");
        }
        log.create(STORE, definition().partitions).await.expect("a new store");
        let opening = entry(LOG, 1, EntryBody::Opening);
        for entry in std::iter::once(opening).chain((1..=puts).map(put)) {
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
            on_skipped: None,
            disk: Some(Arc::new(disk.clone())),
        };
        let checkpoint = Some(CheckpointOptions::new(DIR));
        let options =
            ReaderOptions { checkpoint, serve_partial: true, ..ReaderOptions::new("fuzz") };
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
    reader.shut_down(OPENING).await.expect("a close on a good disk");
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
    let found = reader.metrics().records.checkpoints;
    assert_eq!(found.restored + found.damaged + found.ignored, 1, "{found:?}");
    if !is_sealed {
        assert_eq!(found.restored == 1, bytes == *SOUND, "a checksum was forged");
    }
    read_all(&reader, is_sealed);
    reader.shut_down(OPENING).await.expect("a close on a good disk");
}

/// Reads every document; those of a checkpoint that nobody forged are those of the log.
fn read_all(reader: &Reader, is_sealed: bool) {
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
                assert!(is_sealed, "{error}");
                return check_code(error.code());
            }
        }
    }
    for number in 1..=6_i64 {
        let key = format!("key-{number}");
        match reader.read_local(None, |view| view.get_document(key.as_str())) {
            Ok(found) if !is_sealed => {
                let found = found.expect("every document of the log");
                assert_eq!(found.value(FieldId(1)), Some(&Value::Int64(number)));
            }
            Ok(_) => {}
            Err(error) => check_code(error.code()),
        }
    }
    assert!(is_sealed || documents == 6, "{documents} documents");
}

fn check_code(code: ErrorCode) {
    let codes = [ErrorCode::Corrupt, ErrorCode::UpgradeNeeded, ErrorCode::LimitExceeded];
    assert!(codes.contains(&code), "{code:?}");
}
