//! The order of documents in a shard: by partition key, if the store declares one, then by primary
//! key, each in the order of its type. Bytes: `proto/spec/shard.md`.

use std::ops::Bound;

use crate::error::{Error, Result};
use crate::key::{Key, KeyType};
use crate::schema::Definition;
use crate::value::Value;

/// First byte of every document's key.
pub const DOCUMENTS: u8 = b'd';
/// Follows a zero byte inside a partition key, so that the zero byte does not end the key.
const ESCAPED: u8 = 0xff;
/// Follows the zero byte that ends a partition key.
const ENDED: u8 = 0x01;
/// With this bit flipped, numbers sort as their bytes do.
const SIGN: u64 = 1 << 63;

/// Order of the keys of one store; never changes for a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyOrder {
    /// Type of the primary key.
    pub primary: KeyType,
    /// Type of the partition key, if the store declares one.
    pub partition: Option<KeyType>,
}

/// A contiguous range of a shard's documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// First stored key that may belong to the range.
    pub from: Vec<u8>,
    /// First stored key after the range.
    pub to: Vec<u8>,
}

/// Direction of a scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// From the smallest key upward.
    #[default]
    Forward,
    /// From the largest key downward.
    Backward,
}

impl KeyOrder {
    /// Returns the key order of this store.
    pub fn of(definition: &Definition) -> Self {
        Self { primary: definition.key_type, partition: definition.partition_key_type() }
    }

    /// Returns the key under which a shard stores a document.
    ///
    /// # Errors
    /// Returns `Corrupt` for bytes that identify no document of this store.
    pub fn stored(self, identity: &[u8]) -> Result<Vec<u8>> {
        let (partition_key, primary) = Key::split(identity, self.partition.is_some())?;
        let mut stored_key = self.scope(partition_key)?;
        put_last(&mut stored_key, self.primary, primary)?;
        Ok(stored_key)
    }

    /// Returns the document to which a stored key belongs.
    ///
    /// # Errors
    /// Returns `Corrupt` for bytes under which no document is stored, `LimitExceeded` for a key
    /// over the limit.
    pub fn identity(self, stored_key: &[u8]) -> Result<Key> {
        let [DOCUMENTS, stored_key @ ..] = stored_key else { return Err(damage_error()) };
        let Some(partition) = self.partition else {
            return Key::plain(&last(stored_key, self.primary)?);
        };
        let (partition_key, stored_key) = first(stored_key, partition)?;
        Key::partitioned(&partition_key, &last(stored_key, self.primary)?)
    }

    /// Returns the range of all documents.
    pub fn all(self) -> KeyRange {
        KeyRange::of_prefix(vec![DOCUMENTS])
    }

    /// Returns the documents with this partition key (all documents for `None`) whose primary keys
    /// are between the bounds. The range is empty if no document can be between them.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for:
    ///
    /// - a partition key if the store declares none;
    /// - bounds without a partition key if the store declares one;
    /// - a key whose length does not fit its type.
    pub fn range(
        self,
        partition_key: Option<&[u8]>,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
    ) -> Result<KeyRange> {
        self.check_scope(
            partition_key,
            matches!((from, to), (Bound::Unbounded, Bound::Unbounded)),
        )?;
        let scope = self.scope(partition_key).map_err(argument_error)?;
        let at = |key: &[u8]| {
            let mut stored_key = scope.clone();
            put_last(&mut stored_key, self.primary, key)
                .map_err(argument_error)
                .map(|()| stored_key)
        };
        let key_after = |key: &[u8]| {
            at(key).map(|mut stored_key| {
                stored_key.push(0);
                stored_key
            })
        };
        let from = match from {
            Bound::Unbounded => scope.clone(),
            Bound::Included(key) => at(key)?,
            Bound::Excluded(key) => key_after(key)?,
        };
        let to = match to {
            Bound::Unbounded => behind_prefix(scope.clone()),
            Bound::Included(key) => key_after(key)?,
            Bound::Excluded(key) => at(key)?,
        };
        Ok(KeyRange { to: to.max(from.clone()), from })
    }

