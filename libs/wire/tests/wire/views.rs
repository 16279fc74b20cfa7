//! Proves that views survive a round trip through their messages, and that content of a newer build
//! gets another code than invalid content.

use std::collections::BTreeMap;

use forebay_core::ErrorCode;
use forebay_core::id::{FieldId, StoreId};
use forebay_core::value::ScalarType;
use forebay_core::view::{
    AggregateKind, AggregateSpec, Comparison, Feature, FeatureView, Join, Materialization,
    NamedWindow, Operand, Origin, Predicate, Window,
};
use forebay_wire::v1;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use crate::strategies::value;

fn field() -> impl Strategy<Value = FieldId> {
    any::<u32>().prop_map(FieldId)
}

fn comparison() -> impl Strategy<Value = Comparison> {
    use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
    select(vec![Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual])
}

fn predicate() -> impl Strategy<Value = Predicate<FieldId>> {
    let operand = prop_oneof![value().prop_map(Operand::Value), field().prop_map(Operand::Column),];
    let compare = (field(), comparison(), operand)
        .prop_map(|(column, comparison, to)| Predicate::Compare { column, comparison, to });
    let leaf = prop_oneof![
        field().prop_map(Predicate::IsMissing),
        compare,
        (field(), vec(value(), 0..4))
            .prop_map(|(column, values)| Predicate::IsOneOf { column, values }),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Predicate::All),
            vec(inner.clone(), 0..3).prop_map(Predicate::Any),
            inner.prop_map(|inner| Predicate::Not(Box::new(inner))),
        ]
    })
}

fn aggregate() -> impl Strategy<Value = AggregateSpec> {
    use AggregateKind as Kind;
    let kind = prop_oneof![
        select(vec![
            Kind::Count,
            Kind::AccumulatingCount,
            Kind::Sum,
            Kind::Average,
            Kind::Min,
            Kind::Max,
            Kind::Variance,
            Kind::StandardDeviation,
            Kind::Skewness,
            Kind::Kurtosis,
            Kind::First,
            Kind::Last,
        ]),
        (1_u16..9).prop_map(|count| Kind::LastN { count }),
        (4_u8..13, option::of(1_u8..4)).prop_map(|(lg_k, confidence_stddevs)| {
            Kind::ApproxCountDistinct { lg_k, confidence_stddevs }
        }),
        (vec(0.0_f64..=1.0, 1..4), 20_u16..200).prop_map(|(q, k)| Kind::ApproxQuantile { q, k }),
        (1_u16..9, 4_u8..10).prop_map(|(count, lg_counters)| Kind::TopK { count, lg_counters }),
    ];
    kind.prop_filter_map("no aggregate", |kind| {
        AggregateSpec::new(kind, Some(ScalarType::Int64)).ok()
    })
}

fn origin() -> impl Strategy<Value = Origin> {
    prop_oneof![
        Just(Origin::Key),
        Just(Origin::EventTime),
        field().prop_map(Origin::Column),
        (any::<u16>(), field()).prop_map(|(join, field)| Origin::Join { join, field }),
    ]
}

fn window() -> impl Strategy<Value = NamedWindow> {
    let window = prop_oneof![
        Just(Window::Unbounded),
        (1_i64..1 << 40).prop_map(|length_us| Window::Tumbling { length_us }),
        (1_i64..1 << 20, 1_i64..99).prop_map(|(slide_us, slides)| Window::Sliding {
            length_us: slide_us * slides,
            slide_us
        }),
    ];
    ("[a-z0-9]{0,4}", window).prop_map(|(name, window)| NamedWindow { name, window })
}

fn materialization() -> impl Strategy<Value = Materialization> {
    (any::<u64>(), vec(field(), 0..4), field(), any::<i64>(), any::<i64>()).prop_map(
        |(store, fields, position, interval_us, expiry_grace_us)| Materialization {
            store: StoreId(store),
            fields,
            position,
            interval_us,
            expiry_grace_us,
        },
    )
}

fn view() -> impl Strategy<Value = FeatureView> {
    let join = (any::<u64>(), option::of(field()), any::<bool>())
        .prop_map(|(store, key, is_required)| Join { store: StoreId(store), key, is_required });
    let feature = ("[a-z]{1,6}", aggregate()).prop_map(|(name, aggregate)| Feature {
        name,
        aggregate,
        input: Some(FieldId(3)),
    });
    let columns = vec((field(), origin()), 0..5);
    (
        (any::<u64>(), option::of(predicate()), vec(join, 0..3), columns),
        (vec(field(), 0..4), vec(feature, 0..5), vec(window(), 0..4)),
        (any::<i64>(), option::of(materialization())),
    )
        .prop_map(
            |((source, filter, joins, columns), groups, (allowed_lateness_us, materialization))| {
                let (entity, features, windows) = groups;
                FeatureView {
                    source: StoreId(source),
                    filter,
                    joins,
                    columns: columns.into_iter().collect::<BTreeMap<_, _>>(),
                    entity,
                    features,
                    windows,
                    allowed_lateness_us,
                    materialization,
                }
            },
        )
}

proptest! {
    #[test]
    fn view_round_trips_through_its_message(view in view()) {
        let message = v1::View::from(&view);
        prop_assert_eq!(FeatureView::try_from(message).unwrap(), view);
    }
}

#[test]
fn view_of_a_newer_build_needs_an_upgrade() {
    let window = v1::NamedWindow { name: "w".into(), window: None };
    let aggregate = Some(v1::Aggregate::default());
    let feature = v1::Feature { name: "f".into(), aggregate, ..v1::Feature::default() };
    let column = v1::DerivedColumn { id: 1, origin: None };
    let newer = [
        v1::View { windows: vec![window], ..v1::View::default() },
        v1::View { features: vec![feature], ..v1::View::default() },
        v1::View { columns: vec![column], ..v1::View::default() },
        v1::View { filter: Some(v1::Predicate::default()), ..v1::View::default() },
    ];
    for message in newer {
        let error = FeatureView::try_from(message).unwrap_err();
        assert_eq!(error.code(), ErrorCode::UpgradeNeeded, "{error}");
    }
    let column = |id| v1::DerivedColumn { id, origin: Some(v1::derived_column::Origin::Column(7)) };
    let view = v1::View { columns: vec![column(1), column(1)], ..v1::View::default() };
    assert_eq!(FeatureView::try_from(view).unwrap_err().code(), ErrorCode::InvalidArgument);
}
