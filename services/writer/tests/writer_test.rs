//! The writer over a log in memory: the requests that it refuses, the entries that it appends, and
//! races of two writers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_core::catalog::ControlRecord;
use forebay_core::change::{
    Change, ClientBatch, Condition, Entry, EntryBody, FieldChange, FieldOp, Verb,
};
use forebay_core::clock::{ManualClock, SystemClock, Timestamp};
use forebay_core::entropy::SeededEntropy;
use forebay_core::id::{
    ClientId, FieldId, Offset, PartitionCount, PartitionId, PartitionRef, SchemaVersion, Sequence,
    StoreId,
};
use forebay_core::key::{Key, KeyType};
use forebay_core::partition::partition_of;
use forebay_core::schema::{Alteration, Definition, FieldSpec, StoreSpec};
use forebay_core::value::{FieldType, Value};
use forebay_core::versions::VersionNumber;
use forebay_core::{Error, ErrorCode, Result};
use forebay_entries::find_log_id;
use forebay_log::{AppendReceipt, Bounds, ChangeLog, MemoryLog, ReadLimit, Records};
use forebay_runtime::ServiceContext;
use forebay_wire::entry::{decode_entry, encode_entry};
use forebay_wire::outcome::ChangeOutcome;
use forebay_writer_service::{ClientRouting, NoOutcomes, Writer};
use tokio::sync::Semaphore;

const INT64: FieldType = FieldType::INT64;
const COUNT: FieldId = FieldId(1);
const WAIT: Duration = Duration::from_secs(1);
/// The logs to which documents move in a repartition.
const MOVED: StoreId = StoreId(99);

fn memory() -> Arc<MemoryLog> {
    Arc::new(MemoryLog::new(Arc::new(ManualClock::at(Timestamp::from_micros(1)))))
}

fn writer(log: Arc<dyn ChangeLog>, seed: u64) -> Writer {
    let entropy = Arc::new(SeededEntropy::new(seed));
    let context = ServiceContext::start(log, Arc::new(SystemClock), entropy);
    Writer::new(context, Arc::new(NoOutcomes))
}

fn spec(name: &str) -> StoreSpec {
    StoreSpec::documents(name, KeyType::String).partitions(4).field("count", INT64)
}

fn increment(sequence: u64, key: &str) -> Change {
    let op = FieldOp::Increment(Value::Int64(1));
    Change {
        sequence: Sequence(sequence),
        key: Key::plain(key.as_bytes()).unwrap(),
        verb: Verb::Upsert,
        fields: vec![FieldChange { field: COUNT, op, ttl_us: None }],
        condition: None,
        ttl_us: None,
    }
}

fn batch(changes: Vec<Change>) -> ClientBatch {
    ClientBatch { client: ClientId(1), changes }
}

async fn write(
    writer: &Writer,
    definition: &Definition,
    changes: Vec<Change>,
) -> Result<Vec<ChangeOutcome>> {
    let (store, version) = (definition.store, definition.version);
    let (_, results) =
        writer.write(store, version, batch(changes), ClientRouting::default(), WAIT).await?;
    Ok(results.into_iter().map(|result| result.outcome).collect())
}

/// Returns every change in the logs, partition by partition, in order.
async fn changes(log: &dyn ChangeLog, logs: StoreId, partitions: PartitionCount) -> Vec<Change> {
    let mut changes = Vec::new();
    for partition in partitions.partitions() {
        let at = PartitionRef { store: logs, partition };
        let limit = ReadLimit { bytes_max: usize::MAX, wait_max: Duration::ZERO };
        for record in log.read(at, Offset(0), limit).await.unwrap().records {
            let EntryBody::Changes(batches) = decode_entry(&record.entry).unwrap().body else {
                continue;
            };
            for change in batches.into_iter().flat_map(|batch| batch.changes) {
                assert_eq!(partition_of(change.key.as_bytes(), partitions), partition);
                changes.push(change);
            }
        }
    }
    changes
}

/// Returns how often the log of a store holds each key.
async fn count_keys(log: &dyn ChangeLog, store: StoreId) -> BTreeMap<Vec<u8>, usize> {
    let mut counts = BTreeMap::new();
    for change in changes(log, store, PartitionCount(4)).await {
        *counts.entry(change.key.as_bytes().to_vec()).or_default() += 1;
    }
    counts
}