    /// Returns the documents with this partition key (all documents for `None`) whose primary keys
    /// begin with these bytes.
    ///
    /// # Errors
    /// Returns the errors of [`KeyOrder::range`], and `InvalidArgument` if keys are numbers.
    pub fn prefixed(self, partition_key: Option<&[u8]>, prefix: &[u8]) -> Result<KeyRange> {
        self.check_scope(partition_key, prefix.is_empty())?;
        if self.primary == KeyType::Int64 && !prefix.is_empty() {
            return Err(Error::invalid_argument("an int64 key has no prefix; ask for a range"));
        }
        let mut from = self.scope(partition_key).map_err(argument_error)?;
        from.extend_from_slice(prefix);
        Ok(KeyRange::of_prefix(from))
    }

    /// Returns the part of a range after a document, in this direction.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for a key that is not a key of this store.
    pub fn rest(self, range: &KeyRange, key: &Key, direction: Direction) -> Result<KeyRange> {
        let (mut from, mut to) = (range.from.clone(), range.to.clone());
        let mut stored_key = self.stored(key.as_bytes()).map_err(argument_error)?;
        match direction {
            Direction::Forward => {
                stored_key.push(0);
                from = from.max(stored_key);
            }
            Direction::Backward => to = to.min(stored_key),
        }
        Ok(KeyRange { to: to.max(from.clone()), from })
    }

    fn check_scope(self, partition_key: Option<&[u8]>, is_unbounded: bool) -> Result<()> {
        let message = match (self.partition, partition_key) {
            (None, Some(_)) => "the store declares no partition key; leave the partition key out",
            (Some(_), None) if !is_unbounded => {
                "the store orders keys inside each partition key; name a partition key, or ask for \
                 all keys"
            }
            _ => return Ok(()),
        };
        Err(Error::invalid_argument(message))
    }

    /// Returns the common prefix of all stored keys with a partition key.
    fn scope(self, partition_key: Option<&[u8]>) -> Result<Vec<u8>> {
        let mut scope = vec![DOCUMENTS];
        if let (Some(key_type), Some(key)) = (self.partition, partition_key) {
            put_first(&mut scope, key_type, key)?;
        }
        Ok(scope)
    }
}

impl KeyRange {
    /// Returns the range of all stored keys that begin with these bytes.
    pub fn of_prefix(from: Vec<u8>) -> Self {
        Self { to: behind_prefix(from.clone()), from }
    }

    /// Returns whether no key can belong to the range.
    pub fn is_empty(&self) -> bool {
        self.from >= self.to
    }
}

fn damage_error() -> Error {
    Error::corrupt("a shard has a key that is not a key of its store")
}

/// Converts the error for bytes that came with a request.
fn argument_error(error: Error) -> Error {
    Error::invalid_argument(error.message())
}

/// Returns the first bytes after all keys with this prefix: trailing 0xff bytes are dropped and the
/// last remaining byte is incremented.
fn behind_prefix(mut prefix: Vec<u8>) -> Vec<u8> {
    while let Some(byte) = prefix.pop() {
        if byte < u8::MAX {
            prefix.push(byte + 1);
            break;
        }
    }
    prefix
}

/// Converts a number's own bytes to eight bytes that sort as the number does; [`number`] converts
/// back.
fn ordered_number(bytes: [u8; 8]) -> [u8; 8] {
    (u64::from_le_bytes(bytes) ^ SIGN).swap_bytes().to_le_bytes()
}

fn number(bytes: [u8; 8]) -> [u8; 8] {
    (u64::from_le_bytes(bytes).swap_bytes() ^ SIGN).to_le_bytes()
}

fn eight(bytes: &[u8]) -> Result<[u8; 8]> {
    bytes.try_into().map_err(|_| Error::corrupt("an int64 key does not have 8 bytes"))
}

