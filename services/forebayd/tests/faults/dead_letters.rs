//! Dead letters: skipped records are copied once for each position, over kills of the copying
//! process, and are listed with the reason.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::daemon::{Daemon, LONG};
use bytes::Bytes;
use forebay::schema::{FieldType, KeyType, PartitionId, StoreSpec, Value};
use forebay::status::DeadLetter;
use forebay::{Client, ClientOptions, ErrorCode, ReaderOptions};
use forebay_core::change::{Change, ClientBatch, Entry, EntryBody, FieldChange, FieldOp, Verb};
use forebay_core::clock::SystemClock;
use forebay_core::id::{
    ClientId, FieldId, LogId, Offset, PartitionCount, PartitionRef, SchemaVersion, Sequence,
    StoreId,
};
use forebay_core::key::Key;
use forebay_core::partition::partition_of;
use forebay_log::disk::RealDisk;
use forebay_log::{ChangeLog, EmbeddedLog, EmbeddedOptions, LogRecord, ReadLimit};
use forebay_wire::entry::{decode_entry, encode_entry};

const PARTITIONS: u32 = 2;
const INT64: FieldType = FieldType::INT64;

fn start(data_dir: &Path, listen: &str) -> Daemon {
    Daemon::start(&["--data-dir", data_dir.to_str().unwrap()], listen)
}

/// Opens the data directory's log, while no process has it open.
async fn open_log(data_dir: &Path) -> EmbeddedLog {
    let options = EmbeddedOptions::new(data_dir);
    EmbeddedLog::open(Arc::new(RealDisk), Arc::new(SystemClock), options).await.unwrap()
}

async fn read_all(log: &EmbeddedLog, at: PartitionRef) -> Vec<LogRecord> {
    let limit = ReadLimit { bytes_max: 1 << 20, wait_max: Duration::ZERO };
    let mut records: Vec<LogRecord> = Vec::new();
    loop {
        let from = records.last().map_or(Offset(0), |last| last.offset.next());
        let read = log.read(at, from, limit).await.unwrap().records;
        if read.is_empty() {
            return records;
        }
        records.extend(read);
    }
}

/// Returns a key of this partition, and one of the other.
fn keys_of(partition: PartitionId) -> (Key, Key) {
    let keys = || (0..).map(|number: u32| format!("key-{number}"));
    let is_here =
        |key: &String| partition_of(key.as_bytes(), PartitionCount(PARTITIONS)) == partition;
    let here = keys().find(is_here).unwrap();
    let elsewhere = keys().find(|key| !is_here(key)).unwrap();
    (Key::plain(here.as_bytes()).unwrap(), Key::plain(elsewhere.as_bytes()).unwrap())
}

fn entry(log_id: LogId, key: Key, sequence: u64, value: Value) -> Bytes {
    let op = FieldOp::Set(Some(value));
    let change = Change {
        sequence: Sequence(sequence),
        key,
        verb: Verb::Upsert,
        fields: vec![FieldChange { field: FieldId(1), op, ttl_us: None }],
        condition: None,
        ttl_us: None,
    };
    let batch = ClientBatch { client: ClientId(77), changes: vec![change] };
    let body = EntryBody::Changes(vec![batch]);
    encode_entry(&Entry::original(log_id, SchemaVersion(1), body)).unwrap()
}

/// Records that every replica skips: garbage, a flipped bit, and well-formed ones that are wrong.
fn wrong_records(log_id: LogId, partition: PartitionId, round: u64) -> Vec<Bytes> {
    let (here, elsewhere) = keys_of(partition);
    let mut flipped = entry(log_id, here.clone(), round, Value::Int64(1)).to_vec();
    *flipped.last_mut().unwrap() ^= 1;
    vec![
        Bytes::from(format!("garbage of round {round}")),
        Bytes::new(),
        flipped.into(),
        entry(log_id, elsewhere, round, Value::Int64(2)),
        entry(log_id, here.clone(), round, Value::String("no number".to_owned())),
        entry(LogId(log_id.0 ^ 2), here, round, Value::Int64(3)),
    ]
}

/// Records that were appended to a partition and that replicas skip.
#[derive(Default)]
struct PlantedRecords(Vec<(Offset, Bytes)>);

