//! Gather: plans, conversions, defaults, masks and statuses, and refusals.

use crate::support::*;
use forebay_core::ErrorCode;
use forebay_core::replica_state::Phase;
use forebay_core::row::Presence;
use forebay_core::schema::{Alteration, FieldSpec};
use forebay_core::value::{FieldType, Value, VectorType};
use forebay_index::{Conversion, GatherField, GatherOut, GatherPlan, KeyStatus};
use half::f16;

const F16_2: FieldType = FieldType::Vector(VectorType::F16, 2);
const I8_3: FieldType = FieldType::Vector(VectorType::I8, 3);
const EVERY: [(&str, FieldType); 9] = [
    ("flag", BOOL),
    ("count", INT32),
    ("total", INT64),
    ("score", FLOAT32),
    ("exact", FLOAT64),
    ("seen", TIMESTAMP),
    ("half", F16_2),
    ("tiny", I8_3),
    ("name", STRING),
];

fn fields(names: &[&'static str]) -> Vec<GatherField<'static>> {
    names.iter().map(|name| GatherField::new(name)).collect()
}

fn fill_store() -> Store {
    let mut store = Store::new(spec(4, &EVERY));
    let ann = store.upsert(
        "ann",
        &[
            ("flag", Some(Value::Bool(true))),
            ("count", Some(Value::Int32(-3))),
            ("total", Some(Value::Int64((1 << 53) + 1))),
            ("score", Some(Value::Float32(0.1))),
            ("exact", Some(Value::Float64(0.1))),
            ("seen", Some(Value::Timestamp(77))),
            ("half", Some(Value::VectorF16([0.5, -2.0].map(f16::from_f32).to_vec()))),
            ("tiny", Some(Value::VectorI8(vec![-128, 0, 127]))),
        ],
    );
    let bob = store.upsert("bob", &[("score", None), ("half", None)]);
    store.write(vec![ann, bob], 1_000);
    store
}

#[test]
fn columns_rows_defaults_and_masks_follow_the_plan() {
    let store = fill_store();
    let mut plan_fields = fields(&["score", "half", "flag", "tiny"]);
    plan_fields[1].default = Some(Value::VectorF32(vec![7.0, 8.0]));
    plan_fields[3].default = Some(Value::Int32(-1));
    let plan: GatherPlan<f32> = store.index.plan_gather(&plan_fields, Conversion::Exact).unwrap();
    let columns: Vec<_> = plan.columns().map(|c| (c.field, c.first, c.count)).collect();
    let expected = [("score", 0, 1), ("half", 1, 2), ("flag", 3, 1), ("tiny", 4, 3)];
    assert_eq!(columns, expected.map(|(name, first, count)| (name.to_owned(), first, count)));
    assert_eq!(plan.width(), 7);

    let keys = ["bob", "ann", "cid", "ann"];
    let mut values = [9.0; 29];
    let mut statuses = [KeyStatus::Stale; 4];
    let mut cells = [Presence::Null; 28];
    let mut gather_out =
        GatherOut { values: &mut values, statuses: Some(&mut statuses), cells: Some(&mut cells) };
    store.index.view(at(2_000)).gather(&plan, &keys[..], &mut gather_out).unwrap();
    let ann = [0.1, 0.5, -2.0, 1.0, -128.0, 0.0, 127.0];
    let defaults = [0.0, 7.0, 8.0, 0.0, -1.0, -1.0, -1.0];
    assert_eq!(values[..28], [defaults, ann, defaults, ann].concat());
    assert_eq!(values[28], 9.0);
    use KeyStatus::{Absent as Missing, Found};
    assert_eq!(statuses, [Found, Found, Missing, Found]);
    use Presence::{Absent, Null};
    assert_eq!(cells[..7], [Null, Null, Null, Absent, Absent, Absent, Absent]);
    assert_eq!(cells[7..14], [Presence::Value; 7]);
    assert_eq!(cells[14..21], [Absent; 7]);
}

#[test]
fn lossy_conversions_need_an_explicit_request() {
    let store = fill_store();
    let assert_refused = |name: &'static str, result: Result<(), forebay_core::Error>| {
        let error = result.unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{name}: {error}");
        assert_eq!(error.context().field.as_deref(), Some(name));
    };
    let index = &store.index;
    for name in ["count", "total", "exact", "seen", "name"] {
        let plan = index.plan_gather::<f32>(&fields(&[name]), Conversion::Exact);
        assert_refused(name, plan.map(drop));
    }
    for name in ["total", "seen"] {
        assert_refused(
            name,
            index.plan_gather::<f64>(&fields(&[name]), Conversion::Exact).map(drop),
        );
    }
    for name in ["score", "exact", "half"] {
        assert_refused(
            name,
            index.plan_gather::<i64>(&fields(&[name]), Conversion::Exact).map(drop),
        );
    }
    assert_refused(
        "name",
        index.plan_gather::<f32>(&fields(&["name"]), Conversion::Lossy).map(drop),
    );

    let plan_fields = fields(&["count", "total", "exact", "seen"]);
    let plan = index.plan_gather::<f32>(&plan_fields, Conversion::Lossy).unwrap();
    let mut values = [0.0; 4];
    let view = index.view(at(2_000));
    view.gather(&plan, &["ann"][..], &mut GatherOut::values(&mut values)).unwrap();
    assert_eq!(values, [-3.0, ((1_i64 << 53) + 1) as f32, 0.1, 77.0]);
    let plan_fields = fields(&["count", "total", "seen", "flag", "tiny"]);
    let plan = index.plan_gather::<i64>(&plan_fields, Conversion::Exact).unwrap();
    let mut values = [0; 7];
    view.gather(&plan, &["ann"][..], &mut GatherOut::values(&mut values)).unwrap();
    assert_eq!(values, [-3, (1 << 53) + 1, 77, 1, -128, 0, 127]);
}

#[test]
fn defaults_come_from_the_call_then_the_schema_then_zero() {
    let mut with_default = spec(2, &[("plain", FLOAT32)]);
    let mut field = FieldSpec::new("set", FLOAT32);
    field.default = Some(Value::Float32(2.5));
    with_default.fields.push(field);
    let store = Store::new(with_default);
    let mut plan_fields = fields(&["plain", "set", "set"]);
    plan_fields[2].default = Some(Value::Float32(-1.0));
    let plan = store.index.plan_gather::<f64>(&plan_fields, Conversion::Exact).unwrap();
    let mut values = [9.0; 3];
    let view = store.index.view(at(0));
    view.gather(&plan, &["none"][..], &mut GatherOut::values(&mut values)).unwrap();
    assert_eq!(values, [0.0, 2.5, -1.0]);
    for misfit in [Value::String("1".into()), Value::VectorF32(vec![1.0, 2.0])] {
        let plan_fields = [GatherField::new("plain").or(misfit)];
        let error = store.index.plan_gather::<f32>(&plan_fields, Conversion::Exact).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument);
    }
    let plan_error = store.index.plan_gather::<f32>(&[], Conversion::Exact).unwrap_err();
    assert_eq!(plan_error.code(), ErrorCode::InvalidArgument);
}

