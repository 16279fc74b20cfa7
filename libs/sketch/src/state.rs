//! State of one aggregate: it takes in events, merges with states of other parts of the stream, and
//! returns values.

mod codec;

use std::sync::Arc;

use forebay_core::value::{ScalarType, Value};
use forebay_core::view::{AggregateKind, AggregateSpec};
use forebay_core::{Error, Result};

pub(crate) use self::codec::byte_reader;

use crate::distinct::Distinct;
use crate::first_last::{EventOrder, FirstLast};
use crate::frequent_items::FrequentItems;
use crate::min_max::MinMax;
use crate::moments::PowerSums;
use crate::quantiles::Quantiles;

/// State of an aggregate over the events that it was given.
///
/// ```
/// use std::sync::Arc;
///
/// use forebay_core::clock::Timestamp;
/// use forebay_core::id::Position;
/// use forebay_core::value::{ScalarType, Value};
/// use forebay_core::view::{AggregateKind, AggregateSpec};
/// use forebay_sketch::{AggregateState, EventOrder};
///
/// let spec = AggregateSpec::new(AggregateKind::Average, Some(ScalarType::Int64))?;
/// let spec = Arc::new(spec);
/// let at = EventOrder { time: Timestamp::from_micros(5), position: Position::default() };
/// let mut state = AggregateState::new(&spec)?;
/// state.insert(Some(&Value::Int64(3)), at)?;
/// let mut other = AggregateState::new(&spec)?;
/// other.insert(Some(&Value::Int64(4)), at)?;
/// other.insert(None, at)?;
/// state.merge(&other)?;
/// assert_eq!(state.values()?, [Some(Value::Float64(3.5))]);
/// # Ok::<(), forebay_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct AggregateState {
    spec: Arc<AggregateSpec>,
    summary: StateSummary,
}

/// Layout of a state. Aggregates with the same layout and input can continue with each other's
/// states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StateLayout {
    Count,
    PowerSums { powers: u8 },
    MinMax { is_greatest: bool },
    FirstLast { is_latest: bool, count: u16 },
    Distinct { lg_k: u8 },
    Quantiles { k: u16 },
    FrequentItems { lg_counters: u8 },
}

impl StateLayout {
    /// Returns the layout of an aggregate's state.
    fn of(spec: &AggregateSpec) -> Self {
        use AggregateKind as Kind;
        match *spec.kind() {
            Kind::AccumulatingCount if spec.input().is_some() => Self::PowerSums { powers: 1 },
            Kind::Count | Kind::AccumulatingCount => Self::Count,
            Kind::Sum | Kind::Average => Self::PowerSums { powers: 1 },
            Kind::Variance | Kind::StandardDeviation => Self::PowerSums { powers: 2 },
            Kind::Skewness => Self::PowerSums { powers: 3 },
            Kind::Kurtosis => Self::PowerSums { powers: 4 },
            Kind::Min => Self::MinMax { is_greatest: false },
            Kind::Max => Self::MinMax { is_greatest: true },
            Kind::First => Self::FirstLast { is_latest: false, count: 1 },
            Kind::Last => Self::FirstLast { is_latest: true, count: 1 },
            Kind::LastN { count } => Self::FirstLast { is_latest: true, count },
            Kind::ApproxCountDistinct { lg_k, .. } => Self::Distinct { lg_k },
            Kind::ApproxQuantile { k, .. } => Self::Quantiles { k },
            Kind::TopK { lg_counters, .. } => Self::FrequentItems { lg_counters },
        }
    }
}

#[derive(Clone, Debug)]
enum StateSummary {
    Count(u64),
    PowerSums(PowerSums),
    MinMax(MinMax),
    FirstLast(FirstLast),
    Distinct(Distinct),
    Quantiles(Quantiles),
    FrequentItems(FrequentItems),
}

