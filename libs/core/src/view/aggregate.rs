//! Aggregates in the declaration of a feature view: kind and parameters, input type, and output
//! types.

use crate::error::{Error, Result};
use crate::limits::{
    AGGREGATE_ITEM_BYTES_MAX, AGGREGATE_LAST_MAX, AGGREGATE_QUANTILES_MAX, AGGREGATE_TOP_MAX,
};
use crate::value::{FieldType, ScalarType, Value};

/// Default logarithm of the registers of a distinct count: 4 KiB, a standard error of 1.6 %.
pub const DISTINCT_LG_K: u8 = 12;
/// Default compression of a t-digest.
pub const QUANTILES_K: u16 = 100;
/// Default logarithm of the table of a `top-k`: a count is too high by at most 0.7 % of all events.
pub const TOP_LG_COUNTERS: u8 = 9;

/// Kind and parameters of an aggregate.
///
/// The crate `forebay-sketch` specifies how each kind treats missing values, NaN, infinities and
/// overflow.
#[derive(Clone, Debug, PartialEq)]
pub enum AggregateKind {
    /// Number of events, or number of events with a value.
    Count,
    /// A count that no window bounds: the number of events, or the sum of integers by which the
    /// events change the count.
    AccumulatingCount,
    /// Sum; an int64 of integers, a float64 of floats.
    Sum,
    /// Arithmetic mean, a float64.
    Average,
    /// Least value.
    Min,
    /// Greatest value.
    Max,
    /// Variance of the values as a whole population, a float64.
    Variance,
    /// Square root of the variance.
    StandardDeviation,
    /// Third standardised moment; 0 for a symmetric distribution.
    Skewness,
    /// Fourth standardised moment less 3; 0 for a normal distribution.
    Kurtosis,
    /// Value of the earliest event that has a value.
    First,
    /// Value of the latest event that has a value.
    Last,
    /// Values of the latest events; the latest event is last.
    LastN {
        /// Number of values, at least 1.
        count: u16,
    },
    /// Approximate number of different values.
    ApproxCountDistinct {
        /// Logarithm of the number of registers, 4 to 16; each is a byte.
        lg_k: u8,
        /// Standard deviations, 1 to 3, of the error bounds that the aggregate also returns, if
        /// any.
        confidence_stddevs: Option<u8>,
    },
    /// Approximate quantiles: the value below which a given fraction of all values is.
    ApproxQuantile {
        /// Fractions of all values, from 0 to 1, each once.
        q: Vec<f64>,
        /// Compression of the t-digest, 10 to 1,000; the digest holds at most twice as many
        /// centroids.
        k: u16,
    },
    /// Approximately most frequent values, with their counts.
    TopK {
        /// Number of values, at least 1.
        count: u16,
        /// Logarithm of the table's size, 3 to 10; the table counts up to three quarters of its
        /// size at once.
        lg_counters: u8,
    },
}

impl AggregateKind {
    /// Returns the kind's name in definitions and messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::AccumulatingCount => "accumulating_count",
            Self::Sum => "sum",
            Self::Average => "avg",
            Self::Min => "min",
            Self::Max => "max",
            Self::Variance => "variance",
            Self::StandardDeviation => "stddev",
            Self::Skewness => "skewness",
            Self::Kurtosis => "kurtosis",
            Self::First => "first",
            Self::Last => "last",
            Self::LastN { .. } => "last",
            Self::ApproxCountDistinct { .. } => "approx_count_distinct",
            Self::ApproxQuantile { .. } => "approx_quantile",
            Self::TopK { .. } => "top_k",
        }
    }
}

/// An output value of an aggregate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Suffix after the aggregate's own name; empty for the main value.
    pub suffix: String,
    /// Type of the value.
    pub field_type: FieldType,
}

/// A checked aggregate: its kind, and the type of its input.
///
/// ```
/// use forebay_core::value::{FieldType, ScalarType};
/// use forebay_core::view::{AggregateKind, AggregateSpec};
///
/// let kind = AggregateKind::ApproxQuantile { q: vec![0.5, 0.999], k: 100 };
/// let spec = AggregateSpec::new(kind, Some(ScalarType::Float64))?;
/// let outputs = spec.outputs();
/// assert_eq!(outputs[1].suffix, "p99_9");
/// assert_eq!(outputs[1].field_type, FieldType::FLOAT64);
/// assert!(AggregateSpec::new(AggregateKind::Sum, Some(ScalarType::String)).is_err());
/// # Ok::<(), forebay_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct AggregateSpec {
    kind: AggregateKind,
    input: Option<ScalarType>,
}

