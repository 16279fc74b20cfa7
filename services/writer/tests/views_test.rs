//! Feature views at the writer: the results of applying declarations, races of two writers, the
//! rules that protect views, and the stores to which views materialize.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_core::catalog::ControlRecord;
use forebay_core::change::{Change, ClientBatch, EntryBody, FieldChange, FieldOp, Verb};
use forebay_core::clock::{ManualClock, SystemClock, Timestamp};
use forebay_core::entropy::SeededEntropy;
use forebay_core::id::{
    ClientId, FieldId, Offset, PartitionCount, PartitionRef, SchemaVersion, Sequence, StoreId,
};
use forebay_core::key::{Key, KeyType};
use forebay_core::schema::{Alteration, Definition, FieldSpec, StoreOptions, StoreSpec};
use forebay_core::value::{FieldType, ScalarType, Value};
use forebay_core::{Error, ErrorCode, Result};
use forebay_log::{AppendReceipt, Bounds, ChangeLog, MemoryLog, ReadLimit, Records};
use forebay_runtime::ServiceContext;
use forebay_wire::entry::decode_entry;
use forebay_writer_service::{ApplyEffect, ClientRouting, NoOutcomes, Writer};
use tokio::sync::Barrier;

const WAIT: Duration = Duration::from_secs(1);
const NEWEST: SchemaVersion = SchemaVersion(0);
const TOTALS: &str = "apiVersion: forebay/v1\nkind: FeatureView\nname: totals\n\
                      source: orders\nentity: [key]\nfeatures: {n: {count: '*'}}\n";

fn scalar(scalar: ScalarType) -> FieldType {
    FieldType::Scalar(scalar)
}

fn memory() -> Arc<MemoryLog> {
    Arc::new(MemoryLog::new(Arc::new(ManualClock::at(Timestamp::from_micros(1)))))
}

fn writer(log: Arc<dyn ChangeLog>, seed: u64) -> Writer {
    let entropy = Arc::new(SeededEntropy::new(seed));
    let context = ServiceContext::start(log, Arc::new(SystemClock), entropy);
    Writer::new(context, Arc::new(NoOutcomes))
}

/// Returns the example of the specification of view declarations.
fn example() -> String {
    let page = include_str!("../../../proto/spec/views.md");
    let (_, example) = page.split_once("```yaml\n").unwrap();
    example.split_once("```").unwrap().0.to_owned()
}

/// Creates a writer with the stream and the store that the example uses.
async fn shop(log: &Arc<MemoryLog>) -> Writer {
    let writer = writer(log.clone(), 1);
    let orders = StoreSpec::stream("orders", KeyType::String)
        .partitions(4)
        .field("price", scalar(ScalarType::Int32))
        .field("device", scalar(ScalarType::String))
        .field("weight", scalar(ScalarType::Float32))
        .field("note", scalar(ScalarType::Int32));
    writer.create_store(&orders).await.unwrap();
    let users = StoreSpec::documents("users", KeyType::String)
        .partitions(2)
        .field("country", scalar(ScalarType::String))
        .field("plan", scalar(ScalarType::String))
        .field("age", scalar(ScalarType::Int32));
    writer.create_store(&users).await.unwrap();
    writer
}

async fn apply(writer: &Writer, declaration: &str) -> (ApplyEffect, Definition) {
    writer.apply_view(declaration, 1, false).await.unwrap()
}

async fn alter(writer: &Writer, name: &str, alteration: Alteration) -> Result<()> {
    writer.alter_store(name, NEWEST, &[alteration]).await.map(drop)
}

fn widen(name: &str, to: ScalarType) -> Alteration {
    Alteration::WidenField { name: name.to_owned(), to: scalar(to) }
}

fn rename(from: &str, to: &str) -> Alteration {
    Alteration::RenameField { from: from.to_owned(), to: to.to_owned() }
}

/// Asserts that a call was refused as invalid, with this text in the message.
fn assert_refused<T: std::fmt::Debug>(result: Result<T>, text: &str) -> Error {
    let error = result.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
    assert!(error.message().contains(text), "{error}");
    error
}