impl StateSummary {
    fn new(layout: StateLayout) -> Result<Self> {
        Ok(match layout {
            StateLayout::Count => Self::Count(0),
            StateLayout::PowerSums { powers } => Self::PowerSums(PowerSums::new(powers)),
            StateLayout::MinMax { is_greatest } => Self::MinMax(MinMax::new(is_greatest)),
            StateLayout::FirstLast { is_latest, count } => {
                Self::FirstLast(FirstLast::new(is_latest, count))
            }
            StateLayout::Distinct { lg_k } => Self::Distinct(Distinct::new(lg_k)?),
            StateLayout::Quantiles { k } => Self::Quantiles(Quantiles::new(k)?),
            StateLayout::FrequentItems { lg_counters } => {
                Self::FrequentItems(FrequentItems::new(lg_counters))
            }
        })
    }
}

impl AggregateState {
    /// Creates the state of no events.
    ///
    /// # Errors
    /// Returns `Internal` if a sketch refuses parameters that the specification accepted.
    pub fn new(spec: &Arc<AggregateSpec>) -> Result<Self> {
        Ok(Self { spec: spec.clone(), summary: StateSummary::new(StateLayout::of(spec))? })
    }

    /// Returns the specification of the aggregate.
    pub fn spec(&self) -> &Arc<AggregateSpec> {
        &self.spec
    }

    /// Adds an event. Missing values and NaN are left out; an aggregate without an input counts
    /// each event.
    ///
    /// The cost is some 3 to 60 ns, in a `top-k` 300 ns; the 256th value of quantiles costs some 10
    /// µs. The function seldom allocates.
    ///
    /// # Errors
    /// Returns the errors of [`AggregateSpec::check`]; the state has not changed then.
    pub fn insert(&mut self, value: Option<&Value>, at: EventOrder) -> Result<()> {
        self.spec.check(value)?;
        self.fold(value, at)
    }

    /// Does [`AggregateState::insert`] for a value that was already checked.
    pub(crate) fn fold(&mut self, value: Option<&Value>, at: EventOrder) -> Result<()> {
        if let (StateSummary::Count(count), None) = (&mut self.summary, self.spec.input()) {
            *count = count.saturating_add(1);
            return Ok(());
        }
        let Some(value) = value.filter(|value| !value.is_nan()) else { return Ok(()) };
        match &mut self.summary {
            StateSummary::Count(count) => *count = count.saturating_add(1),
            StateSummary::PowerSums(sums) => sums.insert(value),
            StateSummary::MinMax(min_max) => min_max.insert(value),
            StateSummary::FirstLast(first_last) => first_last.insert(value, at),
            StateSummary::Distinct(distinct) => distinct.insert(value),
            StateSummary::Quantiles(quantiles) => return quantiles.insert(value),
            StateSummary::FrequentItems(items) => items.insert(value),
        }
        Ok(())
    }

