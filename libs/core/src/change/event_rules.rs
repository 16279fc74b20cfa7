//! Rules of events: an insert only sets columns of a stream, with values that the stream accepts.

use super::{Change, FieldChange, FieldOp, Verb};
use crate::error::{Error, Result};
use crate::id::FieldId;
use crate::schema::Definition;
use crate::value::Value;

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
