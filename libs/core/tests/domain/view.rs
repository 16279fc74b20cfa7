//! Feature views: the definition of a declaration, refusals with their locations, alterations, and
//! the destination of values.

use forebay_core::id::{FieldId, PartitionCount, SchemaVersion, StoreId};
use forebay_core::key::KeyType;
use forebay_core::schema::{Alteration, Definition, StoreSpec, StreamSpec};
use forebay_core::value::{FieldType, ScalarType, Value};
use forebay_core::view::{
    AggregateKind, Comparison, FeatureSpec, JoinSpec, Materialization, MaterializationSpec,
    NamedWindow, Operand, Origin, Predicate, ViewSpec, ViewSpecError, ViewSpecPath, Window,
};
use forebay_core::{Error, ErrorCode, Result};

const MINUTE: i64 = 60_000_000;

fn scalar(scalar: ScalarType) -> FieldType {
    FieldType::Scalar(scalar)
}

/// Returns orders by user: event time, city, price, weight, tags.
fn orders() -> Definition {
    let mut spec = StoreSpec::stream("orders", KeyType::String)
        .partitions(4)
        .field("at", scalar(ScalarType::Timestamp))
        .field("city", scalar(ScalarType::String))
        .field("price", scalar(ScalarType::Int64))
        .field("weight", scalar(ScalarType::Float64))
        .field("tags", FieldType::List(ScalarType::String));
    spec.stream = Some(StreamSpec { event_time: Some("at".to_owned()) });
    spec.define(StoreId(1)).unwrap()
}

/// Returns a store of cities by name, and a store of counters by number.
fn store(name: &str) -> Result<Definition> {
    let (key_type, id) = match name {
        "cities" => (KeyType::String, 2),
        "counters" => (KeyType::Int64, 3),
        _ => return Err(Error::not_found("no such store").with_store(name)),
    };
    let spec = StoreSpec::documents(name, key_type).partitions(2);
    spec.field("country", scalar(ScalarType::String))
        .field("people", scalar(ScalarType::Int32))
        .define(StoreId(id))
}

fn feature(name: &str, kind: AggregateKind, input: Option<&str>) -> FeatureSpec {
    FeatureSpec { name: name.to_owned(), kind, input: input.map(str::to_owned) }
}

fn window(name: &str, window: Window) -> NamedWindow {
    NamedWindow { name: name.to_owned(), window }
}

fn more_than(column: &str, value: impl Into<Value>) -> Predicate<String> {
    let to = Operand::Value(value.into());
    Predicate::Compare { column: column.to_owned(), comparison: Comparison::Greater, to }
}

/// Returns a view by country and user over orders with a high price.
fn spec() -> ViewSpec {
    let columns = [("country", "country", Some("none".into())), ("people", "people", None)];
    let columns = columns.map(|(name, field, fill)| (name.to_owned(), field.to_owned(), fill));
    ViewSpec {
        name: "spending".to_owned(),
        source: "orders".to_owned(),
        filter: Some(more_than("price", 10)),
        joins: vec![JoinSpec {
            store: "cities".to_owned(),
            key: Some("city".to_owned()),
            columns: columns.to_vec(),
            is_required: false,
        }],
        entity: vec!["country".to_owned(), "key".to_owned()],
        extra_columns: vec!["weight".to_owned()],
        features: vec![
            feature("orders", AggregateKind::Count, None),
            feature("spent", AggregateKind::Sum, Some("price")),
            feature(
                "price",
                AggregateKind::ApproxQuantile { q: vec![0.5, 0.9], k: 100 },
                Some("price"),
            ),
        ],
        windows: vec![
            window("1h", Window::Sliding { length_us: 60 * MINUTE, slide_us: MINUTE }),
            window("", Window::Unbounded),
        ],
        allowed_lateness_us: 5 * MINUTE,
        ..ViewSpec::default()
    }
}

