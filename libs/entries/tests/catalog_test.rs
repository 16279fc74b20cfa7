//! The catalog follower over a log that misbehaves.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::ErrorCode;
use forebay_core::catalog::ControlRecord;
use forebay_core::change::{Entry, EntryBody};
use forebay_core::clock::{ManualClock, Timestamp};
use forebay_core::entropy::SeededEntropy;
use forebay_core::id::{LogId, Offset, PartitionCount, PartitionRef, SchemaVersion, StoreId};
use forebay_core::key::KeyType;
use forebay_core::schema::{Alteration, Definition, FieldSpec, StoreSpec};
use forebay_core::value::FieldType;
use forebay_entries::CatalogFollower;
use forebay_log::faulty::{FaultRates, FaultyLog};
use forebay_log::{AppendReceipt, Bounds, ChangeLog, MemoryLog, ReadLimit, Records};
use forebay_wire::entry::encode_entry;
use parking_lot::RwLock;

const OURS: LogId = LogId(0x0195);
const WAIT: Duration = Duration::from_secs(60);

fn memory() -> MemoryLog {
    MemoryLog::new(Arc::new(ManualClock::at(Timestamp::from_micros(1))))
}

fn follow(log: Arc<dyn ChangeLog>) -> CatalogFollower {
    CatalogFollower::start(log, Arc::new(SeededEntropy::new(1)))
}

fn store(id: u64, name: &str) -> Definition {
    StoreSpec::documents(name, KeyType::String).partitions(4).define(StoreId(id)).unwrap()
}

fn entry(log_id: LogId, body: EntryBody) -> Bytes {
    encode_entry(&Entry::original(log_id, SchemaVersion(0), body)).unwrap()
}

fn define(log_id: LogId, definition: &Definition) -> Bytes {
    let record = ControlRecord::Define(Box::new(definition.clone()));
    entry(log_id, EntryBody::Control(record))
}

async fn append(log: &dyn ChangeLog, entry: Bytes) -> Offset {
    log.append(PartitionRef::CONTROL, entry).await.unwrap().offset
}