#[test]
fn too_small_output_is_refused_before_anything_is_written() {
    let store = fill_store();
    let plan = store.index.plan_gather::<f32>(&fields(&["score", "half"]), Conversion::Exact);
    let plan = plan.unwrap();
    let view = store.index.view(at(2_000));
    let keys = ["ann", "bob"];
    for (values, statuses, cells) in [(5, 2, 6), (6, 1, 6), (6, 2, 5)] {
        let (mut values, mut cells) = (vec![9.0; values], vec![Presence::Null; cells]);
        let mut statuses = vec![KeyStatus::Stale; statuses];
        let mut gather_out = GatherOut {
            values: &mut values,
            statuses: Some(&mut statuses),
            cells: Some(&mut cells),
        };
        let error = view.gather(&plan, &keys[..], &mut gather_out).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument);
        assert!(values.iter().all(|value| *value == 9.0));
        assert!(statuses.iter().all(|status| *status == KeyStatus::Stale));
        assert!(cells.iter().all(|cell| *cell == Presence::Null));
    }
}

#[test]
fn plan_survives_schema_changes_and_refuses_values_that_no_longer_fit() {
    let mut store = fill_store();
    let plan = store.index.plan_gather::<f32>(&fields(&["score", "flag"]), Conversion::Exact);
    let plan = plan.unwrap();
    let gather = |store: &Store, key: &str| {
        let mut values = [9.0; 2];
        let view = store.index.view(at(9_000));
        view.gather(&plan, &[key][..], &mut GatherOut::values(&mut values)).map(|()| values)
    };
    let widen = Alteration::WidenField { name: "score".into(), to: FLOAT64 };
    store.alter(&[widen, Alteration::DropField("flag".into())], 2_000);
    assert_eq!(gather(&store, "ann").unwrap(), [0.1, 0.0]);
    let ann = store.upsert("ann", &[("score", Some(Value::Float64(0.25)))]);
    let bob = store.upsert("bob", &[("score", Some(Value::Float64(0.1)))]);
    store.write(vec![ann, bob], 3_000);
    assert_eq!(gather(&store, "ann").unwrap(), [0.25, 0.0]);
    let error = gather(&store, "bob").unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    let text = error.to_string();
    assert!(text.contains("float64") && text.contains("float32") && text.contains("score"));
}