impl PlantedRecords {
    async fn plant(&mut self, log: &EmbeddedLog, at: PartitionRef, round: u64) {
        let first = log.read(at, Offset(0), ReadLimit { bytes_max: 1, wait_max: Duration::ZERO });
        let log_id = decode_entry(&first.await.unwrap().records[0].entry).unwrap().log_id;
        for record in wrong_records(log_id, at.partition, round) {
            let appended = log.append(at, record.clone()).await.unwrap();
            self.0.push((appended.offset, record));
        }
        // The entry after the skipped records is applied.
        let (here, _) = keys_of(at.partition);
        log.append(at, entry(log_id, here, 1_000 + round, Value::Int64(round as i64)))
            .await
            .unwrap();
    }

    fn assert_copied_once(&self, letters: &[DeadLetter]) {
        let found: Vec<_> = letters
            .iter()
            .map(|letter| (letter.offset, Bytes::from(letter.entry.clone())))
            .collect();
        assert_eq!(found, self.0);
        assert!(letters.iter().all(DeadLetter::is_whole));
    }
}

async fn list_all(client: &Client, partition: PartitionId, page: u32) -> Vec<DeadLetter> {
    let (mut letters, mut cursor) = (Vec::new(), Vec::new());
    loop {
        let page = client.dead_letters("users", partition, &cursor, page).await.unwrap();
        if page.letters.is_empty() {
            return letters;
        }
        letters.extend(page.letters);
        cursor = page.cursor;
    }
}

