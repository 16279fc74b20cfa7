//! Index entries of events: keys of a shard that are ordered by a value and a time, and end in the
//! event's position. Bytes: `proto/spec/events.md`.

use forebay_core::change::Change;
use forebay_core::clock::Timestamp;
use forebay_core::coerce::coerce_value;
use forebay_core::id::FieldId;
use forebay_core::key::{Key, KeyType};
use forebay_core::key_order::{
    DOCUMENTS, KeyOrder, KeyRange, number_of_ordered, ordered_i64, put_ordered,
};
use forebay_core::limits::INDEX_VALUE_BYTES_MAX;
use forebay_core::partition::xxh3_64;
use forebay_core::schema::{ColumnIndex, Definition};
use forebay_core::value::{FieldType, Value};
use forebay_core::{Error, Result};
use forebay_shard::{EVENT_POSITION_BYTES, EventPosition};

/// Key order of all rows of a stream's shard except the events.
pub(super) const ORDER: KeyOrder = KeyOrder { primary: KeyType::Bytes, partition: None };

const BY_EXACT: u8 = b'e';
const BY_KEY: u8 = b'k';
const BY_RANGE: u8 = b'r';
const BY_TIME: u8 = b't';
const INDEXES: u8 = b'v';

/// The indexed columns of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Indexes(Vec<(FieldId, FieldType, ColumnIndex)>);

/// Suffix of an index entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    pub(super) time: Timestamp,
    pub(super) at: EventPosition,
}

impl Indexes {
    pub(super) fn of(definition: &Definition) -> Self {
        let indexed = definition
            .fields
            .iter()
            .filter_map(|column| Some((column.id, column.field_type, column.rules.index?)));
        Self(indexed.collect())
    }

    /// Returns the key of the row that stores the indexes of a shard.
    pub(super) fn row_key() -> Key {
        Key::from_identity_bytes(&[INDEXES])
    }

    /// Returns bytes that identify the indexes: a column with another index or type has other
    /// entries.
    pub(super) fn fingerprint(&self) -> Vec<u8> {
        format!("{:?}", self.0).into_bytes()
    }

    /// Returns the index entries of an event with this time and position.
    pub(super) fn entries(&self, event: &Change, entry: Entry) -> Vec<Key> {
        let ended = |mut key: Vec<u8>| {
            entry.put(&mut key);
            Key::from_identity_bytes(&key)
        };
        let mut keys = vec![ended(vec![BY_TIME]), ended(by_key(event.key.as_bytes()))];
        for (column, field_type, index) in &self.0 {
            let value = event.set_value(*column).cloned();
            // An index stores a value in its column's type.
            let Some(value) = value.and_then(|value| coerce_value(value, *field_type).ok()) else {
                continue;
            };
            keys.push(ended(match index {
                ColumnIndex::Exact => by_exact(*column, &value),
                ColumnIndex::Range => by_range(*column, Some(&value)),
            }));
        }
        keys
    }
}

impl Entry {
    const BYTES: usize = 8 + EVENT_POSITION_BYTES;

    fn put(self, key: &mut Vec<u8>) {
        key.extend(ordered_i64(self.time.as_micros()));
        key.extend(self.at.to_bytes());
    }

    /// Decodes the suffix of a key.
    ///
    /// # Errors
    /// `Corrupt` for a key without one.
    pub(super) fn of_key(key: &[u8]) -> Result<Self> {
        let damaged = || Error::corrupt("an index entry names no event");
        let (_, entry) = key.split_last_chunk::<{ Self::BYTES }>().ok_or_else(damaged)?;
        let (time, at) = entry.split_first_chunk::<8>().ok_or_else(damaged)?;
        let at = EventPosition::from_bytes(at.try_into().map_err(|_| damaged())?);
        Ok(Self { time: Timestamp::from_micros(number_of_ordered(*time)), at })
    }
}

fn by_key(key: &[u8]) -> Vec<u8> {
    let mut found = vec![BY_KEY];
    found.extend(xxh3_64(key).to_le_bytes());
    found
}

fn by_column(kind: u8, column: FieldId) -> Vec<u8> {
    let mut found = vec![kind];
    found.extend(column.0.to_le_bytes());
    found
}

fn by_exact(column: FieldId, value: &Value) -> Vec<u8> {
    let (mut found, mut bytes) = (by_column(BY_EXACT, column), Vec::new());
    put_ordered(&mut bytes, value);
    found.extend(xxh3_64(&bytes).to_le_bytes());
    found
}

fn by_range(column: FieldId, value: Option<&Value>) -> Vec<u8> {
    let mut found = by_column(BY_RANGE, column);
    if let Some(value) = value {
        put_ordered(&mut found, &cut(value));
    }
    found
}