#[test]
fn keys_without_an_answer_have_a_status_or_an_error_never_a_default() {
    let mut store = Store::following(spec(4, &[("score", FLOAT32)]), |id| id.0 != 3);
    let keys: Vec<_> = (0..4).map(|partition| key_in(partition, 4)).collect();
    let change = store.upsert(&keys[1], &[("score", Some(Value::Float32(1.0)))]);
    store.write(vec![change], 1_000);
    store.partitions.values_mut().next().unwrap().writer.set_phase(Phase::Bootstrapping);
    let plan = store.index.plan_gather::<f32>(&fields(&["score"]), Conversion::Exact).unwrap();
    let view = store.index.view(at(2_000));
    let mut values = [9.0; 4];
    let mut statuses = [KeyStatus::Stale; 4];
    let mut gather_out =
        GatherOut { values: &mut values, statuses: Some(&mut statuses), cells: None };
    view.gather(&plan, &keys[..], &mut gather_out).unwrap();
    use KeyStatus::{Absent, Found, NotFollowed, Unavailable};
    assert_eq!(statuses, [Unavailable, Found, Absent, NotFollowed]);
    assert_eq!(values, [0.0, 1.0, 0.0, 0.0]);
    let gather_only = |key: &str| {
        let mut values = [9.0; 1];
        view.gather(&plan, &[key][..], &mut GatherOut::values(&mut values)).unwrap_err().code()
    };
    assert_eq!(gather_only(&keys[0]), ErrorCode::Unavailable);
    assert_eq!(gather_only(&keys[3]), ErrorCode::InvalidArgument);
}

