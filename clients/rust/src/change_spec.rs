//! Change specs: a change as its caller gives it, by names; a definition resolves the spec into a
//! change.

use std::time::Duration;

use forebay_core::change::{Change, Condition, FieldChange, FieldOp, Verb};
use forebay_core::coerce::{coerce_items, coerce_value};
use forebay_core::id::{DocumentVersion, PartitionId, Sequence};
use forebay_core::key::{Key, KeyType, KeyValue};
use forebay_core::partition::partition_of;
use forebay_core::schema::{Definition, Field};
use forebay_core::value::{FieldType, Value};
use forebay_core::{Error, Result};
use forebay_index::DocumentKey;

/// A key as its caller gave it.
#[derive(Clone, Debug)]
pub(crate) struct OwnedKey {
    key_type: KeyType,
    pub(crate) bytes: Vec<u8>,
}

impl From<KeyValue<'_>> for OwnedKey {
    fn from(key: KeyValue<'_>) -> Self {
        Self { key_type: key.key_type(), bytes: key.with_bytes(<[u8]>::to_vec) }
    }
}

impl OwnedKey {
    /// Refuses a key of another type. A key is never converted, so that a read finds the same key
    /// again.
    pub(crate) fn check(&self, declared: KeyType, part: &str) -> Result<()> {
        if self.key_type == declared {
            return Ok(());
        }
        let (key_type, declared) = (self.key_type.name(), declared.name());
        let message = format!(
            "the {part} is a {key_type}, but the store declares {declared}; give a {declared}"
        );
        Err(Error::invalid_argument(message))
    }

    /// Returns the identity of the document or event that has this key, and its partition.
    ///
    /// # Errors
    /// `InvalidArgument` or `LimitExceeded` for a key that is invalid in the store.
    pub(crate) fn route(
        &self,
        partition_key: Option<&Self>,
        definition: &Definition,
    ) -> Result<(Key, PartitionId)> {
        self.check(definition.key_type, "key")?;
        let field = definition.partition_key.and_then(|id| definition.field_by_id(id));
        let declared = field.zip(definition.partition_key_type());
        let (key, hashed) = match (declared, partition_key) {
            (None, None) => (Key::plain(&self.bytes)?, &self.bytes),
            (None, Some(_)) => {
                let message = "the store has no partition key; name none";
                return Err(Error::invalid_argument(message));
            }
            (Some((field, _)), None) => {
                let message = "the store is partitioned by a field; name the value of that field \
                    with every key";
                return Err(Error::invalid_argument(message).with_field(&field.name));
            }
            (Some((field, key_type)), Some(partition_part)) => {
                partition_part
                    .check(key_type, "partition key")
                    .map_err(|error| error.with_field(&field.name))?;
                (Key::partitioned(&partition_part.bytes, &self.bytes)?, &partition_part.bytes)
            }
        };
        Ok((key, partition_of(hashed, definition.write_logs().partitions)))
    }
}

/// A write's condition, before names are resolved.
#[derive(Clone, Debug)]
pub(crate) enum ConditionSpec {
    Absent,
    Version(DocumentVersion),
    Newer(String),
}

/// A change by names.
#[derive(Clone, Debug)]
pub(crate) struct ChangeSpec {
    pub(crate) verb: Verb,
    pub(crate) key: OwnedKey,
    pub(crate) partition_key: Option<OwnedKey>,
    pub(crate) fields: Vec<(String, FieldOp)>,
    pub(crate) field_ttls: Vec<(String, i64)>,
    pub(crate) conditions: Vec<ConditionSpec>,
    pub(crate) ttl_us: Option<i64>,
}

/// A valid change and its partition; the change has no sequence yet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RoutedChange {
    pub(crate) partition: PartitionId,
    pub(crate) change: Change,
}

impl ChangeSpec {
    pub(crate) fn new(verb: Verb, key: DocumentKey<'_>) -> Self {
        Self {
            verb,
            key: key.primary().into(),
            partition_key: key.partition_key().map(Into::into),
            fields: Vec::new(),
            field_ttls: Vec::new(),
            conditions: Vec::new(),
            ttl_us: None,
        }
    }

    /// Resolves the spec into a change by this definition.
    ///
    /// # Errors
    /// `NotFound` for a field that the definition does not have; `InvalidArgument` or
    /// `LimitExceeded` for a value or operation that the definition does not allow. Each error
    /// names the store and the field.
    pub(crate) fn resolve(&self, definition: &Definition) -> Result<RoutedChange> {
        self.resolve_unnamed(definition).map_err(|error| error.with_store(&definition.name))
    }