/// Appends a key that ends the stored key.
fn put_last(stored_key: &mut Vec<u8>, key_type: KeyType, key: &[u8]) -> Result<()> {
    match key_type {
        KeyType::Int64 => stored_key.extend(ordered_number(eight(key)?)),
        KeyType::String | KeyType::Bytes => stored_key.extend_from_slice(key),
    }
    Ok(())
}

/// Appends a key that another key follows.
fn put_first(stored_key: &mut Vec<u8>, key_type: KeyType, key: &[u8]) -> Result<()> {
    if key_type == KeyType::Int64 {
        return put_last(stored_key, key_type, key);
    }
    put_ended(stored_key, key);
    Ok(())
}

/// Appends bytes that other bytes follow, such that two results compare as their inputs do.
fn put_ended(stored_key: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        stored_key.push(*byte);
        if *byte == 0 {
            stored_key.push(ESCAPED);
        }
    }
    stored_key.extend([0, ENDED]);
}

/// Returns eight bytes that sort as the numbers do.
pub fn ordered_i64(number: i64) -> [u8; 8] {
    ordered_number(number.to_le_bytes())
}

/// Returns the number of eight such bytes.
pub fn number_of_ordered(bytes: [u8; 8]) -> i64 {
    i64::from_le_bytes(number(bytes))
}

/// Appends a scalar such that two results of one type compare as the scalars do, whatever follows;
/// NaN sorts last. Lists and vectors have no order, so nothing is appended for them.
pub fn put_ordered(stored_key: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Bool(is_true) => stored_key.push(u8::from(*is_true)),
        Value::Int32(number) => stored_key.extend(ordered_i64((*number).into())),
        Value::Int64(number) | Value::Timestamp(number) => stored_key.extend(ordered_i64(*number)),
        Value::Float32(number) => stored_key.extend(ordered_f64((*number).into())),
        Value::Float64(number) => stored_key.extend(ordered_f64(*number)),
        Value::String(text) => put_ended(stored_key, text.as_bytes()),
        Value::Bytes(bytes) => put_ended(stored_key, bytes),
        Value::List(..) | Value::VectorF32(_) | Value::VectorF16(_) | Value::VectorI8(_) => {}
    }
}

fn ordered_f64(number: f64) -> [u8; 8] {
    // All zeros become one zero, and all NaNs one NaN above every other number.
    let number = if number == 0.0 { 0.0 } else { number };
    let bits = if number.is_nan() { f64::NAN.to_bits() } else { number.to_bits() } as i64;
    // For negative numbers a larger bit pattern is a smaller number.
    ordered_i64(if bits < 0 { i64::MIN ^ !bits } else { bits })
}

fn last(stored_key: &[u8], key_type: KeyType) -> Result<Vec<u8>> {
    match key_type {
        KeyType::Int64 => Ok(number(eight(stored_key)?).to_vec()),
        KeyType::String | KeyType::Bytes => Ok(stored_key.to_vec()),
    }
}

