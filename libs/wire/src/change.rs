//! Conversion of changes, positions and control records to and from the messages of `change.proto`.

use bytes::Bytes;
use forebay_core::catalog::ControlRecord;
use forebay_core::change::{Change, ClientBatch, Condition, FieldChange, FieldOp, Source, Verb};
use forebay_core::clock::Timestamp;
use forebay_core::id::{
    ClientId, DocumentVersion, Epoch, FieldId, Offset, PartitionId, Position, Sequence, StoreId,
};
use forebay_core::key::Key;
use forebay_core::limits::KEY_BYTES_MAX;
use forebay_core::value::Value;
use forebay_core::{Error, Result};

use crate::decode_error::{self, enumeration, newer_error, unset_error};
use crate::v1;
use crate::v1::field_change::{Bounded, Op, Remove};
use crate::value::{list_items, list_message, nullable_value, nullable_value_message};

/// Longest identity of a document: both parts of a key, and the length prefix.
const IDENTITY_BYTES_MAX: usize = 4 + 2 * KEY_BYTES_MAX;

enumeration!("the verb of a change": Verb, v1::Verb {
    Put = Put,
    Upsert = Upsert,
    Delete = Delete,
    Insert = Insert,
});

impl From<&FieldChange> for v1::FieldChange {
    fn from(change: &FieldChange) -> Self {
        let bounded =
            |items: &[Value], bound: u32| Bounded { items: Some(list_message(items)), bound };
        let op = match &change.op {
            FieldOp::Set(value) => Op::Set(nullable_value_message(value.as_ref())),
            FieldOp::Remove => Op::Remove(Remove {}),
            FieldOp::Increment(value) => Op::Increment(value.into()),
            FieldOp::Min(value) => Op::Min(value.into()),
            FieldOp::Max(value) => Op::Max(value.into()),
            FieldOp::ListAppend { items, bound } => Op::ListAppend(bounded(items, *bound)),
            FieldOp::SetAdd { items, bound } => Op::SetAdd(bounded(items, *bound)),
            FieldOp::SetRemove { items } => Op::SetRemove(list_message(items)),
        };
        Self { field: change.field.0, op: Some(op), ttl_us: change.ttl_us }
    }
}

impl TryFrom<v1::FieldChange> for FieldChange {
    type Error = Error;

    fn try_from(wire: v1::FieldChange) -> Result<Self> {
        let op = match wire.op.ok_or_else(|| newer_error("the operation on a field"))? {
            Op::Set(value) => FieldOp::Set(nullable_value(value)?),
            Op::Remove(_) => FieldOp::Remove,
            Op::Increment(value) => FieldOp::Increment(value.try_into()?),
            Op::Min(value) => FieldOp::Min(value.try_into()?),
            Op::Max(value) => FieldOp::Max(value.try_into()?),
            Op::ListAppend(wire) => {
                let (items, bound) = bounded(wire)?;
                FieldOp::ListAppend { items, bound }
            }
            Op::SetAdd(wire) => {
                let (items, bound) = bounded(wire)?;
                FieldOp::SetAdd { items, bound }
            }
            Op::SetRemove(list) => FieldOp::SetRemove { items: list_items(&list)?.1 },
        };
        Ok(Self { field: FieldId(wire.field), op, ttl_us: wire.ttl_us })
    }
}

fn bounded(wire: Bounded) -> Result<(Vec<Value>, u32)> {
    let list = wire.items.ok_or_else(|| unset_error("the components of a list operation"))?;
    Ok((list_items(&list)?.1, wire.bound))
}

