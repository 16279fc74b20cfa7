//! Entries of changes, straight to and from their bytes: a log holds hardly anything else, and the
//! messages between would be made and dropped for each value.
//!
//! What is written here is to the byte what the messages write. What is read here is what this
//! build writes: of any other bytes, also of damaged ones, nothing is said, and the messages say
//! what is to be said.

use bytes::{Buf, BufMut};
use forebay_core::change::{Change, ClientBatch, Entry, EntryBody, FieldChange, FieldOp};
use forebay_core::id::{ClientId, Epoch, FieldId, LogId, SchemaVersion, Sequence};
use forebay_core::key::Key;
use forebay_core::limits::ENTRY_CHANGES_MAX;
use forebay_core::value::Value;
use prost::Message;
use prost::encoding::{decode_varint, encode_varint, encoded_len_varint};

use crate::change::IDENTITY_BYTES_MAX;
use crate::refusal;
use crate::v1;

/// Wire types, as the last three bits of a tag have them.
const VARINT: u64 = 0;
const FIXED_64: u64 = 1;
const SIZED: u64 = 2;
const FIXED_32: u64 = 5;

/// The tag of a field; all of these are below 16, so it takes one byte.
const fn tag(field: u64, wire_type: u64) -> u64 {
    field << 3 | wire_type
}

const ENTRY_EPOCH: u64 = tag(1, VARINT);
const ENTRY_SCHEMA_VERSION: u64 = tag(2, VARINT);
const ENTRY_SOURCE: u64 = tag(3, SIZED);
const ENTRY_CHANGES: u64 = tag(5, SIZED);
const CHANGES_BATCH: u64 = tag(1, SIZED);
const BATCH_CLIENT: u64 = tag(1, SIZED);
const BATCH_CHANGE: u64 = tag(2, SIZED);
const CHANGE_SEQUENCE: u64 = tag(1, VARINT);
const CHANGE_KEY: u64 = tag(2, SIZED);
const CHANGE_VERB: u64 = tag(3, VARINT);
const CHANGE_FIELD: u64 = tag(4, SIZED);
const CHANGE_CONDITION: u64 = tag(5, SIZED);
const CHANGE_TTL: u64 = tag(6, VARINT);
const FIELD_ID: u64 = tag(1, VARINT);
const FIELD_SET: u64 = tag(2, SIZED);
const FIELD_TTL: u64 = tag(10, VARINT);
const VALUE_NULL: u64 = tag(1, SIZED);
const VALUE_BOOL: u64 = tag(2, VARINT);
const VALUE_INT32: u64 = tag(3, VARINT);
const VALUE_INT64: u64 = tag(4, VARINT);
const VALUE_FLOAT32: u64 = tag(5, FIXED_32);
const VALUE_FLOAT64: u64 = tag(6, FIXED_64);
const VALUE_STRING: u64 = tag(7, SIZED);
const VALUE_BYTES: u64 = tag(8, SIZED);
const VALUE_TIMESTAMP: u64 = tag(9, FIXED_64);

/// The body of an entry of changes, ready to be written.
pub(crate) struct ChangesBody<'e> {
    entry: &'e Entry,
    batches: &'e [ClientBatch],
    source: Option<v1::Source>,
    /// Bytes of each change, one batch behind the other.
    change_bytes: Vec<usize>,
    /// Bytes of each batch.
    batch_bytes: Vec<usize>,
}

impl<'e> ChangesBody<'e> {
    /// The body of an entry; `None` for one that holds no changes.
    pub(crate) fn of(entry: &'e Entry) -> Option<Self> {
        let EntryBody::Changes(batches) = &entry.body else { return None };
        let changes = batches.iter().flat_map(|batch| &batch.changes);
        let change_bytes: Vec<_> = changes.map(bytes_of_change).collect();
        let mut sizes = change_bytes.iter();
        let batch_bytes = batches.iter().map(|batch| {
            let changes = sizes.by_ref().take(batch.changes.len());
            sized(size_of::<ClientId>()) + changes.map(|bytes| sized(*bytes)).sum::<usize>()
        });
        let batch_bytes = batch_bytes.collect();
        let source = entry.source.map(Into::into);
        Some(Self { entry, batches, source, change_bytes, batch_bytes })
    }

    fn bytes_of_changes(&self) -> usize {
        self.batch_bytes.iter().map(|bytes| sized(*bytes)).sum()
    }