fn spending() -> Definition {
    spec().define(StoreId(9), &orders(), &store).unwrap()
}

fn change_spec(
    change: impl FnOnce(&mut ViewSpec),
) -> std::result::Result<Definition, ViewSpecError> {
    let mut spec = spec();
    change(&mut spec);
    spec.define(StoreId(9), &orders(), &store)
}

fn error_of<T>(result: std::result::Result<T, ViewSpecError>) -> Option<(ViewSpecPath, ErrorCode)> {
    result.err().map(|error| (error.path, error.error.code()))
}

#[test]
fn view_definition_contains_the_columns_of_its_groups_and_features() {
    let definition = spending();
    let names: Vec<_> = definition.fields.iter().map(|field| field.name.as_str()).collect();
    assert_eq!(names, ["at", "country", "key", "price", "weight"]);
    assert_eq!(definition.event_time().unwrap().name, "at");
    assert_eq!((definition.key_type, definition.partitions), (KeyType::Bytes, PartitionCount(4)));
    let view = definition.view().unwrap();
    let origin = |name: &str| view.columns[&definition.field(name).unwrap().id];
    assert_eq!(origin("at"), Origin::EventTime);
    assert_eq!(origin("country"), Origin::Join { join: 0, field: FieldId(1) });
    assert_eq!(origin("key"), Origin::Key);
    assert_eq!(origin("price"), Origin::Column(FieldId(3)));
    assert_eq!(definition.field("country").unwrap().default, Some("none".into()));
    assert_eq!(view.entity, [FieldId(2), FieldId(3)]);
    assert_eq!(view.columns_of_source(), [2, 3, 4].map(FieldId).into());
    assert_eq!(view.fields_of(StoreId(2)), [FieldId(1)].into());
    assert!(view.fields_of(StoreId(3)).is_empty());
    let outputs: Vec<_> = view.outputs().into_iter().map(|output| output.name).collect();
    let hour = ["orders_1h", "spent_1h", "price_1h_p50", "price_1h_p90"];
    assert_eq!(outputs, [&hour[..], &["orders", "spent", "price_p50", "price_p90"]].concat());
}

#[test]
fn event_time_gets_a_free_name_if_its_source_has_none() {
    let spec = StoreSpec::stream("clicks", KeyType::Int64).partitions(1);
    let clicks = spec.field("event_time", scalar(ScalarType::String)).define(StoreId(5)).unwrap();
    let view = ViewSpec {
        name: "counts".to_owned(),
        source: "clicks".to_owned(),
        entity: vec!["key".to_owned()],
        features: vec![feature("n", AggregateKind::Count, None)],
        windows: vec![window("", Window::Unbounded)],
        ..ViewSpec::default()
    };
    let counts = view.define(StoreId(9), &clicks, &store).unwrap();
    assert_eq!(counts.event_time().unwrap().name, "event_time_");
    let key = counts.field("key").unwrap();
    assert_eq!(key.field_type, scalar(ScalarType::Int64));
}