/// Returns the prefix of a value that an index stores.
fn cut(value: &Value) -> Value {
    match value {
        Value::String(text) if text.len() > INDEX_VALUE_BYTES_MAX => {
            Value::Bytes(text.as_bytes()[..INDEX_VALUE_BYTES_MAX].to_vec())
        }
        Value::Bytes(bytes) if bytes.len() > INDEX_VALUE_BYTES_MAX => {
            Value::Bytes(bytes[..INDEX_VALUE_BYTES_MAX].to_vec())
        }
        value => value.clone(),
    }
}

/// Entries of events within a span of time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    /// First time.
    pub(super) from: Option<i64>,
    /// First time after the span.
    pub(super) to: Option<i64>,
}

impl Span {
    pub(super) fn has(self, time: Timestamp) -> bool {
        let time = time.as_micros();
        self.from.is_none_or(|from| from <= time) && self.to.is_none_or(|to| time < to)
    }

    /// Returns the range of entries with this prefix, which a time follows.
    fn with_prefix(self, prefix: Vec<u8>) -> KeyRange {
        let all = key_range(prefix.clone());
        let key_at = |time: i64| [&stored_key(&prefix)[..], &ordered_i64(time)].concat();
        let from = self.from.map_or(all.from, key_at);
        let to = self.to.map_or(all.to, key_at);
        KeyRange { to: to.max(from.clone()), from }
    }

    /// Returns the range of all events.
    pub(super) fn all(self) -> KeyRange {
        self.with_prefix(vec![BY_TIME])
    }

    /// Returns the range of the events of a key; a hash collision may add others.
    pub(super) fn of_key(self, key: &[u8]) -> KeyRange {
        self.with_prefix(by_key(key))
    }

    /// Returns the range of the events with a value; a collision may add others.
    pub(super) fn of_value(self, column: FieldId, index: ColumnIndex, value: &Value) -> KeyRange {
        self.with_prefix(match index {
            ColumnIndex::Exact => by_exact(column, value),
            ColumnIndex::Range => by_range(column, Some(value)),
        })
    }
}

/// Returns the entries of a column between two values, at all times.
pub(super) fn entries_between(
    column: FieldId,
    from: Option<&Value>,
    to: Option<&Value>,
) -> KeyRange {
    let all = key_range(by_range(column, None));
    let key_of = |value: &Value| stored_key(&by_range(column, Some(value)));
    let (from, to) = (from.map_or(all.from, key_of), to.map_or(all.to, key_of));
    KeyRange { to: to.max(from.clone()), from }
}

fn stored_key(key: &[u8]) -> Vec<u8> {
    [&[DOCUMENTS], key].concat()
}

fn key_range(prefix: Vec<u8>) -> KeyRange {
    KeyRange::of_prefix(stored_key(&prefix))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use forebay_core::id::Offset;

    #[test]
    fn index_entry_is_decoded_from_the_end_of_its_key() {
        let at = EventPosition { offset: Offset(7), index_in_entry: 3 };
        let entry = Entry { time: Timestamp::from_micros(-9), at };
        let mut key = by_range(FieldId(2), Some(&Value::String("Rome".to_owned())));
        assert!(Entry::of_key(&key).is_err());
        entry.put(&mut key);
        assert_eq!(Entry::of_key(&key).unwrap(), entry);
    }

    proptest! {
        #[test]
        fn arbitrary_key_ends_in_an_index_entry_or_is_refused(key: Vec<u8>) {
            prop_assert_eq!(Entry::of_key(&key).is_ok(), key.len() >= Entry::BYTES);
        }

        /// Proves that a range contains the key of an entry exactly if it contains the entry's
        /// value.
        #[test]
        fn range_contains_values_between_bounds(a: String, b: String, value: String, time: i64) {
            let value = value.repeat(200);
            let [from, to, found] = [&a, &b, &value].map(|text| Value::String(text.clone()));
            let range = entries_between(FieldId(1), Some(&from), Some(&to));
            let mut key = stored_key(&by_range(FieldId(1), Some(&found)));
            let time = Timestamp::from_micros(time);
            Entry { time, at: EventPosition::default() }.put(&mut key);
            let is_in = range.from <= key && key < range.to;
            prop_assert_eq!(is_in, a <= value && value < b);
        }

        #[test]
        fn span_contains_exactly_the_times_within_it(from: i8, to: i8, time: i8) {
            let span = Span { from: Some(from.into()), to: Some(to.into()) };
            let range = span.of_key(b"ada");
            let mut key = stored_key(&by_key(b"ada"));
            let time = Timestamp::from_micros(time.into());
            Entry { time, at: EventPosition::default() }.put(&mut key);
            let is_in = range.from <= key && key < range.to;
            prop_assert_eq!(is_in, span.has(time));
        }
    }
}