    /// How many bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        let number = |number: u32| if number == 0 { 0 } else { varint(number.into()) };
        let numbers = number(self.entry.epoch.0) + number(self.entry.schema_version.0);
        let source = self.source.as_ref().map_or(0, |source| sized(source.encoded_len()));
        numbers + source + sized(self.bytes_of_changes())
    }

    /// Writes it.
    pub(crate) fn write(&self, out: &mut impl BufMut) {
        for (tag, number) in
            [(ENTRY_EPOCH, self.entry.epoch.0), (ENTRY_SCHEMA_VERSION, self.entry.schema_version.0)]
        {
            if number != 0 {
                put_varint(tag, number.into(), out);
            }
        }
        if let Some(source) = &self.source {
            put_message(ENTRY_SOURCE, source, out);
        }
        put_size(ENTRY_CHANGES, self.bytes_of_changes(), out);
        let mut sizes = self.change_bytes.iter();
        for (batch, bytes) in self.batches.iter().zip(&self.batch_bytes) {
            put_size(CHANGES_BATCH, *bytes, out);
            put_bytes(BATCH_CLIENT, &batch.client.0.to_le_bytes(), out);
            for (change, bytes) in batch.changes.iter().zip(sizes.by_ref()) {
                put_size(BATCH_CHANGE, *bytes, out);
                put_change(change, out);
            }
        }
    }
}

/// Bytes of a tag and a number.
fn varint(number: u64) -> usize {
    1 + encoded_len_varint(number)
}

/// Bytes of a tag, a size and what has that size.
fn sized(bytes: usize) -> usize {
    varint(bytes as u64) + bytes
}

fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

fn bytes_of_change(change: &Change) -> usize {
    let key = change.key.as_bytes().len();
    let fields = change.fields.iter().map(|field| sized(bytes_of_field(field)));
    let condition = change.condition.map(v1::Condition::from);
    varint(change.sequence.0)
        + if key == 0 { 0 } else { sized(key) }
        + varint(verb_number(change))
        + fields.sum::<usize>()
        + condition.map_or(0, |condition| sized(condition.encoded_len()))
        + change.ttl_us.map_or(0, |ttl_us| varint(ttl_us as u64))
}

fn put_change(change: &Change, out: &mut impl BufMut) {
    put_varint(CHANGE_SEQUENCE, change.sequence.0, out);
    if !change.key.as_bytes().is_empty() {
        put_bytes(CHANGE_KEY, change.key.as_bytes(), out);
    }
    put_varint(CHANGE_VERB, verb_number(change), out);
    for field in &change.fields {
        put_size(CHANGE_FIELD, bytes_of_field(field), out);
        put_field(field, out);
    }
    if let Some(condition) = change.condition {
        put_message(CHANGE_CONDITION, &v1::Condition::from(condition), out);
    }
    if let Some(ttl_us) = change.ttl_us {
        put_varint(CHANGE_TTL, ttl_us as u64, out);
    }
}

fn verb_number(change: &Change) -> u64 {
    i32::from(v1::Verb::from(change.verb)) as u64
}

/// The value that a field is set to, if that is all there is to it and it is written here.
fn set_value(change: &FieldChange) -> Option<&Option<Value>> {
    match &change.op {
        FieldOp::Set(Some(
            Value::List(..) | Value::VectorF32(_) | Value::VectorF16(_) | Value::VectorI8(_),
        )) => None,
        FieldOp::Set(value) => Some(value),
        _ => None,
    }
}

fn bytes_of_field(change: &FieldChange) -> usize {
    let Some(value) = set_value(change) else {
        return v1::FieldChange::from(change).encoded_len();
    };
    let id = if change.field.0 == 0 { 0 } else { varint(change.field.0.into()) };
    let ttl = change.ttl_us.map_or(0, |ttl_us| varint(ttl_us as u64));
    id + sized(bytes_of_value(value.as_ref())) + ttl
}

fn put_field(change: &FieldChange, out: &mut impl BufMut) {
    let Some(value) = set_value(change) else {
        return v1::FieldChange::from(change).encode_raw(out);
    };
    if change.field.0 != 0 {
        put_varint(FIELD_ID, change.field.0.into(), out);
    }
    put_size(FIELD_SET, bytes_of_value(value.as_ref()), out);
    put_value(value.as_ref(), out);
    if let Some(ttl_us) = change.ttl_us {
        put_varint(FIELD_TTL, ttl_us as u64, out);
    }
}