#[test]
fn invalid_view_error_names_its_part() {
    use ErrorCode::{InvalidArgument, LimitExceeded, NotFound};
    use ViewSpecPath::{Entity, ExtraColumn, Feature, Filter, Join, View};
    let name = |name: &str| vec![name.to_owned()];
    let sum = |name: &str, input| feature(name, AggregateKind::Sum, input);
    type Change = Box<dyn FnOnce(&mut ViewSpec)>;
    let cases: Vec<(Change, (ViewSpecPath, ErrorCode))> = vec![
        (Box::new(|it| it.name.clear()), (View, InvalidArgument)),
        (Box::new(|it| it.partitions = Some(0)), (View, InvalidArgument)),
        (Box::new(|it| it.filter = Some(more_than("cost", 1))), (Filter, NotFound)),
        (Box::new(|it| it.filter = Some(more_than("price", "ten"))), (Filter, InvalidArgument)),
        (Box::new(|it| it.filter = Some(more_than("tags", 1))), (Filter, InvalidArgument)),
        (Box::new(|it| it.filter = Some(more_than("country", "x"))), (Filter, NotFound)),
        (Box::new(|it| it.joins[0].store = "towns".to_owned()), (Join(0), NotFound)),
        (Box::new(|it| it.joins[0].store = "counters".to_owned()), (Join(0), InvalidArgument)),
        (Box::new(|it| it.joins[0].key = Some("town".to_owned())), (Join(0), NotFound)),
        (Box::new(|it| it.joins[0].columns[0].0 = "city".to_owned()), (Join(0), InvalidArgument)),
        (Box::new(|it| it.joins[0].columns[0].1 = "mayor".to_owned()), (Join(0), NotFound)),
        (Box::new(|it| it.joins[0].columns[0].2 = Some(5.into())), (Join(0), InvalidArgument)),
        (Box::new(|it| it.entity.clear()), (View, InvalidArgument)),
        (Box::new(move |it| it.entity = name("town")), (Entity(0), NotFound)),
        (Box::new(move |it| it.entity = name("weight")), (View, InvalidArgument)),
        (Box::new(|it| it.entity.push("key".to_owned())), (View, InvalidArgument)),
        (Box::new(move |it| it.extra_columns = name("width")), (ExtraColumn(0), NotFound)),
        (Box::new(|it| it.features.clear()), (View, InvalidArgument)),
        (Box::new(move |it| it.features[1] = sum("x", None)), (Feature(1), InvalidArgument)),
        (Box::new(move |it| it.features[1] = sum("x", Some("cost"))), (Feature(1), NotFound)),
        (
            Box::new(move |it| it.features[1] = sum("x", Some("city"))),
            (Feature(1), InvalidArgument),
        ),
        (
            Box::new(move |it| it.features[1] = sum("x", Some("tags"))),
            (Feature(1), InvalidArgument),
        ),
        (Box::new(|it| it.features[1].name = "orders".to_owned()), (View, InvalidArgument)),
        (Box::new(|it| it.windows.clear()), (View, InvalidArgument)),
        (Box::new(|it| it.windows[1] = it.windows[0].clone()), (View, InvalidArgument)),
        (Box::new(|it| it.windows[1].name = "1h".to_owned()), (View, InvalidArgument)),
        (Box::new(|it| it.allowed_lateness_us = -1), (View, InvalidArgument)),
        (Box::new(|it| it.allowed_lateness_us = i64::MAX), (View, LimitExceeded)),
        (
            Box::new(|it| it.features[0].kind = AggregateKind::AccumulatingCount),
            (View, InvalidArgument),
        ),
    ];
    for (number, (change, expected)) in cases.into_iter().enumerate() {
        assert_eq!(error_of(change_spec(change)), Some(expected), "case {number}");
    }
    let documents = store("cities").unwrap();
    let result = spec().define(StoreId(9), &documents, &store);
    assert_eq!(error_of(result), Some((ViewSpecPath::Source, InvalidArgument)));
}