    /// Merges another state of the same aggregate. No event may be in both.
    ///
    /// The order of merges affects only quantiles, and a `top-k` of more values than it has
    /// counters; all other aggregates are equal to the last bit.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for a state of another aggregate; `LimitExceeded` if both states
    /// together count more than any stream has, which only damaged bytes can cause.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        let is_alike = |a: &AggregateSpec, b: &AggregateSpec| {
            StateLayout::of(a) == StateLayout::of(b) && a.input() == b.input()
        };
        let differ = || {
            Error::invalid_argument(
                "the states are of different aggregates or inputs; merge states of one aggregate \
                 and one input",
            )
        };
        if !is_alike(&self.spec, &other.spec) {
            return Err(differ());
        }
        match (&mut self.summary, &other.summary) {
            (StateSummary::Count(into), StateSummary::Count(from)) => {
                *into = into.saturating_add(*from)
            }
            (StateSummary::PowerSums(into), StateSummary::PowerSums(from)) => into.merge(from),
            (StateSummary::MinMax(into), StateSummary::MinMax(from)) => into.merge(from),
            (StateSummary::FirstLast(into), StateSummary::FirstLast(from)) => into.merge(from),
            (StateSummary::Distinct(into), StateSummary::Distinct(from)) => {
                return into.merge(from);
            }
            (StateSummary::Quantiles(into), StateSummary::Quantiles(from)) => {
                return into.merge(from);
            }
            (StateSummary::FrequentItems(into), StateSummary::FrequentItems(from)) => {
                into.merge(from)
            }
            _ => return Err(differ()),
        }
        Ok(())
    }

    /// Returns the values, one for each of [`AggregateSpec::outputs`]; `None` for a missing value,
    /// which is null in a document.
    ///
    /// # Errors
    /// Returns `Internal` if a sketch fails.
    pub fn values(&self) -> Result<Vec<Option<Value>>> {
        let float = |float: Option<f64>| float.map(Value::Float64);
        Ok(match &self.summary {
            StateSummary::Count(count) => vec![Some(integer(*count))],
            StateSummary::PowerSums(sums) => vec![match self.spec.kind() {
                AggregateKind::AccumulatingCount => {
                    Some(Value::Int64(sums.sum_of_integers().unwrap_or(0)))
                }
                AggregateKind::Sum => match self.spec.sum_type() {
                    ScalarType::Float64 => float(sums.sum_of_floats()),
                    _ => sums.sum_of_integers().map(Value::Int64),
                },
                AggregateKind::Average => float(sums.average()),
                AggregateKind::Variance => float(sums.variance()),
                AggregateKind::StandardDeviation => float(sums.standard_deviation()),
                AggregateKind::Skewness => float(sums.skewness()),
                AggregateKind::Kurtosis => float(sums.kurtosis()),
                _ => return Err(self.mixed_up()),
            }],
            StateSummary::MinMax(min_max) => vec![min_max.best().cloned()],
            StateSummary::FirstLast(first_last) => vec![self.first_last_value(first_last)],
            StateSummary::Distinct(distinct) => self.distinct_values(distinct)?,
            StateSummary::Quantiles(quantiles) => self.quantile_values(quantiles)?,
            StateSummary::FrequentItems(items) => self.top_values(items)?,
        })
    }

    /// Returns the error for a state that does not have its aggregate's layout, which never
    /// happens.
    fn mixed_up(&self) -> Error {
        Error::internal(format!("the state is not a state of {}", self.spec.kind().name()))
    }

    fn input(&self) -> ScalarType {
        self.spec.input().unwrap_or(ScalarType::Int64)
    }

    fn first_last_value(&self, first_last: &FirstLast) -> Option<Value> {
        if !matches!(self.spec.kind(), AggregateKind::LastN { .. }) {
            return first_last.values().next().cloned();
        }
        let values: Vec<_> = first_last.values().cloned().collect();
        (!values.is_empty()).then(|| Value::List(self.input(), values))
    }

    fn distinct_values(&self, distinct: &Distinct) -> Result<Vec<Option<Value>>> {
        let AggregateKind::ApproxCountDistinct { confidence_stddevs, .. } = self.spec.kind() else {
            return Err(self.mixed_up());
        };
        let estimate = distinct.estimate(*confidence_stddevs)?;
        let to_integer = |float: f64| Some(Value::Int64(float as i64));
        let mut values = vec![to_integer(estimate.count.round())];
        if confidence_stddevs.is_some() {
            values.extend([to_integer(estimate.lower.floor()), to_integer(estimate.upper.ceil())]);
        }
        Ok(values)
    }

    fn quantile_values(&self, quantiles: &Quantiles) -> Result<Vec<Option<Value>>> {
        let AggregateKind::ApproxQuantile { q, .. } = self.spec.kind() else {
            return Err(self.mixed_up());
        };
        Ok(match quantiles.at(q)? {
            Some(found) => found.into_iter().map(|float| Some(Value::Float64(float))).collect(),
            None => vec![None; q.len()],
        })
    }

    fn top_values(&self, frequent: &FrequentItems) -> Result<Vec<Option<Value>>> {
        let AggregateKind::TopK { count, .. } = self.spec.kind() else {
            return Err(self.mixed_up());
        };
        if frequent.is_empty() {
            return Ok(vec![None; 2]);
        }
        let top = frequent.top(*count, self.input())?;
        let (items, counts): (Vec<_>, Vec<_>) =
            top.into_iter().map(|(item, count)| (item, integer(count))).unzip();
        let counts = Value::List(ScalarType::Int64, counts);
        Ok(vec![Some(Value::List(self.input(), items)), Some(counts)])
    }
}

/// Converts a count to an int64, saturated at the end of its range.
fn integer(count: u64) -> Value {
    Value::Int64(i64::try_from(count).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests;
