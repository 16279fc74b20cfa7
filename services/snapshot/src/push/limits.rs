//! Limits on the files of a push: the number of rows, and the fraction of missing values of a
//! field.

use std::collections::BTreeMap;

use forebay_core::id::FieldId;
use forebay_core::schema::Definition;
use forebay_core::{Error, Result};
use serde::{Deserialize, Serialize};

/// Limits of a push; a push beyond them fails. Duplicate keys always fail a push.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PushLimits {
    /// Minimum number of rows.
    pub rows_min: u64,
    /// Maximum number of rows.
    pub rows_max: Option<u64>,
    /// Maximum fraction of rows, from 0 to 1, without a value of a field.
    pub null_rates_max: BTreeMap<String, f64>,
}

/// Counters of the rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RowCounts {
    /// Number of all rows.
    pub rows: u64,
    /// Number of rows that have a value, by field.
    pub values: BTreeMap<u32, u64>,
}

impl RowCounts {
    /// Counts a row with values of these fields.
    pub(crate) fn add(&mut self, fields: impl Iterator<Item = FieldId>) {
        self.rows += 1;
        for field in fields {
            *self.values.entry(field.0).or_default() += 1;
        }
    }
}

impl PushLimits {
    /// Checks that the limits are valid, before anything is read.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub(crate) fn check(&self, definition: &Definition) -> Result<()> {
        if self.rows_max.is_some_and(|rows_max| rows_max < self.rows_min) {
            return Err(Error::invalid_argument(
                "the minimum of rows is above the maximum; lower the minimum",
            ));
        }
        for (name, rate) in &self.null_rates_max {
            let wrong = |message: &str| Err(Error::invalid_argument(message).with_field(name));
            if !(0.0..=1.0).contains(rate) {
                return wrong("the share of nulls is outside 0 to 1; give a share from 0 to 1");
            }
            if definition.field(name).is_none() {
                return wrong("the store has no such field; name a field of the store");
            }
        }
        Ok(())
    }

    /// Checks the counters against the limits.
    ///
    /// # Errors
    /// `InvalidArgument`, with the limit and the counted value.
    pub(crate) fn check_counts(&self, counts: &RowCounts, definition: &Definition) -> Result<()> {
        let rows = counts.rows;
        if rows < self.rows_min || self.rows_max.is_some_and(|rows_max| rows > rows_max) {
            let rows_max =
                self.rows_max.map_or("any number".to_owned(), |rows_max| rows_max.to_string());
            let message =
                format!("the files hold {rows} rows, not {} to {rows_max}", self.rows_min);
            return Err(Error::invalid_argument(message));
        }
        for (name, rate_max) in &self.null_rates_max {
            let field = definition.field(name).map(|field| field.id.0).unwrap_or_default();
            let values = counts.values.get(&field).copied().unwrap_or_default();
            let rate = (rows - values) as f64 / rows.max(1) as f64;
            if rate > *rate_max {
                let message = format!("{rate:.4} of the rows have no value, more than {rate_max}");
                return Err(Error::invalid_argument(message).with_field(name));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::id::StoreId;
    use forebay_core::key::KeyType;
    use forebay_core::schema::StoreSpec;
    use forebay_core::value::FieldType;

    use super::*;

    fn definition() -> Definition {
        let int = FieldType::INT32;
        let spec = StoreSpec::documents("users", KeyType::String).partitions(1).field("age", int);
        spec.define(StoreId(1)).unwrap()
    }

    fn counts(rows: u64, ages: u64) -> RowCounts {
        RowCounts { rows, values: BTreeMap::from([(1, ages)]) }
    }

    fn limits(rows_min: u64, rows_max: Option<u64>, rate: f64) -> PushLimits {
        let null_rates_max = BTreeMap::from([("age".to_owned(), rate)]);
        PushLimits { rows_min, rows_max, null_rates_max }
    }

    #[test]
    fn limits_include_their_ends() {
        let definition = definition();
        let passes = |limits: &PushLimits, rows, ages| {
            limits.check_counts(&counts(rows, ages), &definition).is_ok()
        };
        let limits = limits(10, Some(20), 0.25);
        limits.check(&definition).unwrap();
        assert!(passes(&limits, 20, 15) && passes(&limits, 10, 10));
        assert!(!passes(&limits, 9, 9) && !passes(&limits, 21, 21) && !passes(&limits, 20, 14));
        assert!(PushLimits::default().check_counts(&counts(0, 0), &definition).is_ok());
    }

    #[test]
    fn impossible_limits_are_refused_before_anything_is_read() {
        let definition = definition();
        assert!(limits(2, Some(1), 0.5).check(&definition).is_err());
        for rate in [-0.1, 1.1, f64::NAN] {
            assert!(limits(0, None, rate).check(&definition).is_err());
        }
        let mut other = limits(0, None, 0.5);
        other.null_rates_max = BTreeMap::from([("size".to_owned(), 0.5)]);
        assert!(other.check(&definition).unwrap_err().to_string().contains("size"));
    }
}