#[test]
fn view_alteration_changes_features_and_windows_but_no_source() {
    let current = spending();
    let alter = |change: &dyn Fn(&mut ViewSpec)| {
        let mut spec = spec();
        change(&mut spec);
        spec.alter(&current, &orders(), &store)
    };
    assert_eq!(alter(&|_| {}).unwrap(), current, "nothing changes");
    let next = alter(&|it| {
        it.features.push(feature("weight", AggregateKind::Max, Some("weight")));
        it.windows.remove(0);
        it.allowed_lateness_us = 0;
    });
    let next = next.unwrap();
    assert_eq!(next.version, SchemaVersion(2));
    assert!(next.check_follows(&current).is_ok());
    let outputs = next.view().unwrap().outputs();
    assert_eq!(outputs.last().unwrap().name, "weight");
    let fixed_error = |part| Some((part, ErrorCode::InvalidArgument));
    assert_eq!(error_of(alter(&|it| it.filter = None)), fixed_error(ViewSpecPath::Filter));
    let swap = |it: &mut ViewSpec| it.entity.reverse();
    assert_eq!(error_of(alter(&swap)), fixed_error(ViewSpecPath::Entity(0)));
    assert_eq!(error_of(alter(&|it| it.partitions = Some(8))), fixed_error(ViewSpecPath::View));
    let require_join = |it: &mut ViewSpec| it.joins[0].is_required = true;
    assert_eq!(error_of(alter(&require_join)), fixed_error(ViewSpecPath::Join(0)));
    let other_default = |it: &mut ViewSpec| it.joins[0].columns[0].2 = Some("other".into());
    assert_eq!(error_of(alter(&other_default)), fixed_error(ViewSpecPath::Join(0)));
    let add_column = |it: &mut ViewSpec| it.extra_columns.push("city".to_owned());
    assert_eq!(error_of(alter(&add_column)), fixed_error(ViewSpecPath::ExtraColumn(1)));
    let add_feature = |it: &mut ViewSpec| {
        it.features.push(feature("cities", AggregateKind::Last, Some("city")));
    };
    assert_eq!(
        error_of(alter(&add_feature)),
        Some((ViewSpecPath::Feature(3), ErrorCode::NotFound))
    );
    let mut other = next.clone();
    other.stream.as_mut().unwrap().view.as_mut().unwrap().source = StoreId(77);
    assert!(other.check_follows(&current).is_err());
}

#[test]
fn group_key_follows_its_values_and_its_partition_ignores_joins() {
    let definition = spending();
    let view = definition.view().unwrap();
    let column = |name: &str| definition.field(name).unwrap().id;
    let (country, key) = (column("country"), column("key"));
    let group_of = |country_is: Option<&str>, key_is: Option<&str>| {
        let texts = [(country, country_is), (key, key_is)];
        let values: Vec<_> =
            texts.into_iter().filter_map(|(id, text)| Some((id, Value::from(text?)))).collect();
        let value = |id: FieldId| {
            values.iter().find(|(field_id, _)| *field_id == id).map(|(_, value)| value)
        };
        (view.group_key(&value), view.partition_key(&value))
    };
    let (group, place) = group_of(Some("IT"), Some("u"));
    assert_eq!(group.as_deref(), Some(&b"\x02\0\0\0IT\x01\0\0\0u"[..]));
    assert_eq!(place.as_deref(), Some(&b"\x01\0\0\0u"[..]));
    let (other, other_place) = group_of(Some("FR"), Some("u"));
    assert!(other != group && other_place == place, "where it goes depends on no join");
    assert_eq!(group_of(None, Some("u")).0, None, "of no group");
    assert_ne!(group_of(Some("a"), Some("bc")).0, group_of(Some("ab"), Some("c")).0);
}

#[test]
fn view_grouped_only_by_joins_has_one_partition() {
    let by_country = |spec: &mut ViewSpec| spec.entity = vec!["country".to_owned()];
    let definition = change_spec(by_country).unwrap();
    assert_eq!(definition.write_logs().partitions, PartitionCount(1));
    assert_eq!(spending().write_logs().partitions, PartitionCount(4));
    let result = change_spec(|spec| {
        by_country(spec);
        spec.partitions = Some(2);
    });
    assert_eq!(error_of(result), Some((ViewSpecPath::View, ErrorCode::InvalidArgument)));
}

fn materialization() -> MaterializationSpec {
    let store = "user_features".to_owned();
    MaterializationSpec { store, interval_us: 100_000, expiry_grace_us: 30_000_000 }
}

fn nothing_materialized(_: FieldId) -> bool {
    false
}

