//! Checks of a stream's definition: its columns, their rules, and its event time.

use super::stream::{ColumnRules, Stream, StreamSpec};
use super::{Definition, Field};
use crate::error::{Error, Result};
use crate::limits::{ALLOWED_VALUES_MAX, STREAM_INDEXES_MAX};
use crate::value::{FieldType, ScalarType};
use crate::view::FeatureView;

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
            let message = format!(
                "only a scalar column can have allowed values or an index, {not}; remove both rules"
            );
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
    pub fn view(&self) -> Option<&FeatureView> {
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
                        or have an index; declare a stream, or remove these rules";
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
                let message = format!(
                    "an event time must be a timestamp, not a {other}; name another column"
                );
                Err(Error::invalid_argument(message))
            }
            None => Err(Error::invalid_argument(
                "the event time is not among the columns; declare a column of that name",
            )),
        }
    }
}
