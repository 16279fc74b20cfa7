//! Streams: stores of events, which are appended and never changed. This module defines the
//! properties of a stream and the rules of its columns.

use crate::coerce::coerce_value;
use crate::error::Result;
use crate::id::FieldId;
use crate::value::{FieldType, Value, compare};
use crate::view::FeatureView;

/// Rules of a stream's column: the values that it accepts, and whether its values are indexed. A
/// document store has no such rules.
///
/// A stream applies the rules when an event is inserted. Later rules do not affect events that are
/// already in the log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ColumnRules {
    /// Whether an event must have a value, neither absent nor null. A column with a default needs
    /// no such rule, because the default is stored if the value is absent.
    pub required: bool,
    /// Allowed values; empty allows all values of the column's type.
    pub allowed: Vec<Value>,
    /// Index over the column's values. An index that is added later covers all retained events.
    pub index: Option<ColumnIndex>,
}

/// Index over the retained events of a stream by a column's values. Events without a value are not
/// in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnIndex {
    /// Finds the events with one value, in the order of their times. Takes few bytes for each
    /// event, however long the value is.
    Exact,
    /// Finds the events with one value, or with a value in a range.
    Range,
}

/// Properties of a store that is a stream of events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stream {
    /// Column with the event time. If there is no such column, or an event has no value in it, the
    /// event time is the append time.
    pub event_time: Option<FieldId>,
    /// Derivation of the stream's events from another stream, if it is a feature view.
    pub view: Option<Box<FeatureView>>,
}

/// Specification of a stream that a caller creates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamSpec {
    /// Name of the timestamp column with the event time.
    pub event_time: Option<String>,
}

impl ColumnRules {
    /// Returns whether the rules accept every value and have no index.
    pub fn is_empty(&self) -> bool {
        !self.required && self.allowed.is_empty() && self.index.is_none()
    }

    /// Converts the allowed values to a column's type.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for a value that the type does not hold.
    pub(super) fn coerce(self, to: FieldType) -> Result<Self> {
        let values = self.allowed.into_iter().map(|value| coerce_value(value, to));
        Ok(Self { allowed: values.collect::<Result<_>>()?, ..self })
    }

    /// Returns whether a value is allowed.
    pub(crate) fn allows(&self, value: &Value) -> bool {
        let is_it = |one: &Value| compare(one, value).is_some_and(|order| order.is_eq());
        self.allowed.is_empty() || self.allowed.iter().any(is_it)
    }
}