/// Returns the view that materializes to this store, as the next version of `was` if there is one.
fn materializing(
    spec: &ViewSpec,
    current: Option<&Definition>,
    to: &Definition,
) -> std::result::Result<Definition, ViewSpecError> {
    let by_name = |name: &str| if name == to.name { Ok(to.clone()) } else { store(name) };
    match current {
        None => spec.define(StoreId(9), &orders(), &by_name),
        Some(current) => spec.alter(current, &orders(), &by_name),
    }
}

/// Returns the view with its materialization, and the store to which it materializes.
fn materialized() -> (ViewSpec, Definition, Definition) {
    let to = materialization().new_store(StoreId(20), &spending()).unwrap();
    let spec = ViewSpec { materialization: Some(materialization()), ..spec() };
    let view = materializing(&spec, None, &to).unwrap();
    (spec, view, to)
}

fn to_of(view: &Definition) -> &Materialization {
    view.view().unwrap().materialization.as_ref().unwrap()
}

#[test]
fn view_materializes_each_value_to_its_own_field() {
    let (_, view, to) = materialized();
    assert_eq!((to.version, to.key_type), (SchemaVersion(1), KeyType::String));
    assert_eq!((to.partitions, to.stream.is_some()), (PartitionCount(4), false));
    let outputs = view.view().unwrap().outputs();
    for (output, id) in outputs.iter().zip(&to_of(&view).fields) {
        let field = to.field_by_id(*id).unwrap();
        assert_eq!((&field.name, field.field_type), (&output.name, output.field_type));
        assert_eq!(to.field(&format!("spending.{}", output.name)), Some(field));
    }
    let position = to.field_by_id(to_of(&view).position).unwrap();
    assert_eq!(position.name, "spending_position");
    assert_eq!(position.field_type, scalar(ScalarType::Int64));
    assert_eq!(to.fields.len(), outputs.len() + 1);
    let target = to_of(&view);
    assert_eq!(
        (target.store, target.interval_us, target.expiry_grace_us),
        (to.store, 100_000, 30_000_000)
    );
    assert!(target.is_to(to.store, target.position) && !target.is_to(StoreId(2), target.position));
}

#[test]
fn invalid_materialization_is_refused() {
    use ErrorCode::{InvalidArgument, LimitExceeded, NotFound};
    let (spec, view, to) = materialized();
    let refusal = |change: &dyn Fn(&mut MaterializationSpec), to: &Definition| {
        let mut spec = spec.clone();
        spec.materialization.iter_mut().for_each(change);
        error_of(materializing(&spec, None, to))
    };
    let at = |code| Some((ViewSpecPath::Materialization, code));
    assert_eq!(refusal(&|it| it.store = "nowhere".to_owned(), &to), at(NotFound));
    assert_eq!(refusal(&|it| it.store = "cities".to_owned(), &to), at(NotFound));
    assert_eq!(refusal(&|it| it.store = "counters".to_owned(), &to), at(InvalidArgument));
    assert_eq!(refusal(&|it| it.interval_us = 9_999, &to), at(InvalidArgument));
    assert_eq!(refusal(&|it| it.interval_us = 3_600_000_001, &to), at(LimitExceeded));
    assert_eq!(refusal(&|it| it.expiry_grace_us = -1, &to), at(InvalidArgument));
    assert_eq!(refusal(&|it| it.expiry_grace_us = 86_400_000_001, &to), at(LimitExceeded));
    let as_target_store = |spec: StoreSpec| StoreSpec { name: "user_features".to_owned(), ..spec };
    let keyed = StoreSpec::documents("", KeyType::String)
        .partitions(1)
        .field("by", scalar(ScalarType::String));
    for other in [
        StoreSpec::stream("", KeyType::String).partitions(1),
        StoreSpec::key_value("", KeyType::String).partitions(1),
        StoreSpec::documents("", KeyType::Bytes).partitions(1),
        StoreSpec { partition_key: Some("by".to_owned()), ..keyed },
    ] {
        let other = as_target_store(other).define(StoreId(20)).unwrap();
        let result =
            materialization().altered_store(&spending(), None, &other, &nothing_materialized);
        assert_eq!(result.unwrap_err().code(), InvalidArgument);
        assert_eq!(refusal(&|_| {}, &other), at(InvalidArgument));
    }
    let own_materialization =
        MaterializationSpec { store: "spending".to_owned(), ..materialization() };
    assert_eq!(
        own_materialization.new_store(StoreId(20), &spending()).unwrap_err().code(),
        InvalidArgument
    );

    type Change = fn(&mut Materialization);
    let changes: [Change; 4] = [
        |it| it.fields.truncate(1),
        |it| it.fields[0] = it.fields[1],
        |it| it.position = it.fields[0],
        |it| it.store = StoreId(1),
    ];
    for change in changes {
        let mut other = view.clone();
        let view = other.stream.as_mut().unwrap().view.as_mut().unwrap();
        view.materialization.iter_mut().for_each(change);
        assert_eq!(other.check().unwrap_err().code(), InvalidArgument);
    }
}