async fn await_letters(
    client: &Client,
    partition: PartitionId,
    (count, page): (usize, u32),
) -> Vec<DeadLetter> {
    let wait = async {
        loop {
            let letters = list_all(client, partition, page).await;
            if letters.len() >= count {
                return letters;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.expect("the dead letters were not copied")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_skipped_record_is_copied_once_despite_kills() {
    let data = tempfile::tempdir().unwrap();
    let mut daemon = start(data.path(), "127.0.0.1:0");
    let address = daemon.address.clone();
    let client = Client::connect(&address, ClientOptions::default()).await.unwrap();
    let spec =
        StoreSpec::documents("users", KeyType::String).partitions(PARTITIONS).field("count", INT64);
    let store = client.create_store(&spec).await.unwrap().definition().store;
    let partitions = PartitionCount(PARTITIONS).partitions();
    let ats: Vec<_> = partitions.map(|partition| PartitionRef { store, partition }).collect();
    let mut planted: Vec<_> = ats.iter().map(|_| PlantedRecords::default()).collect();
    for round in 1..=5 {
        daemon.kill();
        let log = open_log(data.path()).await;
        for (at, planted) in ats.iter().zip(&mut planted) {
            planted.plant(&log, *at, round).await;
        }
        log.close().await;
        daemon = start(data.path(), &address);
        // The process is killed while it copies, at another point each time.
        tokio::time::sleep(Duration::from_millis(9 * round)).await;
    }
    let reader = client.reader(ReaderOptions::new("users")).await.unwrap();
    reader.await_ready(LONG).await.unwrap();
    for (at, planted) in ats.iter().zip(&planted) {
        let letters = await_letters(&client, at.partition, (planted.0.len(), 4)).await;
        planted.assert_copied_once(&letters);
        let codes: Vec<_> = letters[..6].iter().map(|letter| letter.reason.code()).collect();
        let mut expected = [ErrorCode::Corrupt; 6];
        expected[4] = ErrorCode::InvalidArgument;
        assert_eq!(codes, expected, "{:?}", letters[4].reason);
        let (key, _) = keys_of(at.partition);
        let key = std::str::from_utf8(key.as_bytes()).unwrap();
        let document = reader.get_document(key).unwrap().unwrap();
        assert_eq!(document.value(FieldId(1)), Some(&Value::Int64(5)), "what stood behind them");
    }
    daemon.kill();
    assert_no_repeat_in_the_log(data.path(), store, &planted).await;
}

/// Asserts that the raw dead-letter log holds each position once, so no reader had to drop a
/// duplicate.
async fn assert_no_repeat_in_the_log(data_dir: &Path, store: StoreId, planted: &[PlantedRecords]) {
    let log = open_log(data_dir).await;
    let letters = store.dead_letters().unwrap();
    for (partition, planted) in PartitionCount(PARTITIONS).partitions().zip(planted) {
        let at = PartitionRef { store: letters, partition };
        let mut found = Vec::new();
        for record in read_all(&log, at).await {
            match decode_entry(&record.entry).unwrap().body {
                EntryBody::DeadLetters(letters) => found.extend(letters),
                EntryBody::LogHeader => {}
                other => panic!("a dead-letter log holds {other:?}"),
            }
        }
        planted.assert_copied_once(&found);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_beyond_the_queue_are_copied_by_another_fold() {
    const RECORDS: usize = forebay_core::limits::DEAD_LETTERS_WAITING_MAX + 100;
    let data = tempfile::tempdir().unwrap();
    let daemon = start(data.path(), "127.0.0.1:0");
    let address = daemon.address.clone();
    let client = Client::connect(&address, ClientOptions::default()).await.unwrap();
    let spec = StoreSpec::documents("users", KeyType::String).partitions(1).field("count", INT64);
    let store = client.create_store(&spec).await.unwrap().definition().store;
    daemon.kill();
    let log = open_log(data.path()).await;
    let at = PartitionRef { store, partition: PartitionId(0) };
    let appends = (0..RECORDS).map(|number| log.append(at, Bytes::from(format!("{number}"))));
    let appended = futures::future::try_join_all(appends).await.unwrap();
    let last = appended.iter().map(|appended| appended.offset).max().unwrap();
    log.close().await;
    let daemon = start(data.path(), &address);
    let letters = await_letters(&client, PartitionId(0), (RECORDS, 1_000)).await;
    assert_eq!(letters.len(), RECORDS);
    assert!(letters.is_sorted_by(|one, other| one.offset < other.offset));
    assert_eq!(letters.last().unwrap().offset, last);
    // The reopened replica has its other duties, too.
    let written = client.store("users").await.unwrap();
    let outcome = written.upsert("ada").set("count", 1).if_absent().send().await.unwrap();
    assert_eq!(outcome.result, forebay::writes::WriteResult::Applied);
    daemon.terminate();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listing_refuses_invalid_requests_and_a_deleted_store_has_no_dead_letters() {
    let data = tempfile::tempdir().unwrap();
    let daemon = start(data.path(), "127.0.0.1:0");
    let address = daemon.address.clone();
    let client = Client::connect(&address, ClientOptions::default()).await.unwrap();
    let spec =
        StoreSpec::documents("users", KeyType::String).partitions(PARTITIONS).field("count", INT64);
    let store = client.create_store(&spec).await.unwrap().definition().store;
    let none = client.dead_letters("users", PartitionId(0), &[], 0).await.unwrap();
    assert_eq!(none, forebay::status::DeadLetterPage::default());
    daemon.kill();
    let log = open_log(data.path()).await;
    let at = PartitionRef { store, partition: PartitionId(1) };
    log.append(at, Bytes::from_static(b"garbage")).await.unwrap();
    log.close().await;
    let daemon = start(data.path(), &address);
    await_letters(&client, PartitionId(1), (1, 0)).await;
    let code = async |store: &str, partition: u32, cursor: &[u8]| {
        let page = client.dead_letters(store, PartitionId(partition), cursor, 0).await;
        page.unwrap_err().code()
    };
    assert_eq!(code("nobody", 0, &[]).await, ErrorCode::NotFound);
    assert_eq!(code("users", PARTITIONS, &[]).await, ErrorCode::InvalidArgument);
    assert_eq!(code("users", 1, b"\xffno cursor").await, ErrorCode::InvalidArgument);
    let foreign =
        forebay_wire::dead_letter::Cursor { log_id: LogId(5), offset: Offset(0), last: None };
    assert_eq!(code("users", 1, &foreign.encode()).await, ErrorCode::TokenLost);
    client.delete_store("users").await.unwrap();
    assert_eq!(code("users", 1, &[]).await, ErrorCode::NotFound);
    daemon.kill();
    let log = open_log(data.path()).await;
    let letters = PartitionRef { store: store.dead_letters().unwrap(), ..at };
    let gone = log.bounds(letters).await.unwrap_err();
    assert_eq!(gone.code(), ErrorCode::NotFound);
}