#[tokio::test]
async fn example_view_is_created_left_unchanged_and_altered() {
    let writer = shop(&memory()).await;
    let (effect, dry_run) = writer.apply_view(&example(), 1, true).await.unwrap();
    assert_eq!((effect, dry_run.name.as_str()), (ApplyEffect::Created, "spending"));
    let missing = writer.describe_store("spending", NEWEST).await.unwrap_err();
    assert_eq!(missing.code(), ErrorCode::NotFound);

    let (effect, created) = apply(&writer, &example()).await;
    assert_eq!((effect, created.version), (ApplyEffect::Created, SchemaVersion(1)));
    let view = created.view().unwrap();
    let names: Vec<_> = view.outputs().into_iter().map(|output| output.name).collect();
    for name in ["spent_1h", "price_today_p99", "devices_ever_lower", "latest_1h"] {
        assert!(names.iter().any(|found| found == name), "{name} is not among {names:?}");
    }
    assert_eq!(apply(&writer, &example()).await, (ApplyEffect::Unchanged, created.clone()));

    let extended = example().replace("  spent:", "  dearest: {max: price}\n  spent:");
    let (effect, _) = writer.apply_view(&extended, 1, true).await.unwrap();
    assert_eq!(effect, ApplyEffect::Altered);
    let (effect, next) = apply(&writer, &extended).await;
    assert_eq!((effect, next.version), (ApplyEffect::Altered, SchemaVersion(2)));
    assert_eq!(next.store, created.store);
    let described = writer.describe_store("spending", NEWEST).await.unwrap();
    assert_eq!(*described.definition, next);
    assert_eq!(next.view().unwrap().features.len(), 6);
}

#[tokio::test]
async fn missing_parts_and_forbidden_changes_are_reported_with_line_and_column() {
    let writer = shop(&memory()).await;
    let refused = async |from: &str, to: &str| {
        let text = example().replacen(from, to, 1);
        let error = writer.apply_view(&text, 1, false).await.unwrap_err();
        (error.code(), error.message().to_owned())
    };
    use ErrorCode::{InvalidArgument, NotFound};
    for (from, to, code, place) in [
        ("source: orders", "source: order", NotFound, "line 4, column 9"),
        ("source: orders", "source: users", InvalidArgument, "line 4, column 9"),
        ("price > 0", "prize > 0", NotFound, "line 5, column 8"),
        ("price > 0", "price > 'x'", InvalidArgument, "line 5, column 8"),
        ("store: users", "store: user", NotFound, "line 7, column 5"),
        ("[country, key]", "[country, kee]", NotFound, "line 11, column 19"),
        ("[weight", "[weigth", NotFound, "line 12, column 17"),
        ("{sum: price}", "{sum: device}", InvalidArgument, "line 20, column 3"),
        ("name: spending", "name: ''", InvalidArgument, "line 3, column 7"),
        ("name: spending", "name: users", InvalidArgument, "line 3, column 7"),
        ("name: spending", "name: orders", InvalidArgument, "line 3, column 7"),
    ] {
        let (found, message) = refused(from, to).await;
        assert_eq!(found, code, "{to}: {message}");
        assert!(message.starts_with(&format!("{place}: ")), "{to}: {message}");
    }
    apply(&writer, &example()).await;
    for (from, to, place) in [
        ("price > 0", "price > 1", "line 5, column 8"),
        ("[country, key]", "[key, country]", "line 11, column 10"),
        ("[weight", "[note", "line 12, column 17"),
        ("extra_columns:", "partitions: 8\nextra_columns:", "line 3, column 7"),
    ] {
        let (code, message) = refused(from, to).await;
        assert_eq!(code, InvalidArgument, "{to}: {message}");
        assert!(message.starts_with(&format!("{place}: ")), "{to}: {message}");
    }
}

/// A log that accepts two definitions of a view together: both are built before either is appended.
struct BarrierLog(Arc<MemoryLog>, Barrier);

#[async_trait]
impl ChangeLog for BarrierLog {
    async fn create(&self, store: StoreId, partitions: PartitionCount) -> Result<()> {
        self.0.create(store, partitions).await
    }

    async fn delete(&self, store: StoreId) -> Result<()> {
        self.0.delete(store).await
    }