/// Adjacent fields are copied together. The test proves that the cells are the same as one by one,
/// whatever is missing among the fields, in any order of the fields, and in rows of several
/// versions.
#[test]
fn runs_of_fields_produce_the_cells_of_single_fields() {
    const V: FieldType = FieldType::Vector(VectorType::F32, 2);
    let names: Vec<String> = (0..11).map(|number| format!("f{number:02}")).collect();
    let mut all: Vec<_> = names.iter().map(|name| (name.as_str(), FLOAT32)).collect();
    (all[4].1, all[8].1) = (V, INT32);
    let mut store = Store::new(spec(1, &all));
    let value = |field: usize, n: f32| match all[field].1 {
        V => Value::VectorF32(vec![n, -n]),
        INT32 => Value::Int32(n as i32),
        _ => Value::Float32(n),
    };
    // Bit `field` of a document's number says whether the field has a value; the next bit, whether
    // it is null.
    let write = |store: &mut Store, documents: std::ops::Range<usize>| {
        for document in documents {
            let generated = |field: usize| match (document >> (field % 6)) & 3 {
                0 => None,
                1 => Some(None),
                _ => Some(Some(value(field, (100 * document + field) as f32))),
            };
            let fields = (0..all.len()).filter(|field| store_has(store, all[*field].0));
            let fields: Vec<_> = fields
                .filter_map(|field| generated(field).map(|value| (all[field].0, value)))
                .collect();
            let change = store.upsert(&format!("k{document}"), &fields);
            store.write(vec![change], 1_000);
        }
    };
    write(&mut store, 0..64);
    let retired = Alteration::DropField("f06".to_owned());
    let orders: [&[usize]; 3] =
        [&[0, 1, 2, 3, 4, 5, 7, 8, 9, 10], &[10, 9, 3, 2, 1, 4], &[5, 4, 3, 7, 0]];
    let plans = orders.map(|order| {
        let plan_fields: Vec<_> = order.iter().map(|field| all[*field].0).collect();
        let plan: GatherPlan<f64> =
            store.index.plan_gather(&gather_fields(&plan_fields), Conversion::Exact).unwrap();
        let narrow: GatherPlan<f32> =
            store.index.plan_gather(&gather_fields(&plan_fields), Conversion::Lossy).unwrap();
        (plan_fields, plan, narrow)
    });
    compare(&store, &plans, 64);
    store.alter(&[retired], 2_000);
    write(&mut store, 32..96);
    compare(&store, &plans, 96);
}

type Plans<'p> = [(Vec<&'p str>, GatherPlan<f64>, GatherPlan<f32>); 3];

fn gather_fields<'p>(names: &[&'p str]) -> Vec<GatherField<'p>> {
    names.iter().map(|name| GatherField::new(name).or(Value::Int32(-7))).collect()
}

fn store_has(store: &Store, name: &str) -> bool {
    store.index.field(name).is_ok()
}

fn compare(store: &Store, plans: &Plans<'_>, documents: usize) {
    let keys: Vec<_> = (0..documents).map(|document| format!("k{document}")).collect();
    for (names, wide, narrow) in plans {
        let width = wide.width();
        let mut values = vec![0.0_f64; keys.len() * width];
        let mut masks = vec![Presence::Null; keys.len() * width];
        let mut gather_out =
            GatherOut { values: &mut values, statuses: None, cells: Some(&mut masks) };
        let view = store.index.view(at(3_000));
        view.gather(wide, &keys[..], &mut gather_out).unwrap();
        let mut narrow_values = vec![0.0_f32; keys.len() * width];
        view.gather(narrow, &keys[..], &mut GatherOut::values(&mut narrow_values)).unwrap();
        assert_eq!(narrow_values, values.iter().map(|cell| *cell as f32).collect::<Vec<_>>());
        let (mut cell_index, mut expected, mut presences) = (0, Vec::new(), Vec::new());
        for key in &keys {
            for name in names {
                let handle = store.index.field(name).unwrap();
                let read = view.get_value(&handle, key).unwrap();
                let presence = read.presence();
                let count = wide.columns().find(|c| c.field == *name).unwrap().count;
                match read.value() {
                    Some(Value::VectorF32(cells)) => {
                        expected.extend(cells.iter().map(|c| f64::from(*c)))
                    }
                    Some(Value::Float32(cell)) => expected.push(f64::from(cell)),
                    Some(Value::Int32(cell)) => expected.push(f64::from(cell)),
                    _ => expected.extend(std::iter::repeat_n(-7.0, count)),
                }
                presences.extend(std::iter::repeat_n(presence, count));
                cell_index += count;
            }
        }
        assert_eq!(cell_index, values.len());
        assert_eq!((values, masks), (expected, presences), "{names:?}");
    }
}
