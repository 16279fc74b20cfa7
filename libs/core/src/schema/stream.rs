//! Streams: stores of events, which are appended and never changed. What makes a store one, what it
//! refuses of its columns' values, and what an event must be.

use super::{Definition, Field};
use crate::change::{Change, FieldChange, FieldOp, Verb};
use crate::error::{Error, Result};
use crate::fit::fit;
use crate::id::FieldId;
use crate::limits::{ALLOWED_VALUES_MAX, STREAM_INDEXES_MAX};
use crate::merge::compare;
use crate::value::{FieldType, ScalarType, Value};
use crate::view::View;

/// What a stream does with a column: which values it refuses, and whether its events are found by
/// them. A store of documents has no such rules.
///
/// What is refused is refused when an event is inserted. What a log has is not held against rules
/// that came later.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ColumnRules {
    /// Whether an event must have a value: neither absent nor null. A column with a default needs
    /// no such rule, for the default is stored where the value is absent.
    pub required: bool,
    /// The values that there are; empty for all of the column's type.
    pub allowed: Vec<Value>,
    /// How events are found by their values. An index that comes later has all that is retained.
    pub index: Option<ColumnIndex>,
}

/// How the retained events of a stream are found by a column's values; those without a value are
/// not found by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnIndex {
    /// Those of one value, in the order of their times. Takes few bytes for each event, however
    /// long the value is.
    Exact,
    /// Those of one value, or between two.
    Range,
}

/// What makes a store a stream of events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stream {
    /// The column that says when an event happened. Without it, and where an event has no value of
    /// it, that is when the log took it.
    pub event_time: Option<FieldId>,
    /// What derives its events of another stream's, if it is a feature view.
    pub view: Option<Box<View>>,
}

/// A stream as its creator asks for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamSpec {
    /// Name of the timestamp column that says when an event happened.
    pub event_time: Option<String>,
}

impl StreamSpec {
    /// The stream that it is in a definition that has its columns.
    ///
    /// # Errors
    /// `InvalidArgument` for an event time that is none of them.
    pub(super) fn define(&self, definition: &Definition) -> Result<Stream> {
        let id = |name: &String| match definition.field(name) {
            Some(field) => Ok(field.id),
            None => {
                let message = "declare the event time among the columns";
                Err(Error::invalid_argument(message).with_field(name))
            }
        };
        Ok(Stream { event_time: self.event_time.as_ref().map(id).transpose()?, view: None })
    }
}

impl ColumnRules {
    /// Whether they refuse nothing.
    pub fn is_empty(&self) -> bool {
        !self.required && self.allowed.is_empty() && self.index.is_none()
    }

    /// The same rules with values of a column's type.
    ///
    /// # Errors
    /// `InvalidArgument` for a value that the type does not hold.
    pub(super) fn fitted(self, to: FieldType) -> Result<Self> {
        let allowed = self.allowed.into_iter().map(|value| fit(value, to));
        Ok(Self { allowed: allowed.collect::<Result<_>>()?, ..self })
    }

    fn check(&self, field: &Field) -> Result<()> {
        if self.required && field.default.is_some() {
            let message = "a column has a default, or is required: with one no value is missing";
            return Err(Error::invalid_argument(message));
        }
        if self.allowed.len() > ALLOWED_VALUES_MAX {
            let (limit, actual) = (ALLOWED_VALUES_MAX as u64, self.allowed.len() as u64);
            return Err(Error::limit_exceeded("allow fewer values, or all", limit, actual));
        }
        let is_compared = !self.allowed.is_empty() || self.index.is_some();
        if is_compared && !matches!(field.field_type, FieldType::Scalar(_)) {
            let not = format!("not a {}", field.field_type);
            let message = format!("only scalars have allowed values, or an index, {not}");
            return Err(Error::invalid_argument(message));
        }
        self.allowed.iter().try_for_each(|value| value.check(field.field_type))?;
        match field.default.iter().find(|default| !self.allows(default)) {
            Some(_) => Err(Error::invalid_argument("a default is one of the allowed values")),
            None => Ok(()),
        }
    }

    /// Whether a value is one of those that there are.
    fn allows(&self, value: &Value) -> bool {
        let is_it = |one: &Value| compare(one, value).is_some_and(|order| order.is_eq());
        self.allowed.is_empty() || self.allowed.iter().any(is_it)
    }
}