    async fn append(&self, at: PartitionRef, entry: Bytes) -> Result<AppendReceipt> {
        let decoded = decode_entry(&entry).map_err(|error| Error::internal(error.message()))?;
        if let EntryBody::Control(ControlRecord::Define(definition)) = &decoded.body
            && definition.view().is_some()
        {
            self.1.wait().await;
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

#[tokio::test]
async fn second_of_two_concurrent_applies_is_a_conflict() {
    let memory = memory();
    shop(&memory).await;
    let log = Arc::new(BarrierLog(memory, Barrier::new(2)));
    let (writer, other) = (writer(log.clone(), 2), writer(log, 3));
    let day = TOTALS.to_owned() + "windows: {day: {tumbling: 1d}}\n";
    let late = TOTALS.to_owned() + "allowed_lateness: 1h\n";
    // Both writers create the view, then both alter it.
    for (first, second) in [(TOTALS, TOTALS), (&day, &late)] {
        let (first, second) =
            tokio::join!(writer.apply_view(first, 1, false), other.apply_view(second, 1, false));
        assert_ne!(first.is_ok(), second.is_ok());
        let loser = first.err().or(second.err()).unwrap();
        assert_eq!(loser.code(), ErrorCode::Conflict, "{loser}");
    }
    let newest = other.describe_store("totals", NEWEST).await.unwrap();
    assert_eq!(newest.definition.version, SchemaVersion(2));
}

#[tokio::test]
async fn clients_insert_into_the_source_stream_and_not_into_a_view() {
    let writer = shop(&memory()).await;
    let (_, totals) = apply(&writer, TOTALS).await;
    let insert = |definition: &Definition| {
        let op = FieldOp::Set(Some(Value::Timestamp(1)));
        let event = Change {
            sequence: Sequence(1),
            key: Key::plain(b"a").unwrap(),
            verb: Verb::Insert,
            fields: vec![FieldChange { field: FieldId(1), op, ttl_us: None }],
            condition: None,
            ttl_us: None,
        };
        let batch = ClientBatch { client: ClientId(1), changes: vec![event] };
        writer.write(definition.store, definition.version, batch, ClientRouting::default(), WAIT)
    };
    let error = assert_refused(insert(&totals).await, "insert into `orders`");
    assert_eq!(error.context().store.as_deref(), Some("totals"));
}

#[tokio::test]
async fn alter_store_changes_only_options_of_a_view() {
    let writer = shop(&memory()).await;
    apply(&writer, TOTALS).await;
    for alteration in [
        Alteration::AddField(FieldSpec::new("more", scalar(ScalarType::Int64))),
        rename("key", "user"),
        Alteration::DropField("key".to_owned()),
        Alteration::DropAll,
    ] {
        assert_refused(alter(&writer, "totals", alteration).await, "apply its declaration");
    }
    let options = StoreOptions { heartbeat_ms: 500, ..StoreOptions::default() };
    alter(&writer, "totals", Alteration::SetOptions(options.clone())).await.unwrap();
    // The declaration does not mention options.
    let (effect, totals) = apply(&writer, TOTALS).await;
    assert_eq!((effect, totals.options), (ApplyEffect::Unchanged, options));
}

#[tokio::test]
async fn sources_of_a_view_cannot_be_deleted_before_the_view() {
    let writer = shop(&memory()).await;
    apply(&writer, &example()).await;
    apply(&writer, TOTALS).await;
    assert_refused(writer.delete_store("orders").await, "spending, totals");
    let error = assert_refused(writer.delete_store("users").await, "spending");
    assert!(!error.message().contains("totals"), "{error}");
    writer.delete_store("spending").await.unwrap();
    writer.delete_store("users").await.unwrap();
    assert_refused(writer.delete_store("orders").await, "totals");
    writer.delete_store("totals").await.unwrap();
    writer.delete_store("orders").await.unwrap();
}

#[tokio::test]
async fn columns_that_a_view_needs_are_neither_dropped_nor_widened() {
    use ScalarType::{Float64, Int64};
    let writer = shop(&memory()).await;
    apply(&writer, &example()).await;
    let drop = |name: &str| Alteration::DropField(name.to_owned());
    for (store, alteration, field) in [
        ("orders", drop("price"), "price"),
        ("orders", drop("device"), "device"),
        ("orders", Alteration::DropFieldsByPrefix("we".to_owned()), "weight"),
        ("orders", widen("price", Int64), "price"),
        ("orders", widen("weight", Float64), "weight"),
        ("users", drop("country"), "country"),
        ("users", drop("plan"), "plan"),
    ] {
        let error = assert_refused(alter(&writer, store, alteration).await, "spending");
        assert_eq!(error.context().field.as_deref(), Some(field));
        assert_eq!(error.context().store.as_deref(), Some(store));
    }
    // Columns that the view does not need may change, and so may names.
    for (store, alteration) in [
        ("orders", widen("note", Int64)),
        ("orders", drop("note")),
        ("orders", rename("price", "cost")),
        ("users", widen("age", Int64)),
        ("users", drop("age")),
        ("users", rename("country", "land")),
        ("users", Alteration::DropAll),
    ] {
        alter(&writer, store, alteration).await.unwrap();
    }
    assert_refused(alter(&writer, "orders", drop("cost")).await, "spending");
    writer.delete_store("spending").await.unwrap();
    alter(&writer, "orders", drop("cost")).await.unwrap();
}

/// Returns the declaration of the totals with a materialization to the store `features` and these
/// features.
fn materialize_totals(features: &str) -> String {
    let text = TOTALS.replace("{n: {count: '*'}}", features);
    text + "materialize: {store: features}\nextra_columns: [price]\n"
}

async fn describe(writer: &Writer, store: &str) -> Definition {
    Definition::clone(&writer.describe_store(store, NEWEST).await.unwrap().definition)
}

fn names(definition: &Definition) -> Vec<&str> {
    definition.fields.iter().map(|field| field.name.as_str()).collect()
}

/// Returns the names of the fields to which a view materializes.
fn materialized_to<'d>(view: &Definition, store: &'d Definition) -> Vec<&'d str> {
    let materialization = view.view().unwrap().materialization.as_ref().unwrap();
    assert_eq!(materialization.store, store.store);
    let ids = materialization.fields.iter().chain([&materialization.position]);
    ids.map(|id| store.field_by_id(*id).unwrap().name.as_str()).collect()
}

#[tokio::test]
async fn target_store_is_created_before_its_view_and_survives_the_view() {
    let writer = shop(&memory()).await;
    let (effect, dry_run) =
        writer.apply_view(&materialize_totals("{n: {count: '*'}}"), 1, true).await.unwrap();
    assert!(effect == ApplyEffect::Created && dry_run.view().unwrap().materialization.is_some());
    assert!(writer.describe_store("features", NEWEST).await.is_err(), "a dry run makes none");

    let (_, view) = apply(&writer, &materialize_totals("{n: {count: '*'}}")).await;
    let store = describe(&writer, "features").await;
    assert_eq!((store.key_type, store.partitions), (KeyType::String, PartitionCount(4)));
    assert_eq!(materialized_to(&view, &store), ["n", "totals_position"]);
    assert_eq!(
        apply(&writer, &materialize_totals("{n: {count: '*'}}")).await.0,
        ApplyEffect::Unchanged
    );

    // Another view and fields of users share the store.
    let age = FieldSpec::new("age", scalar(ScalarType::Int32));
    alter(&writer, "features", Alteration::AddField(age)).await.unwrap();
    let other = materialize_totals("{m: {count: '*'}}").replace("totals", "others");
    apply(&writer, &other).await;
    let result = writer
        .apply_view(&materialize_totals("{n: {count: '*'}, age: {count: '*'}}"), 1, false)
        .await;
    let error = assert_refused(result, "line 7, column 14: the store has a field of this name");
    assert_eq!(error.context().field.as_deref(), Some("age"));

    // The field of a removed value is dropped, and the remaining fields stay.
    let (effect, view) =
        apply(&writer, &materialize_totals("{n: {count: '*'}, spent: {sum: price}}")).await;
    let store = describe(&writer, "features").await;
    assert_eq!(effect, ApplyEffect::Altered);
    assert_eq!(materialized_to(&view, &store), ["n", "spent", "totals_position"]);
    let n = store.field("n").unwrap().id;
    apply(&writer, &materialize_totals("{spent: {sum: price}, n: {count: '*'}}")).await;
    assert_eq!(describe(&writer, "features").await.field("n").unwrap().id, n);
    let (_, view) = apply(&writer, &materialize_totals("{spent: {sum: price}}")).await;
    let store = describe(&writer, "features").await;
    assert_eq!(materialized_to(&view, &store), ["spent", "totals_position"]);
    let of_all = ["totals_position", "age", "m", "others_position", "spent"];
    assert_eq!(names(&store), of_all);

    writer.delete_store("totals").await.unwrap();
    let of_others = ["age", "m", "others_position"];
    assert_eq!(names(&describe(&writer, "features").await), of_others);
    let (_, silent) = apply(&writer, &other.replace("materialize: {store: features}\n", "")).await;
    assert_eq!(silent.view().unwrap().materialization, None);
    assert_eq!(names(&describe(&writer, "features").await), ["age"]);
    apply(&writer, &other.replace("store: features", "store: users")).await;
    assert!(describe(&writer, "users").await.field("m").is_some());
}

#[tokio::test]
async fn target_of_a_view_is_neither_deleted_nor_dropped_nor_widened() {
    let writer = shop(&memory()).await;
    let declaration = materialize_totals("{n: {count: '*'}, least: {min: price}}");
    apply(&writer, &declaration).await;
    assert_refused(writer.delete_store("features").await, "materialize to the store");
    let drop = |name: &str| Alteration::DropField(name.to_owned());
    for (alteration, field) in [
        (drop("n"), "n"),
        (drop("totals.n"), "n"),
        (drop("totals_position"), "totals_position"),
        (Alteration::DropFieldsByPrefix("totals_".to_owned()), "totals_position"),
        (widen("least", ScalarType::Int64), "least"),
    ] {
        let error = assert_refused(alter(&writer, "features", alteration).await, "totals");
        assert_eq!(error.context().field.as_deref(), Some(field));
    }
    alter(&writer, "features", rename("n", "orders")).await.unwrap();
    assert_eq!(apply(&writer, &declaration).await.0, ApplyEffect::Unchanged);
    let wider = materialize_totals("{n: {avg: price}, least: {min: price}}");
    assert_refused(writer.apply_view(&wider, 1, false).await, "its field is a int64");
    let other_target = declaration.replace("store: features", "store: users");
    assert_refused(writer.apply_view(&other_target, 1, false).await, "another store");
    for (from, to, place) in [
        ("store: features", "store: orders", "line 7, column 14"),
        ("store: features", "store: totals", "line 7, column 14"),
        ("store: features", "store: features, interval: 1ms", "line 7, column 14"),
    ] {
        let error = writer.apply_view(&declaration.replace(from, to), 1, false).await;
        assert_refused(error, place);
    }
    writer.delete_store("totals").await.unwrap();
    writer.delete_store("features").await.unwrap();
}

/// A log that refuses further appends of one definition, so that the writer that appends it dies
/// there.
struct DyingLog(Arc<MemoryLog>, &'static str);

#[async_trait]
impl ChangeLog for DyingLog {
    async fn create(&self, store: StoreId, partitions: PartitionCount) -> Result<()> {
        self.0.create(store, partitions).await
    }

    async fn delete(&self, store: StoreId) -> Result<()> {
        self.0.delete(store).await
    }

    async fn append(&self, at: PartitionRef, entry: Bytes) -> Result<AppendReceipt> {
        let decoded = decode_entry(&entry).map_err(|error| Error::internal(error.message()))?;
        if let EntryBody::Control(ControlRecord::Define(definition)) = &decoded.body
            && definition.name == self.1
        {
            return Err(Error::invalid_argument("dead"));
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

#[tokio::test]
async fn half_applied_view_is_applied_again() {
    let log = memory();
    let alive = shop(&log).await;
    let dies_at = |definition, seed| writer(Arc::new(DyingLog(log.clone(), definition)), seed);
    let declaration = materialize_totals("{n: {count: '*'}}");
    // The store exists, the view does not.
    dies_at("totals", 2).apply_view(&declaration, 1, false).await.unwrap_err();
    assert_eq!(names(&describe(&alive, "features").await), ["n", "totals_position"]);
    let (effect, view) = apply(&alive, &declaration).await;
    assert_eq!(effect, ApplyEffect::Created);
    let store = describe(&alive, "features").await;
    assert_eq!(names(&store), ["n", "totals_position"]);
    assert_eq!(materialized_to(&view, &store), ["n", "totals_position"]);
    // The store has a new field, the view does not.
    let extended = materialize_totals("{n: {count: '*'}, spent: {sum: price}}");
    dies_at("totals", 3).apply_view(&extended, 1, false).await.unwrap_err();
    assert!(describe(&alive, "features").await.field("spent").is_some());
    let (_, view) = apply(&alive, &extended).await;
    let store = describe(&alive, "features").await;
    assert_eq!(materialized_to(&view, &store), ["n", "spent", "totals_position"]);
    assert_eq!(store.fields.len(), 3);
    // The view has dropped a value, the store has not.
    dies_at("features", 4).apply_view(&declaration, 1, false).await.unwrap_err();
    assert_eq!(describe(&alive, "features").await.fields.len(), 3);
    assert_eq!(apply(&alive, &declaration).await.0, ApplyEffect::Unchanged);
    assert_eq!(names(&describe(&alive, "features").await), ["n", "totals_position"]);
    // The view is deleted, and its fields are not.
    dies_at("features", 5).delete_store("totals").await.unwrap_err();
    let orphan_id = describe(&alive, "features").await.field("n").unwrap().id;
    let (_, view) = apply(&alive, &declaration).await;
    let store = describe(&alive, "features").await;
    assert_eq!(materialized_to(&view, &store), ["n", "totals_position"]);
    assert_ne!(store.field("n").unwrap().id, orphan_id, "it would have values of the view before");
}