fn bytes_of_value(value: Option<&Value>) -> usize {
    match value {
        None => sized(0),
        Some(Value::Bool(_)) => varint(1),
        Some(Value::Int32(number)) => varint(zigzag((*number).into())),
        Some(Value::Int64(number)) => varint(zigzag(*number)),
        Some(Value::Float32(_)) => 1 + 4,
        Some(Value::Float64(_) | Value::Timestamp(_)) => 1 + 8,
        Some(value) => sized(value.encoded_bytes() as usize),
    }
}

fn put_value(value: Option<&Value>, out: &mut impl BufMut) {
    match value {
        None => put_size(VALUE_NULL, 0, out),
        Some(Value::Bool(is_true)) => put_varint(VALUE_BOOL, u64::from(*is_true), out),
        Some(Value::Int32(number)) => put_varint(VALUE_INT32, zigzag((*number).into()), out),
        Some(Value::Int64(number)) => put_varint(VALUE_INT64, zigzag(*number), out),
        Some(Value::Float32(number)) => {
            encode_varint(VALUE_FLOAT32, out);
            out.put_f32_le(*number);
        }
        Some(Value::Float64(number)) => {
            encode_varint(VALUE_FLOAT64, out);
            out.put_f64_le(*number);
        }
        Some(Value::Timestamp(micros)) => {
            encode_varint(VALUE_TIMESTAMP, out);
            out.put_i64_le(*micros);
        }
        Some(Value::String(text)) => put_bytes(VALUE_STRING, text.as_bytes(), out),
        Some(Value::Bytes(bytes)) => put_bytes(VALUE_BYTES, bytes, out),
        // These go by their messages.
        Some(Value::List(..) | Value::VectorF32(_) | Value::VectorF16(_) | Value::VectorI8(_)) => {}
    }
}

fn put_varint(tag: u64, number: u64, out: &mut impl BufMut) {
    encode_varint(tag, out);
    encode_varint(number, out);
}

fn put_size(tag: u64, bytes: usize, out: &mut impl BufMut) {
    put_varint(tag, bytes as u64, out);
}

fn put_bytes(tag: u64, bytes: &[u8], out: &mut impl BufMut) {
    put_size(tag, bytes.len(), out);
    out.put_slice(bytes);
}

fn put_message(tag: u64, message: &impl Message, out: &mut impl BufMut) {
    put_size(tag, message.encoded_len(), out);
    message.encode_raw(out);
}

/// The entry that a body holds; `None` where its messages are to be asked.
pub(crate) fn entry_of(log_id: LogId, body: &[u8]) -> Option<Entry> {
    let mut fields = Fields { bytes: body };
    let mut entry = Entry {
        log_id,
        epoch: Epoch(fields.u32(ENTRY_EPOCH)?.unwrap_or(0)),
        schema_version: SchemaVersion(fields.u32(ENTRY_SCHEMA_VERSION)?.unwrap_or(0)),
        source: None,
        body: EntryBody::Heartbeat,
    };
    if let Some(source) = fields.sized(ENTRY_SOURCE)? {
        entry.source = Some(v1::Source::decode(source).ok()?.try_into().ok()?);
    }
    let mut changes = Fields { bytes: fields.sized(ENTRY_CHANGES)?? };
    let (mut batches, mut count) = (Vec::new(), 0);
    while let Some(batch) = changes.sized(CHANGES_BATCH)? {
        batches.push(batch_of(batch, &mut count)?);
    }
    entry.body = EntryBody::Changes(batches);
    (fields.bytes.is_empty() && changes.bytes.is_empty()).then_some(entry)
}

/// A batch; counts its changes, of which an entry has no more than it may.
fn batch_of(bytes: &[u8], count: &mut usize) -> Option<ClientBatch> {
    let mut fields = Fields { bytes };
    let client = ClientId(u128::from_le_bytes(fields.sized(BATCH_CLIENT)??.try_into().ok()?));
    let mut changes = Vec::new();
    while let Some(change) = fields.sized(BATCH_CHANGE)? {
        *count += 1;
        if *count > ENTRY_CHANGES_MAX {
            return None;
        }
        changes.push(change_of(change)?);
    }
    fields.bytes.is_empty().then_some(ClientBatch { client, changes })
}