    fn resolve_unnamed(&self, definition: &Definition) -> Result<RoutedChange> {
        let (key, partition) = self.route(definition)?;
        let mut fields = Vec::with_capacity(self.fields.len());
        for (name, op) in &self.fields {
            let field = field_named(definition, name)?;
            let op = coerce_op(op.clone(), field.field_type).map_err(|e| e.with_field(name))?;
            fields.push(FieldChange { field: field.id, op, ttl_us: None });
        }
        for (name, ttl_us) in &self.field_ttls {
            let field = field_named(definition, name)?.id;
            let change = fields.iter_mut().find(|change| change.field == field);
            let change = change.ok_or_else(|| {
                let message = "the write sets a time to live on a field that it does not change; \
                    change the field, too";
                Error::invalid_argument(message).with_field(name)
            })?;
            change.ttl_us = Some(*ttl_us);
        }
        let condition = self.condition(definition)?;
        let (verb, ttl_us) = (self.verb, self.ttl_us);
        let change = Change { sequence: Sequence(0), key, verb, fields, condition, ttl_us };
        change.check(definition)?;
        Ok(RoutedChange { partition, change })
    }

    /// Returns the document's identity, and its partition.
    ///
    /// # Errors
    /// `InvalidArgument` or `LimitExceeded` for a key that is invalid in the store.
    pub(crate) fn route(&self, definition: &Definition) -> Result<(Key, PartitionId)> {
        self.key.route(self.partition_key.as_ref(), definition)
    }

    fn condition(&self, definition: &Definition) -> Result<Option<Condition>> {
        match self.conditions.as_slice() {
            [] => Ok(None),
            [ConditionSpec::Absent] => Ok(Some(Condition::IfAbsent)),
            [ConditionSpec::Version(version)] => Ok(Some(Condition::IfVersion(*version))),
            [ConditionSpec::Newer(name)] => {
                field_named(definition, name).map(|field| Some(Condition::IfNewer(field.id)))
            }
            _ => Err(Error::invalid_argument("a change has more than one condition; set one")),
        }
    }
}

/// Resolves specs with this definition.
///
/// # Errors
/// The error of the first invalid spec.
pub(crate) fn resolve_all(
    specs: &[ChangeSpec],
    definition: &Definition,
) -> Result<Vec<RoutedChange>> {
    let named = |(place, spec): (usize, &ChangeSpec)| {
        spec.resolve(definition).map_err(|error| match specs.len() {
            1 => error,
            _ => error.while_doing(&format!("check change {place}")),
        })
    };
    specs.iter().enumerate().map(named).collect()
}

/// Returns a time to live in microseconds. A duration too long for the type becomes the type's
/// maximum, which is over the limit as well.
pub(crate) fn ttl_us(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_micros()).unwrap_or(i64::MAX)
}

/// Returns the field of this name or alias.
///
/// # Errors
/// `NotFound`, with the name.
pub(crate) fn field_named<'a>(definition: &'a Definition, name: &str) -> Result<&'a Field> {
    definition.field(name).ok_or_else(|| {
        Error::not_found("the store has no such field; describe the store for its fields")
            .with_field(name)
    })
}

fn coerce_op(op: FieldOp, to: FieldType) -> Result<FieldOp> {
    let items = |items: Vec<Value>| match to {
        FieldType::List(scalar) => coerce_items(items, scalar),
        // The check of the whole change reports the error.
        _ => Ok(items),
    };
    Ok(match op {
        FieldOp::Set(None) => FieldOp::Set(None),
        FieldOp::Set(Some(value)) => FieldOp::Set(Some(coerce_value(value, to)?)),
        FieldOp::Remove => FieldOp::Remove,
        FieldOp::Increment(value) => FieldOp::Increment(coerce_value(value, to)?),
        FieldOp::Min(value) => FieldOp::Min(coerce_value(value, to)?),
        FieldOp::Max(value) => FieldOp::Max(coerce_value(value, to)?),
        FieldOp::ListAppend { items: given_items, bound } => {
            FieldOp::ListAppend { items: items(given_items)?, bound }
        }
        FieldOp::SetAdd { items: given_items, bound } => {
            FieldOp::SetAdd { items: items(given_items)?, bound }
        }
        FieldOp::SetRemove { items: given_items } => {
            FieldOp::SetRemove { items: items(given_items)? }
        }
    })
}

#[cfg(test)]
mod tests {
    use forebay_core::ErrorCode;
    use forebay_core::id::StoreId;
    use forebay_core::schema::{Alteration, StoreSpec};
    use forebay_core::value::ScalarType;

    use super::*;

    fn users() -> Definition {
        StoreSpec::documents("users", KeyType::String)
            .partitions(8)
            .field("age", FieldType::INT64)
            .field("tags", FieldType::List(ScalarType::String))
            .define(StoreId(1))
            .unwrap()
    }

