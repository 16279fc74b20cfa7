//! Compares random histories with a naive model: writes, times to live, evolution under live
//! handles, drop-alls, rebuilds; compared by typed reads, documents, gather and scan.

use std::collections::BTreeMap;

use crate::support::*;
use forebay_core::ErrorCode;
use forebay_core::change::{Change, ClientBatch, EntryBody, FieldChange, FieldOp, Verb};
use forebay_core::fold::FoldEffects;
use forebay_core::id::{ClientId, FieldId, PartitionCount, PartitionId};
use forebay_core::key::{Key, KeyValue};
use forebay_core::partition::partition_of;
use forebay_core::row::Presence;
use forebay_core::schema::{Alteration, Definition, FieldSpec, StoreSpec};
use forebay_core::value::{FieldType, Value, VectorType};
use forebay_index::{Conversion, FieldHandle, GatherField, GatherOut, GatherPlan, KeyStatus};
use proptest::prelude::*;

const PARTITIONS: u32 = 3;
const KEYS: u8 = 8;
const PAIR: FieldType = FieldType::Vector(VectorType::F32, 2);

/// A field of a change: which of the live fields, and its new value.
#[derive(Clone, Debug)]
struct FieldStep {
    field: usize,
    /// `None` removes the field, `Some(None)` is null.
    value: Option<Option<i64>>,
    ttl_us: Option<i64>,
}

#[derive(Clone, Debug)]
struct ChangeStep {
    key: u8,
    verb: Verb,
    fields: Vec<FieldStep>,
    ttl_us: Option<i64>,
}

#[derive(Clone, Debug)]
enum Step {
    Write(Vec<ChangeStep>),
    AddField,
    DropField(usize),
    Rename(usize),
    Widen(usize),
    DropAll,
    /// Brings the newest definition into every partition.
    ApplyDefinition,
    Rebuild(u32),
    /// Another owner takes over a partition; shared copies only.
    TakeOver(u32),
}

fn field_step() -> impl Strategy<Value = FieldStep> {
    let number = prop_oneof![-3..3_i64, Just(i64::from(i32::MAX)), Just(1 << 40)];
    let value = prop_oneof![
        6 => number.prop_map(|n| Some(Some(n))),
        1 => Just(Some(None)),
        1 => Just(None),
    ];
    (any::<prop::sample::Index>(), value, prop::option::weighted(0.2, 1..40_i64))
        .prop_map(|(field, value, ttl_us)| FieldStep { field: field.index(1 << 16), value, ttl_us })
}

fn change_step() -> impl Strategy<Value = ChangeStep> {
    let verb = prop_oneof![6 => Just(Verb::Upsert), 2 => Just(Verb::Put), 1 => Just(Verb::Delete)];
    let fields = prop::collection::vec(field_step(), 0..4);
    (0..KEYS, verb, fields, prop::option::weighted(0.2, 1..40_i64))
        .prop_map(|(key, verb, fields, ttl_us)| ChangeStep { key, verb, fields, ttl_us })
}

fn step() -> impl Strategy<Value = (Step, i64)> {
    let any_field = || 0..1_000_usize;
    let step = prop_oneof![
        12 => prop::collection::vec(change_step(), 1..6).prop_map(Step::Write),
        1 => Just(Step::AddField),
        1 => any_field().prop_map(Step::DropField),
        1 => any_field().prop_map(Step::Rename),
        1 => any_field().prop_map(Step::Widen),
        1 => Just(Step::DropAll),
        1 => Just(Step::ApplyDefinition),
        1 => (0..PARTITIONS).prop_map(Step::Rebuild),
        1 => (0..PARTITIONS).prop_map(Step::TakeOver),
    ];
    (step, 0..15_i64)
}

#[derive(Clone, Debug, Default)]
struct ModelDocument {
    expires_at: Option<i64>,
    /// Value (`None` is null) and expiry of each field.
    fields: BTreeMap<FieldId, (Option<i64>, Option<i64>)>,
}

