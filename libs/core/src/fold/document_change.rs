//! The effect of one change on one document: condition, verb, field operations, expiries.

use std::cmp::Ordering;

use crate::catalog::SchemaAt;
use crate::change::{Change, Condition, FieldOp, Verb};
use crate::clock::Timestamp;
use crate::id::{FieldId, Position};
use crate::key::Key;
use crate::merge::{MergeResult, merge};
use crate::outcome::ConditionOutcome;
use crate::row::Document;
use crate::schema::Definition;
use crate::value::{FieldType, Value, compare};

/// Effect of a change on the document under its key.
pub(super) enum Effect {
    /// The document does not change.
    Keep,
    /// The document becomes this one.
    Write(Document),
    /// The document is deleted.
    Delete,
}

/// Applies a change to the document under its key, from which expired and retired fields are
/// already removed.
pub(super) fn change_document(
    present: Option<&Document>,
    change: &Change,
    schema: &SchemaAt,
    now: Timestamp,
    at: Position,
) -> (Effect, ConditionOutcome) {
    let definition = &schema.definition;
    if !condition_holds(present, change, definition) {
        let version = present.and_then(|document| document.version);
        return (Effect::Keep, ConditionOutcome::ConditionFailed(version));
    }
    let effect = match (change.verb, present) {
        (Verb::Delete, Some(_)) => Effect::Delete,
        (Verb::Delete, None) => Effect::Keep,
        (Verb::Upsert, None) if only_takes(change) => Effect::Keep,
        (Verb::Upsert, present) => {
            Effect::Write(changed_document(present, change, definition, now, at))
        }
        // A stream has no documents.
        (Verb::Insert, _) => Effect::Keep,
        (Verb::Put, _) => Effect::Write(changed_document(None, change, definition, now, at)),
    };
    (effect, ConditionOutcome::Applied)
}

/// Returns whether a change only removes; on an absent document such a change creates none.
fn only_takes(change: &Change) -> bool {
    let takes = |op: &FieldOp| matches!(op, FieldOp::Remove | FieldOp::SetRemove { .. });
    !change.fields.is_empty() && change.fields.iter().all(|field_change| takes(&field_change.op))
}

/// Returns `base`, or a new document, with the change's fields. Fields that the change names are
/// not copied from `base` first.
fn changed_document(
    base: Option<&Document>,
    change: &Change,
    definition: &Definition,
    now: Timestamp,
    at: Position,
) -> Document {
    let expiry = |ttl_us: Option<i64>| ttl_us.map(|ttl| now.plus_micros(ttl));
    let is_named = |id: FieldId| change.fields.iter().any(|field_change| field_change.field == id);
    let mut document = match base {
        Some(base) => base.copied_where(|cell| !is_named(cell.field)),
        None => Document::new(expiry(definition.options.ttl_us), None),
    };
    let before = |id: FieldId| base.and_then(|base| base.cell(id));
    if change.ttl_us.is_some() {
        document.expires_at = expiry(change.ttl_us);
    }
    document.version = definition.options.versioned.then(|| definition.document_version(at));
    set_partition_key(&mut document, &change.key, definition);
    for field_change in &change.fields {
        // The field was retired after the entry was created: its value is ignored.
        let Some(field) = definition.field_by_id(field_change.field) else { continue };
        let expires_at = expiry(field_change.ttl_us.or(field.ttl_us));
        // At this point the document can hold only the partition key's field, with the key's own
        // value.
        let present = document.cell(field.id).or_else(|| before(field.id));
        let value = present.and_then(|cell| cell.value.as_ref());
        match merge(value, &field_change.op, field.field_type) {
            MergeResult::Set(value) => document.set(field.id, value, expires_at),
            MergeResult::Absent => document.remove(field.id),
            // Each write of a field sets its expiry, even if the value does not change.
            MergeResult::Unchanged => {
                if let Some(value) = present.map(|cell| cell.value.clone()) {
                    document.set(field.id, value, expires_at);
                }
            }
        }
    }
    document
}

fn condition_holds(present: Option<&Document>, change: &Change, definition: &Definition) -> bool {
    match change.condition {
        None => true,
        Some(Condition::IfAbsent) => present.is_none(),
        Some(Condition::IfVersion(version)) => {
            present.and_then(|document| document.version) == Some(version)
        }
        Some(Condition::IfNewer(id)) => is_newer(present, id, change, definition),
    }
}

/// Returns whether the change sets the field above its present value. NaN is above nothing, not
/// even absent.
fn is_newer(
    present: Option<&Document>,
    id: FieldId,
    change: &Change,
    definition: &Definition,
) -> bool {
    // A retired field has no order: the change is skipped, as its value would be ignored.
    let Some(field) = definition.field_by_id(id) else { return false };
    let new = change.fields.iter().find_map(|field_change| match &field_change.op {
        FieldOp::Set(Some(value)) if field_change.field == id => {
            Some(value.clone().widened_to(field.field_type))
        }
        _ => None,
    });
    match (new, present.and_then(|document| document.value(id))) {
        (Some(new), Some(old)) if !old.is_nan() => compare(&new, old) == Some(Ordering::Greater),
        (Some(new), _) => !new.is_nan(),
        (None, _) => false,
    }
}

/// Sets the partition key's field to the value in the key.
fn set_partition_key(document: &mut Document, key: &Key, definition: &Definition) {
    let Some(id) = definition.partition_key else { return };
    let Ok((Some(bytes), _)) = Key::split(key.as_bytes(), true) else { return };
    let Some(field) = definition.field_by_id(id) else { return };
    let value = match field.field_type {
        FieldType::INT64 => match bytes.try_into() {
            Ok(bytes) => Value::Int64(i64::from_le_bytes(bytes)),
            Err(_) => return,
        },
        FieldType::STRING => match std::str::from_utf8(bytes) {
            Ok(text) => Value::String(text.to_owned()),
            Err(_) => return,
        },
        _ => Value::Bytes(bytes.to_vec()),
    };
    document.set(id, Some(value), None);
}
