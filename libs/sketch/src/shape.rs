//! Layout of an aggregate's state.

use forebay_core::view::{AggregateKind, AggregateSpec};

/// Layout of a state. Aggregates with the same layout and input can continue with each other's
/// states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Count,
    PowerSums { powers: u8 },
    Extreme { is_greatest: bool },
    Ordered { is_latest: bool, count: u16 },
    Distinct { lg_k: u8 },
    Quantiles { k: u16 },
    Frequent { lg_counters: u8 },
}

impl Shape {
    /// Returns the layout of an aggregate's state.
    pub(crate) fn of(spec: &AggregateSpec) -> Self {
        use AggregateKind as Kind;
        match *spec.kind() {
            Kind::AccumulatingCount if spec.input().is_some() => Self::PowerSums { powers: 1 },
            Kind::Count | Kind::AccumulatingCount => Self::Count,
            Kind::Sum | Kind::Average => Self::PowerSums { powers: 1 },
            Kind::Variance | Kind::StandardDeviation => Self::PowerSums { powers: 2 },
            Kind::Skewness => Self::PowerSums { powers: 3 },
            Kind::Kurtosis => Self::PowerSums { powers: 4 },
            Kind::Min => Self::Extreme { is_greatest: false },
            Kind::Max => Self::Extreme { is_greatest: true },
            Kind::First => Self::Ordered { is_latest: false, count: 1 },
            Kind::Last => Self::Ordered { is_latest: true, count: 1 },
            Kind::LastN { count } => Self::Ordered { is_latest: true, count },
            Kind::DistinctCount { lg_k, .. } => Self::Distinct { lg_k },
            Kind::Quantiles { k, .. } => Self::Quantiles { k },
            Kind::TopK { lg_counters, .. } => Self::Frequent { lg_counters },
        }
    }
}