impl ModelDocument {
    fn without_expired(mut self, now: i64) -> Option<Self> {
        self.fields.retain(|_, (_, expires_at)| expires_at.is_none_or(|expiry| expiry > now));
        self.expires_at.is_none_or(|expiry| expiry > now).then_some(self)
    }
}

/// A partition in the model.
#[derive(Clone, Debug)]
struct ModelPartition {
    time: i64,
    definition: Definition,
    documents: BTreeMap<u8, ModelDocument>,
}

impl ModelPartition {
    /// Applies the definition and the time of an entry, before its changes.
    fn begin_entry(&mut self, definition: &Definition, time: i64) {
        self.time = self.time.max(time);
        if definition.drop_all_count > self.definition.drop_all_count {
            self.documents.clear();
        }
        self.definition = definition.clone();
    }

    fn apply(&mut self, step: &ChangeStep, fields: &[(FieldId, &FieldStep)]) {
        let now = self.time;
        let present = self.documents.remove(&step.key).and_then(|d| d.without_expired(now));
        let removes_only = !fields.is_empty() && fields.iter().all(|(_, f)| f.value.is_none());
        let mut document = match (step.verb, present) {
            (Verb::Delete, _) => return,
            (Verb::Upsert, Some(document)) => document,
            (Verb::Upsert, None) if removes_only => return,
            _ => ModelDocument::default(),
        };
        if let Some(ttl) = step.ttl_us {
            document.expires_at = Some(now + ttl);
        }
        for (id, field) in fields {
            let expires_at = field.ttl_us.map(|ttl| now + ttl);
            match field.value {
                Some(value) => document.fields.insert(*id, (value, expires_at)),
                None => document.fields.remove(id),
            };
        }
        self.documents.insert(step.key, document);
    }

    /// Returns the document as a reader with this clock sees it.
    fn read(&self, key: u8, clock: i64) -> Option<ModelDocument> {
        let mut document = self.documents.get(&key)?.clone();
        let retired = &self.definition.retired;
        document.fields.retain(|id, _| !retired.contains(id));
        document.without_expired(clock.max(self.time))
    }
}

struct World {
    store: Store,
    model: BTreeMap<PartitionId, ModelPartition>,
    /// Every field that ever existed, read as its first type.
    handles: Vec<FieldHandle>,
    plan: GatherPlan<f64>,
    planned: [FieldId; 2],
    clock: i64,
    names: usize,
    is_shared: bool,
}

fn name(key: u8) -> String {
    format!("key-{key}")
}

fn partition(key: u8) -> PartitionId {
    partition_of(name(key).as_bytes(), PartitionCount(PARTITIONS))
}

/// Returns a model number as a field of this type stores it.
fn value_of(n: i64, field_type: FieldType) -> Value {
    match field_type {
        INT32 => Value::Int32(i32::try_from(n).unwrap_or(i32::MAX)),
        INT64 => Value::Int64(n),
        STRING => Value::String(n.to_string()),
        PAIR => Value::VectorF32(vec![n as f32, 1.0]),
        other => panic!("no field of type {other} here"),
    }
}

/// Returns the model number that such a field then has.
fn clamp_to_type(n: i64, field_type: FieldType) -> i64 {
    if field_type == INT32 { n.min(i32::MAX.into()) } else { n }
}

impl World {
    fn new() -> Self {
        Self::with_store(Store::new(Self::spec()), false)
    }

    /// Creates a world whose partitions are shared copies, and change hands now and then.
    fn shared(dir: &std::path::Path) -> Self {
        Self::with_store(Store::shared(Self::spec(), dir), true)
    }

    fn spec() -> StoreSpec {
        spec(PARTITIONS, &[("n", INT32), ("s", STRING), ("v", PAIR)])
    }