impl AggregateSpec {
    /// Checks an aggregate. A count without an input counts every event.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for an input that is missing or that the kind does not accept, and
    /// for parameters outside their range; `LimitExceeded` for more values than an aggregate may
    /// store.
    pub fn new(kind: AggregateKind, input: Option<ScalarType>) -> Result<Self> {
        check_input(&kind, input)?;
        check_parameters(&kind)?;
        Ok(Self { kind, input })
    }

    /// Returns kind and parameters.
    pub fn kind(&self) -> &AggregateKind {
        &self.kind
    }

    /// Returns the input type, if the aggregate has an input.
    pub fn input(&self) -> Option<ScalarType> {
        self.input
    }

    /// Returns the output values in their order.
    pub fn outputs(&self) -> Vec<Output> {
        use AggregateKind as Kind;
        let output = |suffix: &str, field_type| Output { suffix: suffix.to_owned(), field_type };
        let scalar = |scalar| vec![output("", FieldType::Scalar(scalar))];
        let input = self.input.unwrap_or(ScalarType::Int64);
        let integer = FieldType::INT64;
        match &self.kind {
            Kind::Count | Kind::AccumulatingCount => scalar(ScalarType::Int64),
            Kind::Sum => scalar(self.sum_type()),
            Kind::Min | Kind::Max | Kind::First | Kind::Last => scalar(input),
            Kind::LastN { .. } => vec![output("", FieldType::List(input))],
            Kind::ApproxCountDistinct { confidence_stddevs: None, .. } => scalar(ScalarType::Int64),
            Kind::ApproxCountDistinct { confidence_stddevs: Some(_), .. } => {
                vec![output("", integer), output("lower", integer), output("upper", integer)]
            }
            Kind::ApproxQuantile { q, .. } => {
                let float = FieldType::FLOAT64;
                q.iter().map(|rank| output(&rank_suffix(*rank), float)).collect()
            }
            Kind::TopK { .. } => {
                let counts = FieldType::List(ScalarType::Int64);
                vec![output("", FieldType::List(input)), output("counts", counts)]
            }
            Kind::Average
            | Kind::Variance
            | Kind::StandardDeviation
            | Kind::Skewness
            | Kind::Kurtosis => scalar(ScalarType::Float64),
        }
    }

    /// Refuses a value that an event cannot have for this aggregate, before anything is folded.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for a value whose type is not the input's, or for any value if
    /// there is no input; `LimitExceeded` for a value that the aggregate would store and that is
    /// too long.
    pub fn check(&self, value: Option<&Value>) -> Result<()> {
        let Some(value) = value else { return Ok(()) };
        let kind_name = self.kind.name();
        let Some(input) = self.input else {
            let message = format!(
                "{kind_name} counts events and takes no value; declare an input, or send no value"
            );
            return Err(Error::invalid_argument(message));
        };
        if value.field_type() != Some(FieldType::Scalar(input)) {
            let message =
                format!("{kind_name} takes a {} or no value; send one of the two", input.name());
            return Err(Error::invalid_argument(message));
        }
        let bytes = value.encoded_bytes();
        if self.keeps_values() && bytes > AGGREGATE_ITEM_BYTES_MAX as u64 {
            let message = format!(
                "the value is too long for {kind_name}; shorten the value, or do not declare \
                 {kind_name} on the column"
            );
            return Err(Error::limit_exceeded(message, AGGREGATE_ITEM_BYTES_MAX as u64, bytes));
        }
        Ok(())
    }

    fn keeps_values(&self) -> bool {
        use AggregateKind as Kind;
        let keeps_many = matches!(self.kind, Kind::LastN { .. } | Kind::TopK { .. });
        keeps_many || matches!(self.kind, Kind::Min | Kind::Max | Kind::First | Kind::Last)
    }

    /// Returns the type of a sum: the sum of integers is an int64.
    pub fn sum_type(&self) -> ScalarType {
        match self.input {
            Some(ScalarType::Float32 | ScalarType::Float64) => ScalarType::Float64,
            _ => ScalarType::Int64,
        }
    }
}