impl Definition {
    /// Refuses a store of events where one of documents is meant.
    ///
    /// # Errors
    /// `InvalidArgument`, naming the store.
    pub fn check_is_of_documents(&self) -> Result<()> {
        match self.stream {
            None => Ok(()),
            Some(_) => {
                let message = "a stream holds events, not documents: read what is made of them";
                Err(Error::invalid_argument(message).with_store(&self.name))
            }
        }
    }

    /// The column that says when an event of a stream happened, where there is one.
    pub fn event_time(&self) -> Option<&Field> {
        self.field_by_id(self.stream.as_ref()?.event_time?)
    }

    /// What makes it a feature view, if it is one.
    pub fn view(&self) -> Option<&View> {
        self.stream.as_ref()?.view.as_deref()
    }

    /// What a stream is not, and what its columns may be; of a store of documents that it has no
    /// rules for columns.
    pub(super) fn check_stream(&self) -> Result<()> {
        let Some(stream) = &self.stream else {
            return match self.fields.iter().find(|field| !field.rules.is_empty()) {
                None => Ok(()),
                Some(field) => {
                    let message = "only a stream's columns are required, have allowed values, or \
                                   an index";
                    Err(Error::invalid_argument(message).with_field(&field.name))
                }
            };
        };
        let has_time_to_live =
            self.options.ttl_us.is_some() || self.fields.iter().any(|field| field.ttl_us.is_some());
        for (is_so, message) in [
            (self.key_value, "a stream has columns; a key-value store is none"),
            (self.partition_key.is_some(), "a stream is partitioned by its key; name no other"),
            (self.options.versioned, "events have no versions; leave `versioned` out"),
            (has_time_to_live, "events have no time to live; leave it out"),
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
            return Err(Error::limit_exceeded("index fewer columns", limit, actual));
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
                let message = format!("an event time is a timestamp, not a {other}");
                Err(Error::invalid_argument(message))
            }
            None => Err(Error::invalid_argument("declare the event time among the columns")),
        }
    }
}

impl Change {
    /// Refuses an insert that is no event: it only sets columns, and holds for ever.
    pub(crate) fn check_verb(&self, definition: &Definition) -> Result<()> {
        match (self.verb, &definition.stream) {
            (Verb::Insert, None) => {
                let message = "only a stream takes inserts; upsert the document";
                Err(Error::invalid_argument(message))
            }
            (Verb::Insert, Some(_)) => self.check_is_event(),
            (_, Some(_)) => {
                let message = "events are inserted and never changed; insert another one";
                Err(Error::invalid_argument(message))
            }
            (_, None) => Ok(()),
        }
    }

    fn check_is_event(&self) -> Result<()> {
        let has_ttl = |change: &FieldChange| change.ttl_us.is_some();
        if self.condition.is_some() || self.ttl_us.is_some() || self.fields.iter().any(has_ttl) {
            let message = "an event has no condition and no time to live";
            return Err(Error::invalid_argument(message));
        }
        if self.fields.iter().all(|change| matches!(change.op, FieldOp::Set(_))) {
            return Ok(());
        }
        Err(Error::invalid_argument("an event only sets columns"))
    }

    /// Refuses an event that its stream's newest rules do not let in, before it is appended. What
    /// it was made with may have had fewer columns, and of the others it needs no value. Other
    /// changes pass.
    ///
    /// # Errors
    /// `InvalidArgument`, naming the column.
    pub fn check_rules(&self, newest: &Definition, made_with: &Definition) -> Result<()> {
        if self.verb != Verb::Insert {
            return Ok(());
        }
        for column in newest.fields.iter().filter(|field| !field.rules.is_empty()) {
            let message = match self.set_value(column.id) {
                None if column.rules.required && made_with.field_by_id(column.id).is_some() => {
                    "the column is required: give it a value"
                }
                Some(value) if !column.rules.allows(value) => {
                    "the value is none of those that the column allows; describe the stream"
                }
                _ => continue,
            };
            return Err(Error::invalid_argument(message).with_field(&column.name));
        }
        Ok(())
    }

    /// What an event has in a column; `None` where it is null or not named.
    pub fn set_value(&self, column: FieldId) -> Option<&Value> {
        self.fields.iter().find_map(|change| match &change.op {
            FieldOp::Set(value) if change.field == column => value.as_ref(),
            _ => None,
        })
    }

    /// Sets the columns of an event that it does not name to their defaults.
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
