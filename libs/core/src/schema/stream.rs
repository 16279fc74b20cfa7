//! Streams: stores of events, which are appended and never changed. This module defines the
//! properties of a stream, the rules of its columns, and the checks of an event.

use super::{Definition, Field};
use crate::change::{Change, FieldChange, FieldOp, Verb};
use crate::error::{Error, Result};
use crate::fit::fit;
use crate::id::FieldId;
use crate::limits::{ALLOWED_VALUES_MAX, STREAM_INDEXES_MAX};
use crate::merge::compare;
use crate::value::{FieldType, ScalarType, Value};
use crate::view::View;

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
    pub view: Option<Box<View>>,
}

/// Specification of a stream that a caller creates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamSpec {
    /// Name of the timestamp column with the event time.
    pub event_time: Option<String>,
}

impl StreamSpec {
    /// Resolves the specification with a definition that has the columns.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for an event time that is not a column.
    pub(super) fn define(&self, definition: &Definition) -> Result<Stream> {
        let id = |name: &String| match definition.field(name) {
            Some(field) => Ok(field.id),
            None => {
                let message =
                    "the event time is not among the columns; declare a column of that name";
                Err(Error::invalid_argument(message).with_field(name))
            }
        };
        Ok(Stream { event_time: self.event_time.as_ref().map(id).transpose()?, view: None })
    }
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
    pub(super) fn fitted(self, to: FieldType) -> Result<Self> {
        let allowed = self.allowed.into_iter().map(|value| fit(value, to));
        Ok(Self { allowed: allowed.collect::<Result<_>>()?, ..self })
    }

    fn check(&self, field: &Field) -> Result<()> {
        if self.required && field.default.is_some() {
            let message = "a required column has no use for a default; remove the default, or do \
                not require the column";
            return Err(Error::invalid_argument(message));
        }
        if self.allowed.len() > ALLOWED_VALUES_MAX {
            let (limit, actual) = (ALLOWED_VALUES_MAX as u64, self.allowed.len() as u64);
            return Err(Error::limit_exceeded(
                "the column has too many allowed values; allow fewer values, or all",
                limit,
                actual,
            ));
        }
        let is_compared = !self.allowed.is_empty() || self.index.is_some();
        if is_compared && !matches!(field.field_type, FieldType::Scalar(_)) {
            let not = format!("not a {}", field.field_type);
            let message =
                format!("only a scalar column can have allowed values or an index, {not}");
            return Err(Error::invalid_argument(message));
        }
        self.allowed.iter().try_for_each(|value| value.check(field.field_type))?;
        match field.default.iter().find(|default| !self.allows(default)) {
            Some(_) => Err(Error::invalid_argument(
                "the default is not among the allowed values; allow the default, or choose another",
            )),
            None => Ok(()),
        }
    }

    /// Returns whether a value is allowed.
    fn allows(&self, value: &Value) -> bool {
        let is_it = |one: &Value| compare(one, value).is_some_and(|order| order.is_eq());
        self.allowed.is_empty() || self.allowed.iter().any(is_it)
    }
}

impl Definition {
    /// Refuses a stream if the caller needs a document store.
    ///
    /// # Errors
    /// Returns `InvalidArgument`, naming the store.
    pub fn check_is_of_documents(&self) -> Result<()> {
        match self.stream {
            None => Ok(()),
            Some(_) => {
                let message = "the store is a stream, which holds events instead of documents; \
                    read a store that its views write to";
                Err(Error::invalid_argument(message).with_store(&self.name))
            }
        }
    }

    /// Returns the column with a stream's event time, if it has one.
    pub fn event_time(&self) -> Option<&Field> {
        self.field_by_id(self.stream.as_ref()?.event_time?)
    }

    /// Returns the view's properties, if the store is a feature view.
    pub fn view(&self) -> Option<&View> {
        self.stream.as_ref()?.view.as_deref()
    }