fn check_input(kind: &AggregateKind, input: Option<ScalarType>) -> Result<()> {
    use AggregateKind as Kind;
    use ScalarType::{Bool, Bytes, Float32, Float64, Int32, Int64, String, Timestamp};
    const NUMBERS: &[ScalarType] = &[Int32, Int64, Float32, Float64];
    const ALL: &[ScalarType] = &[Bool, Int32, Int64, Float32, Float64, String, Bytes, Timestamp];
    let (is_optional, input_types) = match kind {
        Kind::Count => (true, ALL),
        Kind::AccumulatingCount => (true, &[Int32, Int64][..]),
        Kind::Min | Kind::Max | Kind::First | Kind::Last => (false, ALL),
        Kind::LastN { .. } | Kind::ApproxCountDistinct { .. } => (false, ALL),
        Kind::TopK { .. } => (false, &[Bool, Int32, Int64, String, Timestamp][..]),
        Kind::Sum | Kind::Average | Kind::Variance | Kind::StandardDeviation => (false, NUMBERS),
        Kind::Skewness | Kind::Kurtosis | Kind::ApproxQuantile { .. } => (false, NUMBERS),
    };
    let kind_name = kind.name();
    match input {
        None if is_optional => Ok(()),
        None => Err(Error::invalid_argument(format!(
            "{kind_name} needs a column; name the column to aggregate"
        ))),
        Some(input) if input_types.contains(&input) => Ok(()),
        Some(input) => {
            let names: Vec<_> = input_types.iter().map(|scalar| scalar.name()).collect();
            let (found, names) = (input.name(), names.join(", "));
            let message =
                format!("{kind_name} does not take a {found}; choose a column of type: {names}");
            Err(Error::invalid_argument(message))
        }
    }
}

fn check_parameters(kind: &AggregateKind) -> Result<()> {
    use AggregateKind as Kind;
    let check_range = |setting: &str, found: u64, from: u64, to: u64| match found {
        _ if found < from => {
            Err(Error::invalid_argument(format!("{setting} is {found}; set it to at least {from}")))
        }
        _ if found > to => {
            Err(Error::limit_exceeded(format!("{setting} is too high; lower it"), to, found))
        }
        _ => Ok(()),
    };
    match kind {
        Kind::LastN { count } => {
            check_range("count", u64::from(*count), 1, u64::from(AGGREGATE_LAST_MAX))
        }
        Kind::ApproxCountDistinct { lg_k, confidence_stddevs } => {
            check_range("lg_k", u64::from(*lg_k), 4, 16)?;
            let stddevs = u64::from(confidence_stddevs.unwrap_or(1));
            check_range("confidence_stddevs", stddevs, 1, 3)
        }
        Kind::ApproxQuantile { q, k } => {
            check_range("k", u64::from(*k), 10, 1_000)?;
            check_range("the length of q", q.len() as u64, 1, AGGREGATE_QUANTILES_MAX as u64)?;
            check_ranks(q)
        }
        Kind::TopK { count, lg_counters } => {
            check_range("count", u64::from(*count), 1, u64::from(AGGREGATE_TOP_MAX))?;
            check_range("lg_counters", u64::from(*lg_counters), 3, 10)
        }
        _ => Ok(()),
    }
}

fn check_ranks(ranks: &[f64]) -> Result<()> {
    if ranks.iter().any(|rank| !(0.0..=1.0).contains(rank)) {
        return Err(Error::invalid_argument(
            "a fraction of q is outside 0 to 1; give fractions from 0 to 1",
        ));
    }
    let mut suffixes: Vec<_> = ranks.iter().map(|rank| rank_suffix(*rank)).collect();
    suffixes.sort();
    suffixes.dedup();
    if suffixes.len() < ranks.len() {
        return Err(Error::invalid_argument(
            "a fraction of q is given twice; give each fraction once",
        ));
    }
    Ok(())
}

