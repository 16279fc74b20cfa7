//! Features of a declaration: aggregates with their columns and parameters.

use forebay_core::view::{AggregateKind, DISTINCT_LG_K, FeatureSpec, QUANTILES_K, TOP_LG_COUNTERS};
use serde::Deserialize;
use serde_saphyr::Spanned;

use super::yaml::{LocatedError, WordOr, error_at};

/// Column of an aggregate that counts every event.
const EVERY_EVENT: &str = "*";

/// The aggregate of a feature; a word alone is no aggregate.
pub(super) type FeatureYaml = WordOr<AggregateYaml>;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct AggregateYaml {
    count: Option<String>,
    accumulating_count: Option<String>,
    sum: Option<String>,
    avg: Option<String>,
    min: Option<String>,
    max: Option<String>,
    variance: Option<String>,
    stddev: Option<String>,
    skewness: Option<String>,
    kurtosis: Option<String>,
    first: Option<String>,
    last: Option<String>,
    approx_count_distinct: Option<String>,
    approx_quantile: Option<String>,
    top_k: Option<String>,
    n: Option<u16>,
    q: Option<Vec<f64>>,
    k: Option<u16>,
    lg_k: Option<u8>,
    confidence_stddevs: Option<u8>,
    lg_counters: Option<u8>,
}

/// Converts a feature.
///
/// # Errors
/// `InvalidArgument` with line and column of an invalid aggregate.
pub(super) fn feature(
    (name, yaml): (Spanned<String>, Spanned<FeatureYaml>),
) -> Result<FeatureSpec, LocatedError> {
    let location = yaml.referenced;
    let kind = match yaml.value.0 {
        Ok(word) => Err(format!(
            "`{word}` is not a feature; write {{AGGREGATE: COLUMN}}, such as {{sum: price}} or \
             {{count: \"*\"}}"
        )),
        Err(aggregate) => aggregate.kind(),
    };
    let (kind, input) = kind.map_err(|message| error_at(location, &message))?;
    Ok(FeatureSpec { name: name.value, kind, input })
}

impl AggregateYaml {
    /// Returns the aggregate, and its column if it has one.
    fn kind(mut self) -> std::result::Result<(AggregateKind, Option<String>), String> {
        use AggregateKind as Kind;
        let (n, q) = (self.n.take(), self.q.take());
        let (k, lg_k) = (self.k.take(), self.lg_k.take());
        let (confidence_stddevs, lg_counters) =
            (self.confidence_stddevs.take(), self.lg_counters.take());
        let parameters = [
            ("n", n.is_some()),
            ("q", q.is_some()),
            ("k", k.is_some()),
            ("lg_k", lg_k.is_some()),
            ("confidence_stddevs", confidence_stddevs.is_some()),
            ("lg_counters", lg_counters.is_some()),
        ];
        let (kind, column) =
            self.find_aggregate((n, q, k, lg_k, confidence_stddevs, lg_counters))?;
        let allowed_parameters: &[&str] = match &kind {
            Kind::LastN { .. } => &["n"],
            Kind::ApproxCountDistinct { .. } => &["lg_k", "confidence_stddevs"],
            Kind::ApproxQuantile { .. } => &["q", "k"],
            Kind::TopK { .. } => &["n", "lg_counters"],
            _ => &[],
        };
        let name = kind.name();
        if let Some((parameter, _)) = parameters
            .into_iter()
            .find(|(parameter, is_given)| *is_given && !allowed_parameters.contains(parameter))
        {
            return Err(format!("{name} has no parameter `{parameter}`; remove it"));
        }
        if column != EVERY_EVENT {
            return Ok((kind, Some(column)));
        }
        match kind {
            Kind::Count | Kind::AccumulatingCount => Ok((kind, None)),
            _ => Err(format!("{name} needs a column; write {{{name}: COLUMN}}")),
        }
    }

    /// Returns the single named aggregate and its column.
    fn find_aggregate(
        self,
        parameters: Parameters,
    ) -> std::result::Result<(AggregateKind, String), String> {
        use AggregateKind as Kind;
        let (n, q, k, lg_k, confidence_stddevs, lg_counters) = parameters;
        let lg_k = lg_k.unwrap_or(DISTINCT_LG_K);
        let q = q.unwrap_or_else(|| vec![0.5]);
        let k = k.unwrap_or(QUANTILES_K);
        let lg_counters = lg_counters.unwrap_or(TOP_LG_COUNTERS);
        let aggregates = [
            (self.count, Kind::Count),
            (self.accumulating_count, Kind::AccumulatingCount),
            (self.sum, Kind::Sum),
            (self.avg, Kind::Average),
            (self.min, Kind::Min),
            (self.max, Kind::Max),
            (self.variance, Kind::Variance),
            (self.stddev, Kind::StandardDeviation),
            (self.skewness, Kind::Skewness),
            (self.kurtosis, Kind::Kurtosis),
            (self.first, Kind::First),
            (self.last, n.map_or(Kind::Last, |count| Kind::LastN { count })),
            (self.approx_count_distinct, Kind::ApproxCountDistinct { lg_k, confidence_stddevs }),
            (self.approx_quantile, Kind::ApproxQuantile { q, k }),
            (self.top_k, Kind::TopK { count: n.unwrap_or(10), lg_counters }),
        ];
        let mut aggregates =
            aggregates.into_iter().filter_map(|(column, kind)| Some((kind, column?)));
        match (aggregates.next(), aggregates.next()) {
            (Some(aggregate), None) => Ok(aggregate),
            (None, _) => Err(
                "the feature names no aggregate; name an aggregate and its column, as in {sum: \
                    price}"
                    .to_owned(),
            ),
            (Some((aggregate, _)), Some((other, _))) => {
                let (aggregate, other) = (aggregate.name(), other.name());
                Err(format!(
                    "a feature has one aggregate, not both {aggregate} and {other}; declare two \
                     features"
                ))
            }
        }
    }
}

type Parameters = (Option<u16>, Option<Vec<f64>>, Option<u16>, Option<u8>, Option<u8>, Option<u8>);