fn change_of(bytes: &[u8]) -> Option<Change> {
    let mut fields = Fields { bytes };
    let sequence = fields.varint(CHANGE_SEQUENCE)?.filter(|sequence| *sequence > 0)?;
    let key = fields.sized(CHANGE_KEY)?.unwrap_or_default();
    if key.len() > IDENTITY_BYTES_MAX {
        return None;
    }
    let verb = i32::try_from(fields.varint(CHANGE_VERB)??).ok()?;
    let verb = refusal::from_number::<v1::Verb, _>(verb, "verb").ok()?;
    let mut found = Vec::with_capacity(fields.count(CHANGE_FIELD)?);
    while let Some(field) = fields.sized(CHANGE_FIELD)? {
        found.push(field_of(field)?);
    }
    let condition = match fields.sized(CHANGE_CONDITION)? {
        Some(condition) => Some(v1::Condition::decode(condition).ok()?.try_into().ok()?),
        None => None,
    };
    let ttl_us = fields.varint(CHANGE_TTL)?.map(|ttl_us| ttl_us as i64);
    fields.bytes.is_empty().then(|| Change {
        sequence: Sequence(sequence),
        key: Key::from_identity_bytes(key),
        verb,
        fields: found,
        condition,
        ttl_us,
    })
}

fn field_of(bytes: &[u8]) -> Option<FieldChange> {
    let mut fields = Fields { bytes };
    let field = FieldId(fields.u32(FIELD_ID)?.unwrap_or(0));
    let value = fields.sized(FIELD_SET)?;
    let Some(value) = value.and_then(value_of) else {
        return v1::FieldChange::decode(bytes).ok()?.try_into().ok();
    };
    let ttl_us = fields.varint(FIELD_TTL)?.map(|ttl_us| ttl_us as i64);
    let op = FieldOp::Set(value);
    fields.bytes.is_empty().then_some(FieldChange { field, op, ttl_us })
}

/// A value, or null.
fn value_of(bytes: &[u8]) -> Option<Option<Value>> {
    let mut fields = Fields { bytes };
    let tag = u64::from(*bytes.first()?);
    let unzigzag = |number: u64| (number >> 1) as i64 ^ -((number & 1) as i64);
    let value = match tag {
        VALUE_NULL => fields.sized(tag)??.is_empty().then_some(None)?,
        VALUE_BOOL => Some(Value::Bool(match fields.varint(tag)?? {
            0 => false,
            1 => true,
            _ => return None,
        })),
        VALUE_INT32 => Some(Value::Int32(unzigzag(fields.u32(tag)??.into()) as i32)),
        VALUE_INT64 => Some(Value::Int64(unzigzag(fields.varint(tag)??))),
        VALUE_FLOAT32 => Some(Value::Float32(f32::from_le_bytes(fields.fixed(tag)??))),
        VALUE_FLOAT64 => Some(Value::Float64(f64::from_le_bytes(fields.fixed(tag)??))),
        VALUE_TIMESTAMP => Some(Value::Timestamp(i64::from_le_bytes(fields.fixed(tag)??))),
        VALUE_STRING => Some(Value::String(str::from_utf8(fields.sized(tag)??).ok()?.to_owned())),
        VALUE_BYTES => Some(Value::Bytes(fields.sized(tag)??.to_vec())),
        _ => return None,
    };
    fields.bytes.is_empty().then_some(value)
}

/// The fields of a message, in the order of their tags. Each answers `None` for what is broken, and
/// `Some(None)` where another field comes, or none.
struct Fields<'b> {
    bytes: &'b [u8],
}

impl<'b> Fields<'b> {
    /// Whether this field comes.
    fn is_next(&mut self, tag: u64) -> bool {
        let is_next = self.bytes.first().is_some_and(|first| u64::from(*first) == tag);
        if is_next {
            self.bytes.advance(1);
        }
        is_next
    }

    fn varint(&mut self, tag: u64) -> Option<Option<u64>> {
        if !self.is_next(tag) {
            return Some(None);
        }
        decode_varint(&mut self.bytes).ok().map(Some)
    }

    fn u32(&mut self, tag: u64) -> Option<Option<u32>> {
        let number = self.varint(tag)?;
        number.map(u32::try_from).transpose().ok()
    }

    fn fixed<const BYTES: usize>(&mut self, tag: u64) -> Option<Option<[u8; BYTES]>> {
        if !self.is_next(tag) {
            return Some(None);
        }
        let (fixed, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(Some(*fixed))
    }

    fn sized(&mut self, tag: u64) -> Option<Option<&'b [u8]>> {
        let Some(bytes) = self.varint(tag)? else { return Some(None) };
        let (sized, rest) = self.bytes.split_at_checked(usize::try_from(bytes).ok()?)?;
        self.bytes = rest;
        Some(Some(sized))
    }

    /// How often this field comes, one behind the other.
    fn count(&self, tag: u64) -> Option<usize> {
        let (mut fields, mut count) = (Fields { bytes: self.bytes }, 0);
        while fields.sized(tag)?.is_some() {
            count += 1;
        }
        Some(count)
    }
}