#[tokio::test]
async fn batch_over_partitions_answers_in_order() {
    let log = memory();
    let writer = writer(log.clone(), 1);
    let created = writer.create_store(&spec("users")).await.unwrap();
    let mut sequences = BTreeMap::<PartitionId, u64>::new();
    let changes: Vec<_> = (0..100)
        .map(|number| {
            let key = format!("user-{number}");
            let partition = partition_of(key.as_bytes(), PartitionCount(4));
            let sequence = sequences.entry(partition).or_default();
            *sequence += 1;
            increment(*sequence, &key)
        })
        .collect();
    let (store, version) = (created.definition.store, created.definition.version);
    let (token, results) =
        writer.write(store, version, batch(changes), ClientRouting::default(), WAIT).await.unwrap();
    assert!(results.iter().all(|result| result.outcome == ChangeOutcome::Appended));
    assert_eq!(token.positions.len(), 4);
    let counts = count_keys(log.as_ref(), store).await;
    assert_eq!(counts.len(), 100);
    assert!(counts.values().all(|times| *times == 1));
}

#[tokio::test]
async fn invalid_writes_are_refused_and_nothing_is_appended() {
    let log = memory();
    let writer = writer(log.clone(), 1);
    let created = writer.create_store(&spec("users")).await.unwrap();
    let definition = &created.definition;
    let mut wrong_type = increment(2, "b");
    wrong_type.fields[0].op = FieldOp::Set(Some(Value::String("x".to_owned())));
    let mut unknown_field = increment(2, "b");
    unknown_field.fields[0].field = FieldId(9);
    let mut unversioned = increment(2, "b");
    unversioned.condition = Some(Condition::IfVersion(Default::default()));
    let no_sequence = increment(0, "b");
    for bad in [wrong_type, unknown_field, unversioned, no_sequence] {
        let error = write(&writer, definition, vec![increment(1, "a"), bad]).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
        assert_eq!(error.context().store.as_deref(), Some("users"));
    }
    let error = write(&writer, definition, Vec::new()).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    let unknown = writer
        .write(StoreId(5), SchemaVersion(1), batch(vec![]), ClientRouting::default(), WAIT)
        .await;
    assert_eq!(unknown.unwrap_err().code(), ErrorCode::NotFound);
    assert!(count_keys(log.as_ref(), definition.store).await.is_empty());
}

#[tokio::test]
async fn name_is_created_once_and_an_overtaken_alteration_is_a_conflict() {
    let log = memory();
    let (writer, other) = (writer(log.clone(), 1), writer(log, 2));
    let users = spec("users");
    let (first, second) = tokio::join!(writer.create_store(&users), other.create_store(&users));
    let winners = [&first, &second].into_iter().filter(|created| created.is_ok()).count();
    assert_eq!(winners, 1);
    let loser = first.err().or(second.err()).unwrap();
    assert_eq!(loser.code(), ErrorCode::Conflict);
    let add = |name: &str| [Alteration::AddField(FieldSpec::new(name, INT64))];
    let age = add("age");
    let city = add("city");
    let from = SchemaVersion(1);
    let (first, second) = tokio::join!(
        writer.alter_store("users", from, &age),
        other.alter_store("users", from, &city)
    );
    assert_ne!(first.is_ok(), second.is_ok());
    let loser = first.err().or(second.err()).unwrap();
    assert_eq!(loser.code(), ErrorCode::Conflict);
    assert!(loser.message().contains("version 1") && loser.message().contains("at 2"), "{loser}");
}

#[tokio::test]
async fn older_client_can_write_after_a_field_is_widened() {
    let log = memory();
    let writer = writer(log.clone(), 1);
    let int32 = FieldType::INT32;
    let spec = StoreSpec::documents("users", KeyType::String).partitions(4).field("count", int32);
    let created = writer.create_store(&spec).await.unwrap();
    let widen = Alteration::WidenField { name: "count".to_owned(), to: INT64 };
    writer.alter_store("users", SchemaVersion(0), &[widen]).await.unwrap();
    let mut change = increment(1, "a");
    change.fields[0].op = FieldOp::Increment(Value::Int32(7));
    let outcomes = write(&writer, &created.definition, vec![change]).await.unwrap();
    assert_eq!(outcomes, [ChangeOutcome::Appended]);
    let at = PartitionRef {
        store: created.definition.store,
        partition: partition_of(b"a", PartitionCount(4)),
    };
    let limit = ReadLimit { bytes_max: usize::MAX, wait_max: Duration::ZERO };
    let records = log.read(at, Offset(0), limit).await.unwrap().records;
    let last = decode_entry(&records.last().unwrap().entry).unwrap();
    assert_eq!(last.schema_version, SchemaVersion(2));
    let EntryBody::Changes(batches) = last.body else { panic!("no changes") };
    let op = &batches[0].changes[0].fields[0].op;
    assert_eq!(*op, FieldOp::Increment(Value::Int64(7)));
}