    fn with_store(store: Store, is_shared: bool) -> Self {
        let handles = ["n", "s", "v"].map(|n| store.index.field(n).unwrap()).into();
        let plan_fields = [GatherField::new("v"), GatherField::new("n").or(Value::Int32(-7))];
        let plan = store.index.plan_gather(&plan_fields, Conversion::Exact).unwrap();
        let planned = [store.field("v"), store.field("n")];
        let partition = ModelPartition {
            time: i64::MIN,
            definition: store.definition.clone(),
            documents: BTreeMap::new(),
        };
        let model = (0..PARTITIONS).map(|id| (PartitionId(id), partition.clone())).collect();
        Self { store, model, handles, plan, planned, clock: 1_000, names: 0, is_shared }
    }

    fn live_field(&self, number: usize) -> Option<forebay_core::schema::Field> {
        let fields = &self.store.definition.fields;
        (!fields.is_empty()).then(|| fields[number % fields.len()].clone())
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Write(changes) => self.write(changes),
            Step::AddField => {
                self.names += 1;
                let name = format!("added-{}", self.names);
                let field_type = [INT32, STRING, INT64][self.names % 3];
                let field = FieldSpec::new(&name, field_type);
                self.store.define(&[Alteration::AddField(field)]);
                self.handles.push(self.store.index.field(&name).unwrap());
            }
            Step::DropField(number) => {
                let Some(field) = self.live_field(*number) else { return };
                self.store.define(&[Alteration::DropField(field.name)]);
            }
            Step::Rename(number) => {
                let Some(field) = self.live_field(*number) else { return };
                self.names += 1;
                let to = format!("renamed-{}", self.names);
                self.store.define(&[Alteration::RenameField { from: field.name, to }]);
            }
            Step::Widen(number) => {
                let field = self.live_field(*number).filter(|field| field.field_type == INT32);
                let Some(field) = field else { return };
                self.store.define(&[Alteration::WidenField { name: field.name, to: INT64 }]);
            }
            Step::DropAll => self.store.define(&[Alteration::DropAll]),
            Step::ApplyDefinition => {
                let definition = self.store.definition.clone();
                for (id, followed) in &mut self.store.partitions {
                    let body = EntryBody::Definition;
                    followed.append(&self.store.index, &definition, body, self.clock);
                    self.model.get_mut(id).unwrap().begin_entry(&definition, self.clock);
                }
            }
            Step::Rebuild(id) => self.rebuild(PartitionId(*id)),
            Step::TakeOver(id) if self.is_shared => self.store.take_over(PartitionId(*id)),
            Step::TakeOver(_) => {}
        }
    }

    fn write(&mut self, steps: &[ChangeStep]) {
        let definition = self.store.definition.clone();
        let mut entries: BTreeMap<PartitionId, Vec<Change>> = BTreeMap::new();
        for step in steps {
            let fields = self.fields_of(step, &definition);
            let id = partition(step.key);
            let partition = self.model.get_mut(&id).unwrap();
            if !entries.contains_key(&id) {
                partition.begin_entry(&definition, self.clock);
            }
            let model_fields: Vec<_> = fields.iter().map(|(id, _, step)| (*id, step)).collect();
            partition.apply(step, &model_fields);
            let to_change = |(field, field_type, step): &(FieldId, FieldType, FieldStep)| {
                let op = match step.value {
                    Some(value) => FieldOp::Set(value.map(|n| value_of(n, *field_type))),
                    None => FieldOp::Remove,
                };
                FieldChange { field: *field, op, ttl_us: step.ttl_us }
            };
            let changes = fields.iter().map(to_change).collect();
            let change = self.store.change(&name(step.key), step.verb, changes, step.ttl_us);
            entries.entry(id).or_default().push(change);
        }
        for (id, changes) in entries {
            let body = EntryBody::Changes(vec![ClientBatch { client: ClientId(1), changes }]);
            let followed = self.store.partitions.get_mut(&id).unwrap();
            followed.append(&self.store.index, &definition, body, self.clock);
        }
    }

    /// The fields of a change: each once; a put only sets fields, a delete names none.
    fn fields_of(
        &self,
        step: &ChangeStep,
        definition: &Definition,
    ) -> Vec<(FieldId, FieldType, FieldStep)> {
        let mut fields: BTreeMap<FieldId, (FieldType, FieldStep)> = BTreeMap::new();
        for field_step in step.fields.iter().filter(|_| step.verb != Verb::Delete) {
            let sets = field_step.value.is_some() || step.verb == Verb::Upsert;
            if definition.fields.is_empty() || !sets {
                continue;
            }
            let field = &definition.fields[field_step.field % definition.fields.len()];
            let mut field_step = field_step.clone();
            let keep = |n| clamp_to_type(n, field.field_type);
            field_step.value = field_step.value.map(|value| value.map(keep));
            fields.insert(field.id, (field.field_type, field_step));
        }
        fields.into_iter().map(|(id, (field_type, step))| (id, field_type, step)).collect()
    }

    fn rebuild(&mut self, id: PartitionId) {
        let followed = self.store.partitions.get_mut(&id).unwrap();
        let before = followed.writer.usage();
        let mut copied = FoldEffects::default();
        let copy = followed.writer.visit_rows(|key, row| {
            copied.writes.push((Key::from_identity_bytes(key), Some(row.to_vec())));
            Ok(())
        });
        copy.unwrap();
        let windows = followed.state.dedup.windows();
        copied.clients = windows.into_iter().map(|(client, _)| client).collect();
        followed.writer.start_rebuild().unwrap();
        followed.writer.note_cursor(opened());
        assert_eq!(followed.writer.usage().documents, 0);
        followed.writer.apply(&copied, &followed.state).unwrap();
        followed.writer.publish_rebuild();
        // The rebuild removes expired documents; the reads check that it removes nothing else.
        let after = followed.writer.usage();
        assert!(after.documents <= before.documents && after.row_bytes <= before.row_bytes);
    }

    fn follow(&mut self, steps: &[(Step, i64)], clock_lead: i64) {
        for (step, passes) in steps {
            self.clock += passes;
            self.run(step);
            for clock in [i64::MIN, self.clock, self.clock + clock_lead] {
                self.compare(clock);
            }
        }
    }

    /// Compares every way to read with the model, at this clock time.
    fn compare(&self, clock: i64) {
        for key in 0..=KEYS {
            let expected = self.model[&partition(key)].read(key, clock);
            self.compare_fields(key, clock, expected.as_ref());
            self.compare_document(key, clock, expected.as_ref());
        }
        self.compare_gather(clock);
        self.compare_scan(clock);
    }

    fn compare_fields(&self, key: u8, clock: i64, expected: Option<&ModelDocument>) {
        let view = self.store.index.view(at(clock));
        for handle in &self.handles {
            let cell = expected.and_then(|document| document.fields.get(&handle.field()));
            let presence = match cell {
                None => Presence::Absent,
                Some((None, _)) => Presence::Null,
                Some((Some(_), _)) => Presence::Value,
            };
            let name = name(key);
            assert_eq!(view.presence(handle, &name).unwrap(), presence, "{handle:?} of {name}");
            let number = cell.and_then(|(value, _)| *value);
            match handle.asked() {
                INT32 if number.is_some_and(|n| i32::try_from(n).is_err()) => {
                    let error = view.get_i32(handle, &name, 9).unwrap_err();
                    assert_eq!(error.code(), ErrorCode::InvalidArgument);
                }
                INT32 => {
                    let read = view.get_i32(handle, &name, 9).unwrap();
                    assert_eq!(i64::from(read), number.unwrap_or(9));
                }
                INT64 => {
                    assert_eq!(view.get_i64(handle, &name, 9).unwrap(), number.unwrap_or(9));
                }
                STRING => {
                    let read = view.get_str_owned(handle, &name).unwrap().value();
                    assert_eq!(read, number.map(|n| n.to_string()));
                }
                _ => {
                    let read = view.get_value(handle, &name).unwrap().value();
                    assert_eq!(read, number.map(|n| value_of(n, PAIR)));
                }
            }
        }
    }

    fn compare_document(&self, key: u8, clock: i64, expected: Option<&ModelDocument>) {
        let read = self.store.index.view(at(clock)).get_document(&name(key)).unwrap();
        assert_eq!(read.is_some(), expected.is_some(), "document {key} at {clock}");
        let (Some(read), Some(expected)) = (read, expected) else { return };
        assert_eq!(read.expires_at.map(|expiry| expiry.as_micros()), expected.expires_at);
        let definition = &self.model[&partition(key)].definition;
        let cells: Vec<_> = expected
            .fields
            .iter()
            .map(|(id, (value, expires_at))| {
                let field_type = definition.field_by_id(*id).unwrap().field_type;
                (*id, value.map(|n| value_of(n, field_type)), *expires_at)
            })
            .collect();
        let read: Vec<_> = read
            .cells()
            .iter()
            .map(|cell| {
                (cell.field, cell.value.clone(), cell.expires_at.map(|expiry| expiry.as_micros()))
            })
            .collect();
        assert_eq!(read, cells);
    }

    fn compare_gather(&self, clock: i64) {
        let requested_keys: Vec<u8> = (0..=KEYS).chain([3, 0, 3]).collect();
        let keys: Vec<_> = requested_keys.iter().map(|key| name(*key)).collect();
        let mut values = vec![f64::NAN; 3 * keys.len()];
        let mut statuses = vec![KeyStatus::Stale; keys.len()];
        let mut cells = vec![Presence::Null; values.len()];
        let mut gather_out = GatherOut {
            values: &mut values,
            statuses: Some(&mut statuses),
            cells: Some(&mut cells),
        };
        let view = self.store.index.view(at(clock));
        view.gather(&self.plan, &keys[..], &mut gather_out).unwrap();
        for (place, key) in requested_keys.iter().enumerate() {
            let document = self.model[&partition(*key)].read(*key, clock);
            let cell = |id: FieldId| document.as_ref().and_then(|d| d.fields.get(&id)).copied();
            let number = |id: FieldId| cell(id).and_then(|(value, _)| value);
            let presence = |id: FieldId| match cell(id) {
                None => Presence::Absent,
                Some((None, _)) => Presence::Null,
                Some(_) => Presence::Value,
            };
            let pair = number(self.planned[0]).map_or([0.0, 0.0], |n| [f64::from(n as f32), 1.0]);
            let n = number(self.planned[1]).map_or(-7.0, |n| n as f64);
            assert_eq!(values[3 * place..3 * place + 3], [pair[0], pair[1], n]);
            let masks = self.planned.map(presence);
            assert_eq!(cells[3 * place..3 * place + 3], [masks[0], masks[0], masks[1]]);
            let found = if document.is_some() { KeyStatus::Found } else { KeyStatus::Absent };
            assert_eq!(statuses[place], found);
        }
    }

    fn compare_scan(&self, clock: i64) {
        let mut scan = self.store.index.scan();
        let mut keys: Vec<String> = Vec::new();
        loop {
            let visited = scan.next_batch(at(clock), 3, |document| {
                let KeyValue::String(key) = document.key.primary() else {
                    panic!("a key of another type")
                };
                keys.push(key.to_owned());
                Ok(())
            });
            let visited = visited.unwrap();
            assert!(visited <= 3);
            if visited == 0 {
                break;
            }
        }
        keys.sort();
        let live = (0..KEYS).filter(|key| self.model[&partition(*key)].read(*key, clock).is_some());
        assert_eq!(keys, live.map(name).collect::<Vec<_>>());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn reads_equal_the_model(
        steps in prop::collection::vec(step(), 1..50),
        ahead in 0..60_i64,
    ) {
        World::new().follow(&steps, ahead);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn reads_of_a_shared_copy_equal_the_model(
        steps in prop::collection::vec(step(), 1..50),
        ahead in 0..60_i64,
    ) {
        let dir = tempfile::tempdir().unwrap();
        World::shared(dir.path()).follow(&steps, ahead);
    }
}
