//! The documents: keys of 25 bytes in the order of their numbers, values of letters and digits.

use std::sync::LazyLock;

use forebay_core::partition::xxh3_64;

const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz012345";
/// Number of start offsets of values in one text.
const PLACES: usize = 1 << 20;
/// Longest value.
const VALUE_BYTES_MAX: usize = 1 << 16;

static TEXT: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let letter = |number: usize| LETTERS[mix(number as u64) as usize % LETTERS.len()];
    (0..PLACES + VALUE_BYTES_MAX).map(letter).collect()
});

/// Returns a hash of a number: hashes of neighbours have nothing in common.
pub fn mix(number: u64) -> u64 {
    xxh3_64(&number.to_le_bytes())
}

/// Returns the key of a document.
pub fn key(document: u64) -> String {
    format!("{document:09}{:016x}", mix(document))
}

/// Returns the value of a document, of `bytes` bytes, up to 65,536.
pub fn value(document: u64, bytes: usize) -> &'static [u8] {
    let place = mix(!document) as usize % PLACES;
    &TEXT[place..place + bytes]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_order_and_values_differ() {
        assert!((0..1_000).all(|number| key(number).len() == 25 && key(number) < key(number + 1)));
        assert_ne!(value(1, 100), value(2, 100));
        assert_eq!(value(1, VALUE_BYTES_MAX).len(), VALUE_BYTES_MAX);
    }
}