#[tokio::test]
async fn older_client_can_insert_after_a_column_with_a_default_is_added() {
    let log = memory();
    let writer = writer(log.clone(), 1);
    let spec = StoreSpec::stream("orders", KeyType::String).partitions(4).field("count", INT64);
    let created = writer.create_store(&spec).await.unwrap();
    let default = Some(Value::Int64(9));
    let field = FieldSpec { default, ..FieldSpec::new("rank", INT64) };
    writer.alter_store("orders", SchemaVersion(0), &[Alteration::AddField(field)]).await.unwrap();
    let set = FieldOp::Set(Some(Value::Int64(1)));
    let mut event = Change { verb: Verb::Insert, ..increment(1, "a") };
    event.fields[0].op = set.clone();
    let outcomes = write(&writer, &created.definition, vec![event]).await.unwrap();
    assert_eq!(outcomes, [ChangeOutcome::Appended]);
    let logged = changes(log.as_ref(), created.definition.store, PartitionCount(4)).await;
    let ops: Vec<_> = logged[0].fields.iter().map(|change| change.op.clone()).collect();
    assert_eq!(ops, [set, FieldOp::Set(Some(Value::Int64(9)))]);
}

#[tokio::test]
async fn conditional_change_without_a_replica_is_unknown_with_its_position() {
    let writer = writer(memory(), 1);
    let created = writer.create_store(&spec("users")).await.unwrap();
    let mut change = increment(1, "a");
    change.condition = Some(Condition::IfAbsent);
    let (store, version) = (created.definition.store, created.definition.version);
    let (token, results) = writer
        .write(store, version, batch(vec![change]), ClientRouting::default(), WAIT)
        .await
        .unwrap();
    assert!(results[0].position.is_some());
    let ChangeOutcome::Failed(error) = &results[0].outcome else { panic!("{results:?}") };
    assert_eq!(error.code(), ErrorCode::UnknownOutcome);
    assert_eq!(token.positions.len(), 1);
}

/// A log whose appends to data partitions wait for permits.
struct PermitLog(Arc<MemoryLog>, Arc<Semaphore>);

#[async_trait]
impl ChangeLog for PermitLog {
    async fn create(&self, store: StoreId, partitions: PartitionCount) -> Result<()> {
        self.0.create(store, partitions).await
    }

    async fn delete(&self, store: StoreId) -> Result<()> {
        self.0.delete(store).await
    }

    async fn append(&self, at: PartitionRef, entry: Bytes) -> Result<AppendReceipt> {
        let is_change = decode_entry(&entry)
            .map_err(|_| Error::internal("the writer appends entries"))?
            .change_count()
            > 0;
        if is_change {
            self.1.acquire().await.unwrap().forget();
        }
        self.0.append(at, entry).await
    }

    async fn read(&self, at: PartitionRef, from: Offset, limit: ReadLimit) -> Result<Records> {
        self.0.read(at, from, limit).await
    }

    async fn bounds(&self, at: PartitionRef) -> Result<Bounds> {
        self.0.bounds(at).await
    }

    async fn trim(&self, at: PartitionRef, before: Offset) -> Result<()> {
        self.0.trim(at, before).await
    }
}

/// A log on a disk that has no space for another file while it is full.
struct Full(Arc<MemoryLog>, AtomicBool);

#[async_trait]
impl ChangeLog for Full {
    async fn create(&self, store: StoreId, partitions: PartitionCount) -> Result<()> {
        if self.1.load(Ordering::Relaxed) {
            return Err(Error::limit_exceeded("the disk is full; free some of it", 1, 2));
        }
        self.0.create(store, partitions).await
    }

    async fn delete(&self, store: StoreId) -> Result<()> {
        self.0.delete(store).await
    }

    async fn append(&self, at: PartitionRef, entry: Bytes) -> Result<AppendReceipt> {
        self.0.append(at, entry).await
    }

    async fn read(&self, at: PartitionRef, from: Offset, limit: ReadLimit) -> Result<Records> {
        self.0.read(at, from, limit).await
    }

    async fn bounds(&self, at: PartitionRef) -> Result<Bounds> {
        self.0.bounds(at).await
    }

