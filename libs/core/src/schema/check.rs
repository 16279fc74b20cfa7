//! Checks of a definition: its names, ids and times to live, its limits, its internal consistency,
//! and whether it can follow the previous definition.

use std::collections::BTreeSet;

use super::{Definition, Field, KEY_VALUE_FIELD};
use crate::error::{Error, Result};
use crate::id::{FieldId, PartitionCount, PartitionRef};
use crate::limits::{
    ALIASES_MAX, FIELD_ID_MAX, FIELDS_MAX, NAME_BYTES_MAX, ROW_BYTES_MAX, SCHEMA_VERSION_MAX,
    TTL_US_MAX,
};
use crate::value::{FieldType, ScalarType};

impl Definition {
    /// Refuses a definition that breaks a limit or contradicts itself; decoders call it, too.
    pub fn check(&self) -> Result<()> {
        let at_store = |error: Error| error.with_store(&self.name);
        check_name(&self.name).map_err(at_store)?;
        if self.store == PartitionRef::CONTROL.store {
            return Err(at_store(Error::invalid_argument(
                "store id 0 is the control log; choose another store id",
            )));
        }
        PartitionCount::new(self.partitions.0).map_err(at_store)?;
        if self.version.0 == 0 || self.version.0 > SCHEMA_VERSION_MAX {
            let advice =
                "the store has used up its schema versions; move the documents into a new store";
            return Err(at_store(Error::limit_exceeded(
                advice,
                SCHEMA_VERSION_MAX.into(),
                self.version.0.into(),
            )));
        }
        if self.fields.len() > FIELDS_MAX {
            let found = self.fields.len() as u64;
            let advice = "the store has too many fields; drop fields, or split the store";
            return Err(at_store(Error::limit_exceeded(advice, FIELDS_MAX as u64, found)));
        }
        check_ttl(self.options.ttl_us).map_err(at_store)?;
        if self.options.log_retention_us.is_some_and(|span| !(0..=TTL_US_MAX).contains(&span)) {
            let message = format!(
                "log_retention_us must be 0 to {TTL_US_MAX}, or unset to retain the whole log"
            );
            return Err(at_store(Error::invalid_argument(message)));
        }
        let message = match self.options.log_retention_bytes {
            Some(0) => {
                Some("log_retention_bytes must be at least 1, or unset to retain by time alone")
            }
            Some(_) if self.stream.is_none() => {
                Some("log_retention_bytes is an option of streams only; leave it out")
            }
            _ => None,
        };
        if let Some(message) = message {
            return Err(at_store(Error::invalid_argument(message)));
        }
        if self.options.heartbeat_ms == 0 {
            let message = "heartbeat_ms must be at least 1";
            return Err(at_store(Error::invalid_argument(message)));
        }
        self.check_ids().map_err(at_store)?;
        self.check_fields().map_err(at_store)?;
        self.check_key_value().map_err(at_store)?;
        self.check_stream().map_err(at_store)?;
        self.versions.check().map_err(at_store)?;
        self.check_partition_key().map_err(at_store)
    }

    /// Refuses a definition that cannot directly follow `previous` in one store's history.
    ///
    /// # Errors
    /// Returns `InvalidArgument`, naming the change that would make earlier rows or keys
    /// unreadable.
    pub fn check_follows(&self, previous: &Self) -> Result<()> {
        let refuse =
            |message: &str| Err(Error::invalid_argument(message).with_store(&previous.name));
        let fixed_parts = |definition: &Self| {
            let stream = definition.stream.as_ref().map(|stream| stream.event_time);
            (
                definition.store,
                definition.key_type,
                definition.partition_key,
                definition.partitions,
                definition.key_value,
                stream,
            )
        };
        if fixed_parts(self) != fixed_parts(previous) || self.name != previous.name {
            return refuse("a store's id, name, keys and partition count are fixed");
        }
        match (self.view(), previous.view()) {
            (None, None) => {}
            (Some(now), Some(before)) if now.derives_as(before) => {}
            _ => return refuse("the derivation of a view's events is fixed; create another view"),
        }
        if previous.version.0.checked_add(1) != Some(self.version.0) {
            return refuse("the version of a definition must be one above the previous version");
        }
        if self.drop_all_count < previous.drop_all_count {
            return refuse("a definition cannot take back a drop-all");
        }
        self.versions.check_follows(&previous.versions).map_err(|e| e.with_store(&self.name))?;
        let forgets = previous.retired.difference(&self.retired).next().is_some();
        if forgets || self.next_field_id < previous.next_field_id {
            return refuse("a field id cannot be used again");
        }
        for field in &previous.fields {
            let Some(now) = self.field_by_id(field.id) else {
                if self.retired.contains(&field.id) {
                    continue;
                }
                return refuse("the id of a dropped field must be retired");
            };
            let (from, to) = (field.field_type, now.field_type);
            if from != to && !from.widens_to(to) {
                return refuse(&format!("{from} does not widen to {to}"));
            }
        }
        let is_new = |field: &&Field| previous.field_by_id(field.id).is_none();
        if self.fields.iter().filter(is_new).any(|field| field.id < previous.next_field_id) {
            return refuse("a new field must take a new id");
        }
        Ok(())
    }