/// Returns the output suffix of a rank, `p99_9` for 0.999: the digits of the rank as a percentage.
fn rank_suffix(rank: f64) -> String {
    let text = rank.abs().to_string();
    let (integer_digits, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let padded = format!("{fraction:0<2}");
    let (percent, rest) = padded.split_at(2);
    let percent = format!("{integer_digits}{percent}");
    let percent = match percent.trim_start_matches('0') {
        "" => "0",
        percent => percent,
    };
    if rest.is_empty() { format!("p{percent}") } else { format!("p{percent}_{rest}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    fn refusal_code(kind: AggregateKind, input: Option<ScalarType>) -> ErrorCode {
        AggregateSpec::new(kind, input).unwrap_err().code()
    }

    #[test]
    fn quantile_ranks_name_their_outputs() {
        let rank_suffixes =
            [(0.5, "p50"), (0.999, "p99_9"), (0.29, "p29"), (0.05, "p5"), (0.0, "p0")];
        for (rank, suffix) in rank_suffixes {
            assert_eq!(rank_suffix(rank), suffix);
        }
        let more_suffixes =
            [(1.0, "p100"), (0.001, "p0_1"), (0.9999, "p99_99"), (-0.0, "p0"), (0.1, "p10")];
        for (rank, suffix) in more_suffixes {
            assert_eq!(rank_suffix(rank), suffix);
        }
    }

    #[test]
    fn aggregate_accepts_only_input_types_of_its_kind() {
        use AggregateKind as Kind;
        let invalid = ErrorCode::InvalidArgument;
        assert_eq!(refusal_code(Kind::Sum, None), invalid);
        assert_eq!(refusal_code(Kind::Sum, Some(ScalarType::Timestamp)), invalid);
        assert_eq!(refusal_code(Kind::AccumulatingCount, Some(ScalarType::Float64)), invalid);
        let top = Kind::TopK { count: 3, lg_counters: TOP_LG_COUNTERS };
        assert_eq!(refusal_code(top.clone(), Some(ScalarType::Bytes)), invalid);
        assert!(AggregateSpec::new(top, Some(ScalarType::String)).is_ok());
        assert!(AggregateSpec::new(Kind::Count, None).is_ok());
        assert!(AggregateSpec::new(Kind::Min, Some(ScalarType::Bytes)).is_ok());
    }

    #[test]
    fn parameters_outside_their_range_are_refused() {
        use AggregateKind as Kind;
        let float = Some(ScalarType::Float64);
        let (invalid, limit) = (ErrorCode::InvalidArgument, ErrorCode::LimitExceeded);
        let distinct =
            |lg_k, confidence_stddevs| Kind::ApproxCountDistinct { lg_k, confidence_stddevs };
        let quantiles = |ranks: &[f64], k| Kind::ApproxQuantile { q: ranks.to_vec(), k };
        for (kind, code) in [
            (Kind::LastN { count: 0 }, invalid),
            (Kind::LastN { count: AGGREGATE_LAST_MAX + 1 }, limit),
            (distinct(3, None), invalid),
            (distinct(17, None), limit),
            (distinct(12, Some(0)), invalid),
            (distinct(12, Some(4)), limit),
            (quantiles(&[], 100), invalid),
            (quantiles(&[0.5; AGGREGATE_QUANTILES_MAX + 1], 100), limit),
            (quantiles(&[1.5], 100), invalid),
            (quantiles(&[f64::NAN], 100), invalid),
            (quantiles(&[0.5, 0.5], 100), invalid),
            (quantiles(&[0.0, -0.0], 100), invalid),
            (quantiles(&[0.5], 9), invalid),
            (quantiles(&[0.5], 1_001), limit),
        ] {
            assert_eq!(refusal_code(kind.clone(), float), code, "{kind:?}");
        }
        let top = |count, lg_counters| Kind::TopK { count, lg_counters };
        for (kind, code) in [(top(0, 9), invalid), (top(1, 2), invalid), (top(1, 11), limit)] {
            assert_eq!(refusal_code(kind, Some(ScalarType::Int64)), code);
        }
    }

    #[test]
    fn aggregate_checks_the_type_and_length_of_retained_values() {
        let new = |kind, input| AggregateSpec::new(kind, input).unwrap();
        let last = new(AggregateKind::Last, Some(ScalarType::String));
        let text = |bytes: usize| Value::String("x".repeat(bytes));
        assert_eq!(last.check(None), Ok(()));
        assert_eq!(last.check(Some(&text(AGGREGATE_ITEM_BYTES_MAX))), Ok(()));
        let long = text(AGGREGATE_ITEM_BYTES_MAX + 1);
        assert_eq!(last.check(Some(&long)).unwrap_err().code(), ErrorCode::LimitExceeded);
        let other = last.check(Some(&Value::Bool(true))).unwrap_err();
        assert_eq!(other.code(), ErrorCode::InvalidArgument);
        let kind =
            AggregateKind::ApproxCountDistinct { lg_k: DISTINCT_LG_K, confidence_stddevs: None };
        let distinct = new(kind, Some(ScalarType::String));
        assert_eq!(distinct.check(Some(&long)), Ok(()), "it keeps no value");
        let count = new(AggregateKind::Count, None);
        let error = count.check(Some(&long)).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument);
    }
}