    async fn trim(&self, at: PartitionRef, before: Offset) -> Result<()> {
        self.0.trim(at, before).await
    }
}

/// Proves that a full disk between a definition and the creation of its logs does not leave a store
/// to which nobody can ever write.
#[tokio::test(start_paused = true)]
async fn half_created_store_is_finished_once_the_log_has_space() {
    let log = Arc::new(Full(memory(), AtomicBool::new(true)));
    let writer = Arc::new(writer(log.clone(), 1));
    writer.start_repairs().await.unwrap();
    let error = writer.create_store(&spec("users")).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::LimitExceeded, "{error}");
    let schema = writer.describe_store("users", SchemaVersion(0)).await.unwrap();
    let outcomes = write(&writer, &schema.definition, vec![increment(1, "a")]).await.unwrap();
    let ChangeOutcome::Failed(error) = &outcomes[0] else { panic!("{outcomes:?}") };
    assert_eq!(error.code(), ErrorCode::Unavailable, "{error}");
    log.1.store(false, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let outcomes = write(&writer, &schema.definition, vec![increment(1, "a")]).await.unwrap();
    assert_eq!(outcomes, [ChangeOutcome::Appended]);
}

#[tokio::test(start_paused = true)]
async fn store_half_created_by_another_writer_is_finished_on_first_use() {
    let memory = memory();
    let other = writer(Arc::new(Full(memory.clone(), AtomicBool::new(true))), 1);
    let writer = Arc::new(writer(memory.clone(), 2));
    writer.start_repairs().await.unwrap();
    other.create_store(&spec("users")).await.unwrap_err();
    drop(other);
    let schema = writer.describe_store("users", SchemaVersion(0)).await.unwrap();
    let definition = &schema.definition;
    let at = PartitionRef { store: definition.store, partition: PartitionId(3) };
    assert_eq!(writer.log_id(at).await.unwrap_err().code(), ErrorCode::Unavailable);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let outcomes = write(&writer, definition, vec![increment(1, "a")]).await.unwrap();
    assert_eq!(outcomes, [ChangeOutcome::Appended]);
    // A log that the writer has seen is not created again if it is missing.
    memory.delete(definition.store).await.unwrap();
    for _ in 0..2 {
        let outcomes = write(&writer, definition, vec![increment(2, "a")]).await.unwrap();
        let ChangeOutcome::Failed(error) = &outcomes[0] else { panic!("{outcomes:?}") };
        assert_eq!(error.code(), ErrorCode::NotFound, "{error}");
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn full_queue_applies_typed_back_pressure_and_never_hangs() {
    let writer = Arc::new(writer(Arc::new(PermitLog(memory(), Arc::new(Semaphore::new(0)))), 1));
    let created = writer.create_store(&spec("users")).await.unwrap();
    let mut refused = None;
    for sequence in 1..10_000 {
        let (writer, created) = (Arc::clone(&writer), Arc::clone(&created));
        let wait = tokio::spawn(async move {
            write(&writer, &created.definition, vec![increment(sequence, "a")]).await
        });
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        if wait.is_finished() {
            refused = Some(wait.await.unwrap().unwrap_err());
            break;
        }
    }
    let refused = refused.expect("the queue is bounded");
    assert_eq!(refused.code(), ErrorCode::LimitExceeded);
    assert!(refused.message().contains("slow down"), "{refused}");
}

#[tokio::test]
async fn recreated_log_is_noticed_before_a_write_is_acknowledged() {
    let log = memory();
    let writer = writer(log.clone(), 1);
    let created = writer.create_store(&spec("users")).await.unwrap();
    let definition = &created.definition;
    for sequence in 1..=3 {
        write(&writer, definition, vec![increment(sequence, "a")]).await.unwrap();
    }
    log.delete(definition.store).await.unwrap();
    log.create(definition.store, definition.partitions).await.unwrap();
    let outcomes = write(&writer, definition, vec![increment(4, "a")]).await.unwrap();
    let ChangeOutcome::Failed(error) = &outcomes[0] else { panic!("{outcomes:?}") };
    assert_eq!(error.code(), ErrorCode::UnknownOutcome);
    let outcomes = write(&writer, definition, vec![increment(4, "a")]).await.unwrap();
    assert_eq!(outcomes, [ChangeOutcome::Appended]);
}

/// Returns the definition of a store whose documents are being moved to two new partitions.
async fn create_moving_store(writer: &Writer) -> Definition {
    let created = writer.create_store(&spec("users")).await.unwrap();
    let start_offsets = vec![Offset(1); 4];
    created.definition.with_repartitioned_version(MOVED, PartitionCount(2), start_offsets).unwrap()
}

/// Appends a definition to the control log, as the snapshot service does for a repartition.
async fn define(log: &dyn ChangeLog, definition: &Definition) {
    let record = ControlRecord::Define(Box::new(definition.clone()));
    let at = PartitionRef::CONTROL;
    let log_id = find_log_id(log, at, log.bounds(at).await.unwrap()).await.unwrap().unwrap();
    let entry = Entry::original(log_id, SchemaVersion(0), EntryBody::Control(record));
    log.append(at, encode_entry(&entry).unwrap()).await.unwrap();
}

/// Proves that writes wait until the repartition is complete: acknowledged changes of the old logs
/// may still be on their way, and a change that is appended before them would be undone.
#[tokio::test(start_paused = true)]
async fn writes_wait_in_order_until_the_old_logs_are_forwarded() {
    let log = memory();
    let writer = Arc::new(writer(log.clone(), 1));
    let definition = create_moving_store(&writer).await;
    log.create(MOVED, PartitionCount(2)).await.unwrap();
    let held_back = definition.with_writes_to(VersionNumber(2)).unwrap();
    let live = held_back.with_live(VersionNumber(2)).unwrap();
    define(&*log, &definition).await;
    let before = write(&writer, &definition, vec![increment(1, "a")]).await.unwrap();
    assert_eq!(before, [ChangeOutcome::Appended]);
    define(&*log, &held_back).await;

    let send = |sequence: u64| {
        let (writer, store, version) = (Arc::clone(&writer), definition.store, held_back.version);
        let changes = batch(vec![increment(sequence, "a")]);
        let routing = ClientRouting { repartition_count: 1, ..ClientRouting::default() };
        tokio::spawn(async move { writer.write(store, version, changes, routing, WAIT).await })
    };
    let too_early = send(1).await.unwrap().unwrap_err();
    assert_eq!(too_early.code(), ErrorCode::Unavailable, "nobody goes on with the move");
    let waiting: Vec<_> = (1..=20).map(send).collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(waiting.iter().all(|write| !write.is_finished()));
    assert!(sequences(&*log).await.is_empty());
    define(&*log, &live).await;
    for write in waiting {
        let (_, results) = write.await.unwrap().unwrap();
        assert_eq!(results[0].outcome, ChangeOutcome::Appended);
    }
    assert_eq!(sequences(&*log).await, (1..=20).collect::<Vec<u64>>());
    let old = write(&writer, &live, vec![increment(2, "a")]).await.unwrap_err();
    assert_eq!(old.code(), ErrorCode::Conflict, "it is numbered for the partitions from before");
}

/// Proves that changes that were queued before the repartition began are refused if they were not
/// appended.
#[tokio::test(start_paused = true)]
async fn queued_changes_are_not_appended_to_abandoned_logs() {
    let (memory, gate) = (memory(), Arc::new(Semaphore::new(0)));
    let writer = Arc::new(writer(Arc::new(PermitLog(memory.clone(), Arc::clone(&gate))), 1));
    let definition = create_moving_store(&writer).await;
    define(&*memory, &definition).await;
    let send = |sequence: u64| {
        let (writer, definition) = (Arc::clone(&writer), definition.clone());
        tokio::spawn(
            async move { write(&writer, &definition, vec![increment(sequence, "a")]).await },
        )
    };
    let first = send(1);
    tokio::time::sleep(Duration::from_millis(1)).await;
    let second = send(2);
    tokio::time::sleep(Duration::from_millis(1)).await;
    define(&*memory, &definition.with_writes_to(VersionNumber(2)).unwrap()).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    gate.add_permits(2);
    assert_eq!(first.await.unwrap().unwrap(), [ChangeOutcome::Appended]);
    let outcomes = second.await.unwrap().unwrap();
    let ChangeOutcome::Failed(error) = &outcomes[0] else { panic!("{outcomes:?}") };
    assert_eq!(error.code(), ErrorCode::Conflict, "{error}");
    assert_eq!(count_keys(&*memory, definition.store).await, BTreeMap::from([(b"a".to_vec(), 1)]));
}

/// Returns the sequences of all changes in the new partitions, in order.
async fn sequences(log: &dyn ChangeLog) -> Vec<u64> {
    let changes = changes(log, MOVED, PartitionCount(2)).await;
    changes.into_iter().map(|change| change.sequence.0).collect()
}