/// Splits a stored key into its first key and the rest.
fn first(stored_key: &[u8], key_type: KeyType) -> Result<(Vec<u8>, &[u8])> {
    if key_type == KeyType::Int64 {
        let (bytes, rest) = stored_key.split_first_chunk::<8>().ok_or_else(damage_error)?;
        return Ok((number(*bytes).to_vec(), rest));
    }
    let (mut key, mut tail) = (Vec::new(), stored_key);
    loop {
        tail = match tail {
            [0, ENDED, rest @ ..] => return Ok((key, rest)),
            [0, ESCAPED, rest @ ..] => {
                key.push(0);
                rest
            }
            [0, ..] | [] => return Err(damage_error()),
            [byte, rest @ ..] => {
                key.push(*byte);
                rest
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::error::ErrorCode;
    use crate::id::StoreId;
    use crate::schema::StoreSpec;
    use crate::value::{FieldType, compare};

    type Parts = (Vec<u8>, Vec<u8>);

    proptest! {
        #[test]
        fn encoded_scalars_sort_like_values(a: i64, b: i64, c: f64, d: f64, texts: [String; 2]) {
            let bytes = |value: Value| {
                let mut bytes = Vec::new();
                put_ordered(&mut bytes, &value);
                bytes
            };
            let assert_ordered = |a: Value, b: Value| {
                prop_assert_eq!(bytes(a.clone()).cmp(&bytes(b.clone())), compare(&a, &b).unwrap());
                Ok(())
            };
            assert_ordered(Value::Int64(a), Value::Int64(b))?;
            assert_ordered(Value::Int32(a as i32), Value::Int32(b as i32))?;
            assert_ordered(Value::Float64(c), Value::Float64(d))?;
            assert_ordered(Value::Float64(0.0), Value::Float64(-0.0))?;
            assert_ordered(Value::Float32(c as f32), Value::Float32(d as f32))?;
            let nan = bytes(Value::Float64(f64::NAN));
            prop_assert!(nan > bytes(Value::Float64(c)) && nan == bytes(Value::Float64(-f64::NAN)));
            let [text, other] = texts;
            let with_zero = format!("{text}\0");
            assert_ordered(Value::String(text.clone()), Value::String(with_zero))?;
            assert_ordered(Value::String(text), Value::String(other))?;
            prop_assert_eq!(number_of_ordered(ordered_i64(a)), a);
        }
    }

    /// Returns a key strategy that often produces the bytes with a special meaning in the encoding.
    fn key(key_type: KeyType) -> BoxedStrategy<Vec<u8>> {
        let byte = prop::sample::select(vec![0u8, 1, 2, 97, 254, 255]);
        match key_type {
            KeyType::Int64 => {
                let edge_numbers =
                    prop::sample::select(vec![i64::MIN, -256, -1, 0, 1, 255, i64::MAX]);
                prop_oneof![edge_numbers, any::<i64>()]
                    .prop_map(|n| n.to_le_bytes().to_vec())
                    .boxed()
            }
            _ => prop::collection::vec(byte, 0..6).boxed(),
        }
    }

    fn identity(order: KeyOrder, partition: &[u8], primary: &[u8]) -> Key {
        match order.partition {
            Some(_) => Key::partitioned(partition, primary).unwrap(),
            None => Key::plain(primary).unwrap(),
        }
    }

    /// Returns a rank that orders keys as their type does.
    fn rank(key_type: KeyType, key: &[u8]) -> (i64, Vec<u8>) {
        match key_type {
            KeyType::Int64 => (i64::from_le_bytes(key.try_into().unwrap()), Vec::new()),
            _ => (0, key.to_vec()),
        }
    }

    fn orders() -> impl Strategy<Value = KeyOrder> {
        let types = || prop::sample::select(KeyType::ALL.to_vec());
        (types(), prop::option::of(types()))
            .prop_map(|(primary, partition)| KeyOrder { primary, partition })
    }

    /// Returns one key order, and the partition keys and primary keys of two documents.
    fn two_keys() -> impl Strategy<Value = (KeyOrder, [Parts; 2])> {
        orders().prop_flat_map(|order| {
            let keys = || (key(order.partition.unwrap_or(KeyType::Bytes)), key(order.primary));
            (keys(), keys()).prop_map(move |(keys, other)| (order, [keys, other]))
        })
    }

    proptest! {
        #[test]
        fn stored_keys_sort_like_their_keys_and_round_trip((order, keys) in two_keys()) {
            let [one, other] = keys.each_ref().map(|(partition, primary)| {
                let key = identity(order, partition, primary);
                let stored_key = order.stored(key.as_bytes()).unwrap();
                assert_eq!(order.identity(&stored_key).unwrap(), key);
                let partition = order.partition.map(|key_type| rank(key_type, partition));
                (stored_key, (partition, rank(order.primary, primary)))
            });
            prop_assert_eq!(one.0.cmp(&other.0), one.1.cmp(&other.1));
        }

        #[test]
        fn key_ranges_contain_exactly_the_keys_between_their_bounds(
            (order, [(partition, primary), (_, from)]) in two_keys(),
            kinds in (0..3, 0..3),
            to in key(KeyType::Bytes),
            far in any::<i64>(),
        ) {
            let to = if order.primary == KeyType::Int64 { far.to_le_bytes().to_vec() } else { to };
            let bound = |kind, key| match kind {
                0 => Bound::Unbounded,
                1 => Bound::Included(key),
                _ => Bound::Excluded(key),
            };
            let bounds = (bound(kinds.0, &from[..]), bound(kinds.1, &to[..]));
            let scope = order.partition.map(|_| &partition[..]);
            let range = order.range(scope, bounds.0, bounds.1).unwrap();
            let key = identity(order, &partition, &primary);
            let stored_key = order.stored(key.as_bytes()).unwrap();
            let ranked = |bound: Bound<&[u8]>| bound.map(|key| rank(order.primary, key));
            let ranks = (ranked(bounds.0), ranked(bounds.1));
            let is_in = std::ops::RangeBounds::contains(&ranks, &rank(order.primary, &primary));
            prop_assert_eq!(range.from <= stored_key && stored_key < range.to, is_in);
            prop_assert!(range.from <= range.to);
        }

        #[test]
        fn prefix_ranges_contain_exactly_the_keys_with_the_prefix(
            partition in key(KeyType::Bytes),
            primary in key(KeyType::Bytes),
            prefix in key(KeyType::Bytes),
        ) {
            for scope in [None, Some(&partition[..])] {
                let order =
                    KeyOrder { primary: KeyType::Bytes, partition: scope.map(|_| KeyType::Bytes) };
                let range = order.prefixed(scope, &prefix).unwrap();
                let key = identity(order, &partition, &primary);
                let stored_key = order.stored(key.as_bytes()).unwrap();
                let is_in = range.from <= stored_key && stored_key < range.to;
                prop_assert_eq!(is_in, primary.starts_with(&prefix));
            }
        }

        #[test]
        fn arbitrary_bytes_decode_to_a_key_or_are_refused(order in orders(), bytes: Vec<u8>) {
            for stored_key in [bytes.clone(), [vec![DOCUMENTS], bytes].concat()] {
                match order.identity(&stored_key) {
                    Ok(key) => prop_assert_eq!(order.stored(key.as_bytes()).unwrap(), stored_key),
                    Err(error) => prop_assert_eq!(error.code(), ErrorCode::Corrupt),
                }
            }
        }
    }

    #[test]
    fn invalid_key_ranges_are_refused() {
        let order = |partition| KeyOrder { primary: KeyType::Int64, partition };
        let (plain, scoped) = (order(None), order(Some(KeyType::String)));
        let eight = [1; 8];
        let all = (Bound::Unbounded, Bound::Unbounded);
        for result in [
            plain.prefixed(None, b"1"),
            plain.range(Some(b"tenant"), all.0, all.1),
            plain.range(None, Bound::Included(b"short"), Bound::Unbounded),
            scoped.range(None, Bound::Included(&eight), Bound::Unbounded),
        ] {
            assert_eq!(result.unwrap_err().code(), ErrorCode::InvalidArgument);
        }
        assert_eq!(scoped.range(None, all.0, all.1).unwrap(), scoped.all());
        assert_eq!(plain.prefixed(None, b"").unwrap(), plain.all());
    }

    #[test]
    fn key_order_follows_the_definition() {
        let mut spec = StoreSpec::documents("users", KeyType::String)
            .partitions(4)
            .field("tenant", FieldType::INT64);
        let order_of = |spec: &StoreSpec| KeyOrder::of(&spec.define(StoreId(1)).unwrap());
        assert_eq!(order_of(&spec), KeyOrder { primary: KeyType::String, partition: None });
        spec.partition_key = Some("tenant".to_owned());
        let scoped = KeyOrder { primary: KeyType::String, partition: Some(KeyType::Int64) };
        assert_eq!(order_of(&spec), scoped);
    }
}