    fn check_ids(&self) -> Result<()> {
        check_field_id(FieldId(self.next_field_id.0.saturating_sub(1)))?;
        match self.retired.last() {
            Some(last) if *last >= self.next_field_id => Err(Error::invalid_argument(
                "a retired field id was never in use; retire ids of dropped fields only",
            )),
            _ => Ok(()),
        }
    }

    fn check_key_value(&self) -> Result<()> {
        let is_value =
            |field: &Field| field.name == KEY_VALUE_FIELD && field.field_type == FieldType::BYTES;
        let is_value_field = matches!(self.fields.as_slice(), [field] if is_value(field));
        if !self.key_value || (is_value_field && self.partition_key.is_none()) {
            return Ok(());
        }
        let message = "a key-value store has one bytes field named `value` and no partition key; \
            declare a document store for other fields";
        Err(Error::invalid_argument(message))
    }

    fn check_fields(&self) -> Result<()> {
        let mut names = BTreeSet::new();
        let mut last = FieldId(0);
        let mut fixed_bytes = 0;
        for field in &self.fields {
            let at_field = |error: Error| error.with_field(&field.name);
            let id = field.id;
            if id <= last || id >= self.next_field_id || self.retired.contains(&id) {
                return Err(at_field(Error::invalid_argument(
                    "the field id is used twice; give each field an id of its own",
                )));
            }
            last = id;
            if field.aliases.len() > ALIASES_MAX {
                let (limit, actual) = (ALIASES_MAX as u64, field.aliases.len() as u64);
                let advice = "the field has too many aliases; rename the field back to one of its \
                    aliases, or add another field";
                return Err(at_field(Error::limit_exceeded(advice, limit, actual)));
            }
            for name in std::iter::once(&field.name).chain(&field.aliases) {
                check_name(name).map_err(at_field)?;
                if !names.insert(name.as_str()) {
                    return Err(at_field(Error::invalid_argument(
                        "two fields share a name; rename one of the two",
                    )));
                }
            }
            if matches!(field.field_type, FieldType::Vector(_, 0)) {
                return Err(at_field(Error::invalid_argument(
                    "a vector has no components; declare one or more",
                )));
            }
            if let Some(default) = &field.default {
                default.check(field.field_type).map_err(at_field)?;
            }
            check_ttl(field.ttl_us).map_err(at_field)?;
            fixed_bytes += field.field_type.width().unwrap_or(4);
        }
        if fixed_bytes > ROW_BYTES_MAX / 2 {
            let advice = "the fixed fields need too much of a row; use fewer or shorter vectors";
            let limit = (ROW_BYTES_MAX / 2) as u64;
            return Err(Error::limit_exceeded(advice, limit, fixed_bytes as u64));
        }
        Ok(())
    }

    fn check_partition_key(&self) -> Result<()> {
        let Some(id) = self.partition_key else { return Ok(()) };
        let field = self.field_by_id(id).ok_or_else(|| {
            Error::invalid_argument(
                "the partition key is not among the fields; declare a field of that name",
            )
        })?;
        match field.field_type {
            FieldType::Scalar(ScalarType::String | ScalarType::Bytes | ScalarType::Int64) => Ok(()),
            other => {
                let message = format!(
                    "a partition key must be a string, bytes or int64, not {other}; name another \
                     field"
                );
                Err(Error::invalid_argument(message).with_field(&field.name))
            }
        }
    }
}

/// Refuses a field id beyond the limit.
pub(super) fn check_field_id(id: FieldId) -> Result<()> {
    if id.0 <= FIELD_ID_MAX {
        return Ok(());
    }
    let advice = "the store has used up its field ids; move the documents into a new store";
    Err(Error::limit_exceeded(advice, FIELD_ID_MAX.into(), id.0.into()))
}

/// Refuses a time to live that is not above 0, or over the limit.
pub(crate) fn check_ttl(ttl_us: Option<i64>) -> Result<()> {
    match ttl_us {
        Some(ttl) if ttl <= 0 => Err(Error::invalid_argument(
            "a time to live must be above 0 microseconds; delete the value to end it now",
        )),
        Some(ttl) if ttl > TTL_US_MAX => Err(Error::limit_exceeded(
            "the time to live is too long; shorten it, or leave it out to keep the value without \
             end",
            TTL_US_MAX as u64,
            ttl as u64,
        )),
        _ => Ok(()),
    }
}

/// Refuses a store or field name that is empty, too long or not printable.
pub fn check_name(name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::invalid_argument("the name is empty; give at least one character"));
    }
    if name.len() > NAME_BYTES_MAX {
        let (limit, actual) = (NAME_BYTES_MAX as u64, name.len() as u64);
        return Err(Error::limit_exceeded("the name is too long; shorten the name", limit, actual));
    }
    if name.chars().any(char::is_control) {
        return Err(Error::invalid_argument(
            "the name has a control character; remove the character",
        ));
    }
    Ok(())
}