impl From<Condition> for v1::Condition {
    fn from(condition: Condition) -> Self {
        use v1::condition::{IfAbsent, Kind};
        let kind = match condition {
            Condition::IfAbsent => Kind::IfAbsent(IfAbsent {}),
            Condition::IfVersion(version) => Kind::IfVersion(version.0),
            Condition::IfNewer(field) => Kind::IfNewer(field.0),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<v1::Condition> for Condition {
    type Error = Error;

    fn try_from(wire: v1::Condition) -> Result<Self> {
        use v1::condition::Kind;
        Ok(match wire.kind.ok_or_else(|| newer_error("the kind of a condition"))? {
            Kind::IfAbsent(_) => Self::IfAbsent,
            Kind::IfVersion(version) => Self::IfVersion(DocumentVersion(version)),
            Kind::IfNewer(field) => Self::IfNewer(FieldId(field)),
        })
    }
}

impl From<&Change> for v1::Change {
    fn from(change: &Change) -> Self {
        Self {
            sequence: change.sequence.0,
            key: Bytes::copy_from_slice(change.key.as_bytes()),
            verb: v1::Verb::from(change.verb).into(),
            fields: change.fields.iter().map(Into::into).collect(),
            condition: change.condition.map(Into::into),
            ttl_us: change.ttl_us,
        }
    }
}

impl TryFrom<v1::Change> for Change {
    type Error = Error;

    /// Accepts any well-formed change; [`Change::check`] checks it against a definition.
    fn try_from(wire: v1::Change) -> Result<Self> {
        if wire.key.len() > IDENTITY_BYTES_MAX {
            let (limit, actual) = (IDENTITY_BYTES_MAX as u64, wire.key.len() as u64);
            let advice = "shorten the key, or use its hash as the key";
            return Err(Error::limit_exceeded(advice, limit, actual));
        }
        let key = Key::from_identity_bytes(&wire.key);
        let convert = || {
            if wire.sequence == 0 {
                return Err(unset_error("the sequence of a change, which counts from 1"));
            }
            Ok(Self {
                sequence: Sequence(wire.sequence),
                key: key.clone(),
                verb: decode_error::from_number::<v1::Verb, _>(wire.verb, "verb")?,
                fields: wire.fields.into_iter().map(TryInto::try_into).collect::<Result<_>>()?,
                condition: wire.condition.map(TryInto::try_into).transpose()?,
                ttl_us: wire.ttl_us,
            })
        };
        convert().map_err(|error| error.with_key_digest(key.digest()))
    }
}

impl From<&ClientBatch> for v1::ClientBatch {
    fn from(batch: &ClientBatch) -> Self {
        Self {
            client_id: Bytes::copy_from_slice(&batch.client.0.to_le_bytes()),
            changes: batch.changes.iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<v1::ClientBatch> for ClientBatch {
    type Error = Error;

    fn try_from(wire: v1::ClientBatch) -> Result<Self> {
        let client = wire.client_id.as_ref().try_into().map_err(|_| {
            Error::invalid_argument("the client id is not 16 random bytes; draw one per client")
        })?;
        Ok(Self {
            client: ClientId(u128::from_le_bytes(client)),
            changes: wire.changes.into_iter().map(TryInto::try_into).collect::<Result<_>>()?,
        })
    }
}

impl From<Position> for v1::Position {
    fn from(position: Position) -> Self {
        Self {
            epoch: position.epoch.0,
            offset: position.offset.0,
            index_in_entry: position.index_in_entry.into(),
        }
    }
}

impl TryFrom<v1::Position> for Position {
    type Error = Error;

    fn try_from(wire: v1::Position) -> Result<Self> {
        let index_in_entry = u16::try_from(wire.index_in_entry).map_err(|_| {
            Error::invalid_argument(
                "the index in the entry of a position is 65,536 or more; send the position \
                 unchanged",
            )
        })?;
        Ok(Self { epoch: Epoch(wire.epoch), offset: Offset(wire.offset), index_in_entry })
    }
}

impl From<Source> for v1::Source {
    fn from(source: Source) -> Self {
        Self {
            partition: source.partition.0,
            position: Some(source.position.into()),
            previous: source.previous.map(Into::into),
            append_time_us: source.append_time.as_micros(),
            is_forwarded: source.is_forwarded,
        }
    }
}

impl TryFrom<v1::Source> for Source {
    type Error = Error;

    fn try_from(wire: v1::Source) -> Result<Self> {
        let position = wire.position.ok_or_else(|| unset_error("the position of a source"))?;
        Ok(Self {
            partition: PartitionId(wire.partition),
            position: position.try_into()?,
            previous: wire.previous.map(TryInto::try_into).transpose()?,
            append_time: Timestamp::from_micros(wire.append_time_us),
            is_forwarded: wire.is_forwarded,
        })
    }
}

impl From<&ControlRecord> for v1::ControlRecord {
    fn from(record: &ControlRecord) -> Self {
        use v1::control_record::Kind;
        let kind = match record {
            ControlRecord::Define(definition) => Kind::Define(definition.as_ref().into()),
            ControlRecord::Delete(store) => Kind::DeleteStore(store.0),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<v1::ControlRecord> for ControlRecord {
    type Error = Error;

    fn try_from(wire: v1::ControlRecord) -> Result<Self> {
        use v1::control_record::Kind;
        Ok(match wire.kind.ok_or_else(|| newer_error("the kind of a control record"))? {
            Kind::Define(definition) => Self::Define(Box::new(definition.try_into()?)),
            Kind::DeleteStore(store) => Self::Delete(StoreId(store)),
        })
    }
}
