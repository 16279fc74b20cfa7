//! Conversion of feature views to and from the messages of `view.proto`.

use forebay_core::id::{FieldId, StoreId};
use forebay_core::value::{ScalarType, Value};
use forebay_core::view::{
    AggregateKind, AggregateSpec, Comparison, Feature, FeatureView, Join, Materialization,
    NamedWindow, Operand, Origin, Predicate, Window,
};
use forebay_core::{Error, Result};

use crate::decode_error::{self, enumeration, newer_error, unset_error};
use crate::v1;
use crate::v1::aggregate::{self, ApproxCountDistinct, ApproxQuantile, LastN, Plain, TopK};
use crate::v1::derived_column::{self, JoinedField};
use crate::v1::named_window::{self, Sliding, Tumbling};
use crate::v1::predicate::{self, Compare, IsOneOf, Some as SomeOf, compare};
use crate::value::scalar_type;

enumeration!("how two values compare": Comparison, v1::Comparison {
    Equal = Equal,
    NotEqual = NotEqual,
    Less = Less,
    LessOrEqual = LessOrEqual,
    Greater = Greater,
    GreaterOrEqual = GreaterOrEqual,
});

impl From<&FeatureView> for v1::View {
    fn from(view: &FeatureView) -> Self {
        let column = |(id, origin): (&FieldId, &Origin)| v1::DerivedColumn {
            id: id.0,
            origin: Some(origin_message(*origin)),
        };
        Self {
            source: view.source.0,
            filter: view.filter.as_ref().map(Into::into),
            joins: view.joins.iter().map(Into::into).collect(),
            columns: view.columns.iter().map(column).collect(),
            entity: view.entity.iter().map(|id| id.0).collect(),
            features: view.features.iter().map(Into::into).collect(),
            windows: view.windows.iter().map(Into::into).collect(),
            allowed_lateness_us: view.allowed_lateness_us,
            materialization: view.materialization.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<v1::View> for FeatureView {
    type Error = Error;

    /// Converts the view alone; the stream's definition checks it against the stream.
    fn try_from(wire: v1::View) -> Result<Self> {
        let count = wire.columns.len();
        let column = |column: v1::DerivedColumn| {
            let origin = column.origin.ok_or_else(|| newer_error("the origin of a column"))?;
            Ok((FieldId(column.id), origin_of(origin)?))
        };
        let columns: std::collections::BTreeMap<_, _> =
            wire.columns.into_iter().map(column).collect::<Result<_>>()?;
        if columns.len() != count {
            return Err(Error::invalid_argument("a column has two origins; send one"));
        }
        Ok(Self {
            source: StoreId(wire.source),
            filter: wire.filter.map(Predicate::try_from).transpose()?,
            joins: wire.joins.into_iter().map(Into::into).collect(),
            columns,
            entity: wire.entity.into_iter().map(FieldId).collect(),
            features: convert_each(wire.features)?,
            windows: convert_each(wire.windows)?,
            allowed_lateness_us: wire.allowed_lateness_us,
            materialization: wire.materialization.map(Into::into),
        })
    }
}

fn convert_each<W, D: TryFrom<W, Error = Error>>(wire: Vec<W>) -> Result<Vec<D>> {
    wire.into_iter().map(D::try_from).collect()
}

fn origin_message(origin: Origin) -> derived_column::Origin {
    use derived_column::{EventTime, Key, Origin as Wire};
    match origin {
        Origin::Key => Wire::Key(Key {}),
        Origin::EventTime => Wire::EventTime(EventTime {}),
        Origin::Column(id) => Wire::Column(id.0),
        Origin::Join { join, field } => {
            Wire::Joined(JoinedField { join: join.into(), field: field.0 })
        }
    }
}

fn origin_of(wire: derived_column::Origin) -> Result<Origin> {
    use derived_column::Origin as Wire;
    Ok(match wire {
        Wire::Key(_) => Origin::Key,
        Wire::EventTime(_) => Origin::EventTime,
        Wire::Column(id) => Origin::Column(FieldId(id)),
        Wire::Joined(JoinedField { join, field }) => {
            Origin::Join { join: narrow(join, "a join")?, field: FieldId(field) }
        }
    })
}

impl From<&Join> for v1::Join {
    fn from(join: &Join) -> Self {
        let key = join.key.map(|id| id.0);
        Self { store: join.store.0, key, required: join.is_required }
    }
}

impl From<v1::Join> for Join {
    fn from(wire: v1::Join) -> Self {
        let key = wire.key.map(FieldId);
        Self { store: StoreId(wire.store), key, is_required: wire.required }
    }
}

impl From<&Materialization> for v1::Materialization {
    fn from(materialization: &Materialization) -> Self {
        Self {
            store: materialization.store.0,
            fields: materialization.fields.iter().map(|id| id.0).collect(),
            position: materialization.position.0,
            interval_us: materialization.interval_us,
            expiry_grace_us: materialization.expiry_grace_us,
        }
    }
}

impl From<v1::Materialization> for Materialization {
    fn from(wire: v1::Materialization) -> Self {
        Self {
            store: StoreId(wire.store),
            fields: wire.fields.into_iter().map(FieldId).collect(),
            position: FieldId(wire.position),
            interval_us: wire.interval_us,
            expiry_grace_us: wire.expiry_grace_us,
        }
    }
}

impl From<&Predicate<FieldId>> for v1::Predicate {
    fn from(predicate: &Predicate<FieldId>) -> Self {
        use predicate::Kind;
        let some_of = |predicates: &[Predicate<FieldId>]| SomeOf {
            predicates: predicates.iter().map(Into::into).collect(),
        };
        let kind = match predicate {
            Predicate::All(all) => Kind::All(some_of(all)),
            Predicate::Any(any) => Kind::Any(some_of(any)),
            Predicate::Not(other) => Kind::Not(Box::new(other.as_ref().into())),
            Predicate::IsMissing(column) => Kind::IsMissing(column.0),
            Predicate::Compare { column, comparison, to } => Kind::Compare(Compare {
                column: column.0,
                comparison: v1::Comparison::from(*comparison).into(),
                to: Some(match to {
                    Operand::Value(value) => compare::To::Value(value.into()),
                    Operand::Column(other) => compare::To::Other(other.0),
                }),
            }),
            Predicate::IsOneOf { column, values } => Kind::IsOneOf(IsOneOf {
                column: column.0,
                values: values.iter().map(Into::into).collect(),
            }),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<v1::Predicate> for Predicate<FieldId> {
    type Error = Error;

    fn try_from(wire: v1::Predicate) -> Result<Self> {
        use predicate::Kind;
        Ok(match wire.kind.ok_or_else(|| newer_error("the condition of a filter"))? {
            Kind::All(SomeOf { predicates }) => Self::All(convert_each(predicates)?),
            Kind::Any(SomeOf { predicates }) => Self::Any(convert_each(predicates)?),
            Kind::Not(other) => Self::Not(Box::new((*other).try_into()?)),
            Kind::IsMissing(column) => Self::IsMissing(FieldId(column)),
            Kind::Compare(Compare { column, comparison, to }) => Self::Compare {
                column: FieldId(column),
                comparison: decode_error::from_number::<v1::Comparison, _>(
                    comparison,
                    "comparison",
                )?,
                to: match to.ok_or_else(|| newer_error("the operand of a comparison"))? {
                    compare::To::Value(value) => Operand::Value(value.try_into()?),
                    compare::To::Other(other) => Operand::Column(FieldId(other)),
                },
            },
            Kind::IsOneOf(IsOneOf { column, values }) => {
                let values = values.into_iter().map(Value::try_from).collect::<Result<_>>()?;
                Self::IsOneOf { column: FieldId(column), values }
            }
        })
    }
}

impl From<&Feature> for v1::Feature {
    fn from(feature: &Feature) -> Self {
        let input_type = feature.aggregate.input().map(v1::ScalarType::from);
        Self {
            name: feature.name.clone(),
            aggregate: Some(feature.aggregate.kind().into()),
            input: feature.input.map(|id| id.0),
            input_type: input_type.map(Into::into),
        }
    }
}

impl TryFrom<v1::Feature> for Feature {
    type Error = Error;

    fn try_from(wire: v1::Feature) -> Result<Self> {
        let name = wire.name;
        let aggregate = || {
            let kind = wire.aggregate.ok_or_else(|| unset_error("the aggregate of a feature"))?;
            let input: Option<ScalarType> = wire.input_type.map(scalar_type).transpose()?;
            AggregateSpec::new(kind.try_into()?, input)
        };
        let aggregate = aggregate().map_err(|error: Error| error.with_field(&name))?;
        Ok(Self { name, aggregate, input: wire.input.map(FieldId) })
    }
}

/// The aggregate kinds without parameters, and their wire enums.
const PLAIN: [(AggregateKind, Plain); 12] = [
    (AggregateKind::Count, Plain::Count),
    (AggregateKind::AccumulatingCount, Plain::AccumulatingCount),
    (AggregateKind::Sum, Plain::Sum),
    (AggregateKind::Average, Plain::Average),
    (AggregateKind::Min, Plain::Min),
    (AggregateKind::Max, Plain::Max),
    (AggregateKind::Variance, Plain::Variance),
    (AggregateKind::StandardDeviation, Plain::StandardDeviation),
    (AggregateKind::Skewness, Plain::Skewness),
    (AggregateKind::Kurtosis, Plain::Kurtosis),
    (AggregateKind::First, Plain::First),
    (AggregateKind::Last, Plain::Last),
];

impl From<&AggregateKind> for v1::Aggregate {
    fn from(kind: &AggregateKind) -> Self {
        use aggregate::Kind;
        let kind = match kind {
            AggregateKind::LastN { count } => Kind::LastN(LastN { count: (*count).into() }),
            AggregateKind::ApproxCountDistinct { lg_k, confidence_stddevs } => {
                Kind::ApproxCountDistinct(ApproxCountDistinct {
                    lg_k: (*lg_k).into(),
                    confidence_stddevs: confidence_stddevs.map(Into::into),
                })
            }
            AggregateKind::ApproxQuantile { q, k } => {
                Kind::ApproxQuantile(ApproxQuantile { q: q.clone(), k: (*k).into() })
            }
            AggregateKind::TopK { count, lg_counters } => {
                let (count, lg_counters) = ((*count).into(), (*lg_counters).into());
                Kind::TopK(TopK { count, lg_counters })
            }
            plain => {
                let number = PLAIN.iter().find(|(kind, _)| kind == plain);
                let number = number.map_or(Plain::Unspecified, |(_, number)| *number);
                Kind::Plain(number.into())
            }
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<v1::Aggregate> for AggregateKind {
    type Error = Error;

    fn try_from(wire: v1::Aggregate) -> Result<Self> {
        use aggregate::Kind;
        Ok(match wire.kind.ok_or_else(|| newer_error("the kind of an aggregate"))? {
            Kind::Plain(number) => plain(number)?,
            Kind::LastN(LastN { count }) => Self::LastN { count: narrow(count, "a count")? },
            Kind::ApproxCountDistinct(ApproxCountDistinct { lg_k, confidence_stddevs }) => {
                Self::ApproxCountDistinct {
                    lg_k: narrow(lg_k, "lg_k")?,
                    confidence_stddevs: confidence_stddevs
                        .map(|stddevs| narrow(stddevs, "confidence_stddevs"))
                        .transpose()?,
                }
            }
            Kind::ApproxQuantile(ApproxQuantile { q, k }) => {
                Self::ApproxQuantile { q, k: narrow(k, "k")? }
            }
            Kind::TopK(TopK { count, lg_counters }) => Self::TopK {
                count: narrow(count, "a count")?,
                lg_counters: narrow(lg_counters, "lg_counters")?,
            },
        })
    }
}

fn plain(number: i32) -> Result<AggregateKind> {
    let wire = Plain::try_from(number)
        .map_err(|_| newer_error(&format!("the aggregate with number {number}")))?;
    let found = PLAIN.iter().find(|(_, wire_kind)| *wire_kind == wire);
    found.map(|(kind, _)| kind.clone()).ok_or_else(|| unset_error("the kind of an aggregate"))
}

/// Converts a number to its smaller domain type, or refuses it.
fn narrow<T: TryFrom<u32>>(number: u32, name: &str) -> Result<T> {
    let message = || Error::invalid_argument(format!("{name} cannot be {number}"));
    T::try_from(number).map_err(|_| message())
}

impl From<&NamedWindow> for v1::NamedWindow {
    fn from(named_window: &NamedWindow) -> Self {
        use named_window::{Unbounded, Window as Wire};
        let window = match named_window.window {
            Window::Tumbling { length_us } => Wire::Tumbling(Tumbling { length_us }),
            Window::Sliding { length_us, slide_us } => {
                Wire::Sliding(Sliding { length_us, slide_us })
            }
            Window::Unbounded => Wire::Unbounded(Unbounded {}),
        };
        Self { name: named_window.name.clone(), window: Some(window) }
    }
}

impl TryFrom<v1::NamedWindow> for NamedWindow {
    type Error = Error;

    fn try_from(wire: v1::NamedWindow) -> Result<Self> {
        use named_window::Window as Wire;
        let window = match wire.window.ok_or_else(|| newer_error("the kind of a window"))? {
            Wire::Tumbling(Tumbling { length_us }) => Window::Tumbling { length_us },
            Wire::Sliding(Sliding { length_us, slide_us }) => {
                Window::Sliding { length_us, slide_us }
            }
            Wire::Unbounded(_) => Window::Unbounded,
        };
        Ok(Self { name: wire.name, window })
    }
}