#[test]
fn foreign_fields_are_refused_and_orphaned_fields_are_replaced() {
    let documents = StoreSpec::documents("user_features", KeyType::String).partitions(8);
    for name in ["spent_1h", "spending_position"] {
        let other = documents.clone().field(name, scalar(ScalarType::Int64));
        let other = other.define(StoreId(20)).unwrap();
        let result =
            materialization().altered_store(&spending(), None, &other, &nothing_materialized);
        let error = result.unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument);
        assert_eq!(error.context().field.as_deref(), Some(name));
    }
    let other = documents.field("age", scalar(ScalarType::Int32)).define(StoreId(20)).unwrap();
    let altered_store =
        materialization().altered_store(&spending(), None, &other, &nothing_materialized).unwrap();
    assert_eq!(altered_store.version, SchemaVersion(2));
    let second_store = materialization()
        .altered_store(&spending(), None, &altered_store, &nothing_materialized)
        .unwrap();
    assert!(second_store.check_follows(&altered_store).is_ok());
    let id = |definition: &Definition, name: &str| definition.field(name).map(|field| field.id);
    assert_ne!(
        id(&altered_store, "spent_1h"),
        id(&second_store, "spent_1h"),
        "it may hold what no view knows"
    );
    assert_eq!(id(&altered_store, "age"), id(&second_store, "age"));
    assert_eq!(altered_store.fields.len(), second_store.fields.len());
}

#[test]
fn materialization_is_altered_with_its_view() {
    let (spec, view, to) = materialized();
    let is_materialized = |field| to_of(&view).is_to(to.store, field);
    let next_store = |spec: &ViewSpec, to: &Definition| {
        let silent = ViewSpec { materialization: None, ..spec.clone() };
        let silent = materializing(&silent, Some(&view), to).unwrap();
        spec.materialization.as_ref().unwrap().altered_store(
            &silent,
            Some(&view),
            to,
            &is_materialized,
        )
    };
    // A renamed field stays the view's field.
    let rename = Alteration::RenameField { from: "orders".to_owned(), to: "all_orders".to_owned() };
    let to = to.altered(&[rename]).unwrap();
    assert_eq!(next_store(&spec, &to).unwrap(), to, "it has all");
    assert_eq!(materializing(&spec, Some(&view), &to).unwrap(), view);

    let mut changed_spec = spec.clone();
    changed_spec.features.remove(1);
    changed_spec.features.push(feature("weight", AggregateKind::Max, Some("weight")));
    changed_spec.materialization.as_mut().unwrap().expiry_grace_us = 0;
    let next = next_store(&changed_spec, &to).unwrap();
    assert_eq!(next.fields.len(), to.fields.len() + 2);
    let altered_view = materializing(&changed_spec, Some(&view), &next).unwrap();
    assert_eq!((altered_view.version, to_of(&altered_view).expiry_grace_us), (SchemaVersion(2), 0));
    let names = altered_view.view().unwrap().outputs().into_iter().map(|output| output.name);
    for (name, id) in names.zip(&to_of(&altered_view).fields) {
        assert_eq!(next.field(&name).unwrap().id, *id);
    }
    let ids = |view: &Definition| (to_of(view).fields[0], to_of(view).position);
    assert_eq!(ids(&altered_view), ids(&view));

    let mut wider = spec.clone();
    wider.features[1].kind = AggregateKind::Average;
    assert_eq!(next_store(&wider, &to).unwrap_err().code(), ErrorCode::InvalidArgument);
    let other_store = Definition { store: StoreId(21), ..to.clone() };
    let result = materializing(&spec, Some(&view), &other_store);
    assert_eq!(error_of(result), Some((ViewSpecPath::Materialization, ErrorCode::InvalidArgument)));
    let silent = ViewSpec { materialization: None, ..spec };
    let silent = materializing(&silent, Some(&view), &to).unwrap();
    assert_eq!(
        (silent.version, silent.view().unwrap().materialization.as_ref()),
        (SchemaVersion(2), None)
    );
}

