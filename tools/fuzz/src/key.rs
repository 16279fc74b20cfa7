//! Keys: any bytes are split into the parts that they were built from, or refused; packed keys are
//! within their bytes.

use forebay_core::ErrorCode;
use forebay_core::key::{Key, KeyValue};
use forebay_index::{KeyList, PackedKeys};

/// Decodes the input: mode u8, then identity bytes; with an odd `mode` packed keys: count u8, an
/// end offset u16 each, their bytes.
///
/// # Panics
/// Panics if the parts of identity bytes do not encode to these bytes, or a packed key is not the
/// bytes between its ends.
pub fn key_decode(input: &[u8]) {
    let Some((mode, rest)) = input.split_first() else { return };
    if mode % 2 == 1 {
        return packed(rest);
    }
    assert_eq!(Key::split(rest, false), Ok((None, rest)));
    match Key::split(rest, true) {
        Ok((partition_key, primary)) => {
            let partition_key = partition_key.expect("a key of such a store has one");
            match Key::partitioned(partition_key, primary) {
                Ok(key) => assert_eq!(key.as_bytes(), rest),
                Err(error) => assert_eq!(error.code(), ErrorCode::LimitExceeded),
            }
        }
        Err(error) => assert_eq!(error.code(), ErrorCode::Corrupt),
    }
}

fn packed(rest: &[u8]) {
    let Some((count, rest)) = rest.split_first() else { return };
    let Some((key_ends, bytes)) = rest.split_at_checked(2 * usize::from(*count)) else { return };
    let key_ends =
        key_ends.as_chunks::<2>().0.iter().map(|end| u64::from(u16::from_le_bytes(*end)));
    let key_ends: Vec<_> = key_ends.collect();
    let in_order =
        key_ends.is_sorted() && key_ends.last().is_none_or(|last| *last <= bytes.len() as u64);
    for keys in [PackedKeys::bytes(bytes, &key_ends), PackedKeys::strings(bytes, &key_ends)] {
        let keys = match keys {
            Ok(keys) => keys,
            Err(error) => {
                assert_eq!(error.code(), ErrorCode::InvalidArgument);
                continue;
            }
        };
        assert!(in_order && keys.count() == key_ends.len());
        let mut start = 0;
        for (place, end) in key_ends.iter().map(|end| *end as usize).enumerate() {
            let key = keys.key(place).primary();
            key.with_bytes(|key| assert_eq!(key, &bytes[start..end]));
            if let KeyValue::String(text) = key {
                assert_eq!(text.as_bytes(), &bytes[start..end]);
            }
            start = end;
        }
    }
}