    fn upsert(field: &str, op: FieldOp) -> ChangeSpec {
        let mut spec = ChangeSpec::new(Verb::Upsert, "u1".into());
        spec.fields.push((field.to_owned(), op));
        spec
    }

    fn set(field: &str, value: impl Into<Value>) -> ChangeSpec {
        upsert(field, FieldOp::Set(Some(value.into())))
    }

    #[test]
    fn change_resolves_values_to_declared_types_and_names_to_ids() {
        let routed = set("age", 41).resolve(&users()).unwrap();
        assert_eq!(routed.change.fields[0].op, FieldOp::Set(Some(Value::Int64(41))));
        assert_eq!(routed.change.fields[0].field, users().field("age").unwrap().id);
        assert_eq!(routed.partition, partition_of(b"u1", users().partitions));
    }

    #[test]
    fn old_field_name_resolves_after_a_rename() {
        let rename = Alteration::RenameField { from: "age".into(), to: "years".into() };
        let renamed = users().altered(&[rename]).unwrap();
        let by_alias = set("age", 41).resolve(&renamed).unwrap();
        assert_eq!(by_alias, set("years", 41).resolve(&renamed).unwrap());
    }

    #[test]
    fn invalid_change_is_refused_with_store_and_field() {
        let cases = [
            (set("aeg", 1), ErrorCode::NotFound),
            (set("age", "old"), ErrorCode::InvalidArgument),
            (set("tags", 1), ErrorCode::InvalidArgument),
            (upsert("tags", FieldOp::Increment(1.into())), ErrorCode::InvalidArgument),
            (
                upsert("age", FieldOp::ListAppend { items: vec!["a".into()], bound: 3 }),
                ErrorCode::InvalidArgument,
            ),
        ];
        for (spec, code) in cases {
            let error = spec.resolve(&users()).unwrap_err();
            assert_eq!(error.code(), code, "{error}");
            assert_eq!(error.context().store.as_deref(), Some("users"));
            assert_eq!(error.context().field.as_deref(), Some(spec.fields[0].0.as_str()));
        }
    }

    #[test]
    fn key_of_another_type_is_refused() {
        let error = ChangeSpec::new(Verb::Delete, 7.into()).resolve(&users()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument);
        assert!(error.message().contains("int64") && error.message().contains("string"));
        let bytes =
            StoreSpec::documents("raw", KeyType::Bytes).partitions(1).define(StoreId(1)).unwrap();
        assert!(ChangeSpec::new(Verb::Delete, b"\xff\x00".into()).resolve(&bytes).is_ok());
        assert!(ChangeSpec::new(Verb::Delete, "text".into()).resolve(&bytes).is_err());
    }

    #[test]
    fn declared_partition_key_is_required_in_every_key() {
        let mut spec = StoreSpec::documents("carts", KeyType::String)
            .partitions(8)
            .field("user", FieldType::INT64);
        spec.partition_key = Some("user".to_owned());
        let carts = spec.define(StoreId(1)).unwrap();
        let cart = DocumentKey::from("cart-1");
        let resolve = |key, store: &Definition| ChangeSpec::new(Verb::Delete, key).resolve(store);
        let error = resolve(cart, &carts).unwrap_err();
        assert_eq!(error.context().field.as_deref(), Some("user"));
        let routed = resolve(cart.with_partition_key(9), &carts).unwrap();
        assert_eq!(routed.partition, partition_of(&9i64.to_le_bytes(), carts.partitions));
        assert!(resolve(cart.with_partition_key(9), &users()).is_err());
        assert!(resolve(cart.with_partition_key("nine"), &carts).is_err());
    }

    #[test]
    fn times_to_live_and_conditions_are_checked() {
        let mut spec = set("age", 1);
        spec.field_ttls.push(("tags".to_owned(), 5));
        assert!(spec.resolve(&users()).is_err(), "a time to live without a write");
        spec.field_ttls = vec![("age".to_owned(), 5)];
        assert_eq!(spec.resolve(&users()).unwrap().change.fields[0].ttl_us, Some(5));
        spec.ttl_us = Some(ttl_us(Duration::from_nanos(1)));
        assert!(spec.resolve(&users()).is_err(), "below a microsecond");
        spec.ttl_us = Some(ttl_us(Duration::MAX));
        assert_eq!(spec.resolve(&users()).unwrap_err().code(), ErrorCode::LimitExceeded);
        spec.ttl_us = None;
        spec.conditions = vec![ConditionSpec::Newer("age".to_owned())];
        assert!(spec.resolve(&users()).is_ok());
        spec.conditions.push(ConditionSpec::Absent);
        assert!(spec.resolve(&users()).is_err());
    }
}