    /// Refuses options and columns that a stream cannot have; refuses column rules in a document
    /// store.
    pub(super) fn check_stream(&self) -> Result<()> {
        let Some(stream) = &self.stream else {
            return match self.fields.iter().find(|field| !field.rules.is_empty()) {
                None => Ok(()),
                Some(field) => {
                    let message = "only a column of a stream can be required, have allowed values, \
                        or have an index";
                    Err(Error::invalid_argument(message).with_field(&field.name))
                }
            };
        };
        let has_time_to_live =
            self.options.ttl_us.is_some() || self.fields.iter().any(|field| field.ttl_us.is_some());
        for (is_so, message) in [
            (
                self.key_value,
                "a stream has columns and cannot be a key-value store; declare one of the two",
            ),
            (
                self.partition_key.is_some(),
                "a stream is partitioned by its key; declare no partition key",
            ),
            (self.options.versioned, "events have no versions; leave `versioned` out"),
            (has_time_to_live, "events have no time to live; leave the time to live out"),
        ] {
            if is_so {
                return Err(Error::invalid_argument(message));
            }
        }
        for field in &self.fields {
            field.rules.check(field).map_err(|error| error.with_field(&field.name))?;
        }
        let indexes = self.fields.iter().filter(|field| field.rules.index.is_some()).count();
        if indexes > STREAM_INDEXES_MAX {
            let (limit, actual) = (STREAM_INDEXES_MAX as u64, indexes as u64);
            return Err(Error::limit_exceeded(
                "the stream has too many indexed columns; index fewer columns",
                limit,
                actual,
            ));
        }
        self.check_event_time()?;
        stream.view.as_ref().map_or(Ok(()), |view| view.check(self))
    }

    fn check_event_time(&self) -> Result<()> {
        let Some(id) = self.stream.as_ref().and_then(|stream| stream.event_time) else {
            return Ok(());
        };
        match self.field_by_id(id).map(|field| field.field_type) {
            Some(FieldType::Scalar(ScalarType::Timestamp)) => Ok(()),
            Some(other) => {
                let message = format!("an event time must be a timestamp, not a {other}");
                Err(Error::invalid_argument(message))
            }
            None => Err(Error::invalid_argument(
                "the event time is not among the columns; declare a column of that name",
            )),
        }
    }
}

impl Change {
    /// Refuses an insert that is not an event: an event only sets columns and never expires.
    pub(crate) fn check_verb(&self, definition: &Definition) -> Result<()> {
        match (self.verb, &definition.stream) {
            (Verb::Insert, None) => {
                let message = "only a stream accepts inserts; upsert the document";
                Err(Error::invalid_argument(message))
            }
            (Verb::Insert, Some(_)) => self.check_is_event(),
            (_, Some(_)) => {
                let message = "a stream accepts only inserts, because an event never changes; \
                    insert another event";
                Err(Error::invalid_argument(message))
            }
            (_, None) => Ok(()),
        }
    }

    fn check_is_event(&self) -> Result<()> {
        let has_ttl = |change: &FieldChange| change.ttl_us.is_some();
        if self.condition.is_some() || self.ttl_us.is_some() || self.fields.iter().any(has_ttl) {
            let message = "an event takes no condition and no time to live; leave both out";
            return Err(Error::invalid_argument(message));
        }
        if self.fields.iter().all(|change| matches!(change.op, FieldOp::Set(_))) {
            return Ok(());
        }
        Err(Error::invalid_argument("an insert can only set columns; use no other operation"))
    }

    /// Refuses an event that the stream's newest rules do not accept, before it is appended. The
    /// definition that the event was created with may lack newer columns; the event needs no values
    /// in them. Changes other than inserts pass.
    ///
    /// # Errors
    /// Returns `InvalidArgument`, naming the column.
    pub fn check_rules(&self, newest: &Definition, made_with: &Definition) -> Result<()> {
        if self.verb != Verb::Insert {
            return Ok(());
        }
        for column in newest.fields.iter().filter(|field| !field.rules.is_empty()) {
            let message = match self.set_value(column.id) {
                None if column.rules.required && made_with.field_by_id(column.id).is_some() => {
                    "the column is required, but the event has no value for it; give the column a \
                     value"
                }
                Some(value) if !column.rules.allows(value) => {
                    "the column does not allow the value; describe the stream for the allowed \
                     values"
                }
                _ => continue,
            };
            return Err(Error::invalid_argument(message).with_field(&column.name));
        }
        Ok(())
    }

    /// Returns an event's value in a column; `None` if it is null or not named.
    pub fn set_value(&self, column: FieldId) -> Option<&Value> {
        self.fields.iter().find_map(|change| match &change.op {
            FieldOp::Set(value) if change.field == column => value.as_ref(),
            _ => None,
        })
    }

    /// Sets the columns that an event does not name to their defaults.
    pub fn fill_in(&mut self, definition: &Definition) {
        if self.verb != Verb::Insert {
            return;
        }
        for column in &definition.fields {
            let Some(default) = &column.default else { continue };
            if !self.fields.iter().any(|change| change.field == column.id) {
                let op = FieldOp::Set(Some(default.clone()));
                self.fields.push(FieldChange { field: column.id, op, ttl_us: None });
            }
        }
    }
}