fn names(follower: &CatalogFollower) -> Vec<String> {
    follower.catalog().active_stores().map(|at| at.definition.name.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn catalog_folds_a_trimmed_log_from_its_start() {
    let log = Arc::new(memory());
    append(&*log, Bytes::from_static(b"a stranger's")).await;
    let header = append(&*log, entry(OURS, EntryBody::LogHeader)).await;
    log.trim(PartitionRef::CONTROL, header).await.unwrap();
    append(&*log, define(OURS, &store(1, "users"))).await;
    let follower = follow(log);
    follower.definition(StoreId(1), SchemaVersion(1), WAIT).await.unwrap();
    assert_eq!(names(&follower), ["users"]);
}

#[tokio::test(start_paused = true)]
async fn definitions_are_folded_awaited_and_announced() {
    let log = Arc::new(memory());
    let follower = follow(log.clone());
    append(&*log, entry(OURS, EntryBody::LogHeader)).await;
    let users = store(1, "users");
    let change = follower.changes();
    let definition = follower.definition(StoreId(1), SchemaVersion(1), WAIT);
    let (offset, definition, change) =
        tokio::join!(append(&*log, define(OURS, &users)), definition, change);
    assert_eq!(*definition.unwrap().definition, users);
    assert!(change);
    follower.wait_applied(offset.next(), WAIT).await.unwrap();
    assert_eq!(follower.offset_applied(), Offset(2));
    let field = FieldSpec::new("age", FieldType::INT32);
    let altered_users = users.altered(&[Alteration::AddField(field)]).unwrap();
    append(&*log, define(OURS, &altered_users)).await;
    let at = follower.definition(StoreId(1), SchemaVersion(2), WAIT).await.unwrap();
    assert!(at.definition.field("age").is_some());
    let result = follower.definition(StoreId(1), SchemaVersion(3), WAIT).await;
    assert_eq!(result.unwrap_err().code(), ErrorCode::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn damaged_and_foreign_records_are_skipped() {
    let log = Arc::new(memory());
    append(&*log, Bytes::from_static(b"no entry at all")).await;
    append(&*log, entry(OURS, EntryBody::LogHeader)).await;
    append(&*log, define(LogId(0xbad), &store(1, "foreign"))).await;
    let mut damaged_entry = define(OURS, &store(2, "damaged")).to_vec();
    *damaged_entry.last_mut().unwrap() ^= 1;
    append(&*log, damaged_entry.into()).await;
    let last = append(&*log, define(OURS, &store(3, "users"))).await;
    let follower = follow(log);
    follower.wait_applied(last.next(), WAIT).await.unwrap();
    assert_eq!(names(&follower), ["users"]);
}

#[tokio::test(start_paused = true)]
async fn newer_record_halts_the_catalog_with_upgrade_needed() {
    let log = Arc::new(memory());
    append(&*log, entry(OURS, EntryBody::LogHeader)).await;
    append(&*log, define(OURS, &store(1, "users"))).await;
    let mut newer = define(OURS, &store(2, "later")).to_vec();
    newer[4] = 2;
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&newer[..20]), &newer[24..]);
    newer[20..24].copy_from_slice(&checksum.to_le_bytes());
    append(&*log, newer.into()).await;
    append(&*log, define(OURS, &store(3, "after"))).await;
    let follower = follow(log);
    let error = follower.wait_applied(Offset(4), WAIT).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::UpgradeNeeded);
    // The follower continues to serve the records before the halt.
    assert_eq!((names(&follower), follower.offset_applied()), (vec!["users".into()], Offset(2)));
}

#[tokio::test(start_paused = true)]
async fn catalog_survives_errors_of_the_log() {
    let rates = FaultRates {
        read_refused: 5_000,
        read_delayed: 5_000,
        bounds_refused: 5_000,
        delay_max: Duration::from_millis(500),
        ..FaultRates::default()
    };
    let log = FaultyLog::new(memory(), Arc::new(SeededEntropy::new(2)), rates);
    let log = Arc::new(log);
    append(&*log, entry(OURS, EntryBody::LogHeader)).await;
    let follower = follow(log.clone());
    for id in 1..=30 {
        append(log.inner(), define(OURS, &store(id, &format!("store-{id:02}")))).await;
        follower.definition(StoreId(id), SchemaVersion(1), Duration::from_secs(600)).await.unwrap();
    }
    assert_eq!(names(&follower).len(), 30);
    let counts = log.counts().by_name();
    for name in ["read_refused", "read_delayed", "bounds_refused"] {
        assert!(counts.iter().any(|(fault, count)| *fault == name && *count > 0), "no {name}");
    }
}

/// A log that a test can replace with another one, as if a service came back with other data.
struct Replaceable {
    current: RwLock<Arc<MemoryLog>>,
    is_down: RwLock<bool>,
}

impl Replaceable {
    fn current(&self) -> forebay_core::Result<Arc<MemoryLog>> {
        if *self.is_down.read() {
            return Err(forebay_core::Error::unavailable("down; try again"));
        }
        Ok(self.current.read().clone())
    }
}

#[async_trait::async_trait]
impl ChangeLog for Replaceable {
    async fn create(&self, store: StoreId, count: PartitionCount) -> forebay_core::Result<()> {
        self.current()?.create(store, count).await
    }

    async fn delete(&self, store: StoreId) -> forebay_core::Result<()> {
        self.current()?.delete(store).await
    }

    async fn append(&self, at: PartitionRef, entry: Bytes) -> forebay_core::Result<AppendReceipt> {
        self.current()?.append(at, entry).await
    }

    async fn read(
        &self,
        at: PartitionRef,
        from: Offset,
        limit: ReadLimit,
    ) -> forebay_core::Result<Records> {
        self.current()?.read(at, from, limit).await
    }

    async fn bounds(&self, at: PartitionRef) -> forebay_core::Result<Bounds> {
        self.current()?.bounds(at).await
    }

    async fn trim(&self, at: PartitionRef, before: Offset) -> forebay_core::Result<()> {
        self.current()?.trim(at, before).await
    }
}

/// Proves that the follower folds a replaced log from its start, whether the new log is shorter, as
/// long, or longer than the old one.
#[tokio::test(start_paused = true)]
async fn catalog_folds_a_replaced_log_from_its_start() {
    for entries in 0..6_u64 {
        let first = Arc::new(memory());
        append(&*first, entry(OURS, EntryBody::LogHeader)).await;
        for id in 1..=2 {
            append(&*first, define(OURS, &store(id, &format!("old-{id}")))).await;
        }
        let log =
            Arc::new(Replaceable { current: RwLock::new(first), is_down: RwLock::new(false) });
        let follower = follow(log.clone());
        follower.wait_applied(Offset(3), WAIT).await.unwrap();
        assert_eq!(names(&follower), ["old-1", "old-2"]);
        *log.is_down.write() = true;
        tokio::time::sleep(Duration::from_secs(10)).await;
        let second = Arc::new(memory());
        let second_log_id = LogId(0x0777);
        append(&*second, Bytes::from_static(b"damage before the first entry")).await;
        append(&*second, entry(second_log_id, EntryBody::LogHeader)).await;
        for id in 0..entries {
            append(&*second, define(second_log_id, &store(100 + id, &format!("new-{id}")))).await;
        }
        *log.current.write() = second;
        *log.is_down.write() = false;
        tokio::time::sleep(Duration::from_secs(10)).await;
        let expected: Vec<_> = (0..entries).map(|id| format!("new-{id}")).collect();
        assert_eq!(names(&follower), expected);
        assert_eq!(follower.offset_applied(), Offset(2 + entries));
    }
}