/// Returns the document key type and a group's key of a view that groups by columns of these types.
fn document_key(values: &[Value]) -> (KeyType, Vec<u8>) {
    let mut stream = StoreSpec::stream("events", KeyType::String).partitions(1);
    let names: Vec<_> = (0..values.len()).map(|number| format!("c{number}")).collect();
    for (name, value) in names.iter().zip(values) {
        stream = stream.field(name, value.field_type().unwrap());
    }
    let view = ViewSpec {
        name: "counts".to_owned(),
        source: "events".to_owned(),
        entity: names.clone(),
        features: vec![feature("n", AggregateKind::Count, None)],
        windows: vec![window("", Window::Unbounded)],
        ..ViewSpec::default()
    };
    let definition = view.define(StoreId(9), &stream.define(StoreId(5)).unwrap(), &store).unwrap();
    let view = definition.view().unwrap();
    let place = |id: FieldId| view.entity.iter().position(|column| *column == id);
    let key = view.document_key(&|id| values.get(place(id)?));
    assert_eq!(view.document_key(&|id| values.get(place(id)? + 1)), None, "of no group");
    (view.document_key_type(&definition), key.unwrap())
}

#[test]
fn group_document_has_the_natural_key_of_its_values() {
    let text = |key: &str| (KeyType::String, key.as_bytes().to_vec());
    assert_eq!(document_key(&["a:b".into()]), text("a:b"));
    assert_eq!(document_key(&[Value::Bytes(vec![0, 255])]), (KeyType::Bytes, vec![0, 255]));
    assert_eq!(
        document_key(&[Value::Int64(-2)]),
        (KeyType::Int64, (-2_i64).to_le_bytes().to_vec())
    );
    assert_eq!(document_key(&[Value::Int32(-2)]), text("-2"));
    assert_eq!(document_key(&[Value::Bool(true)]), text("true"));
    assert_eq!(document_key(&[Value::Timestamp(17)]), text("17"));
    let values = [
        "IT".into(),
        Value::Int64(-7),
        Value::Bool(false),
        Value::Bytes(vec![0, 0xab]),
        Value::Timestamp(3),
        r"a:b\c".into(),
    ];
    assert_eq!(document_key(&values), text(r"IT:-7:false:00ab:3:a\:b\\c"));
}

#[test]
fn distinct_groups_have_distinct_document_keys() {
    let parts = ["", ":", r"\", "a", "a:", ":a", r"\:", r":\", r"a\", r"\\"];
    let mut groups = std::collections::BTreeMap::new();
    for first in parts {
        for other in parts {
            for third in parts {
                let group = [first, other, third];
                let (_, key) = document_key(&group.map(Value::from));
                assert_eq!(groups.insert(key, group), None, "{group:?}");
            }
        }
    }
}
