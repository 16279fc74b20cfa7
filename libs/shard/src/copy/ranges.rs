//! Splits a shard's rows into ranges of about equal bytes on the disk, over all levels.

use forebay_core::Result;
use rocksdb::{DB, Range};

use crate::error::from_rocksdb;

/// Most steps of the search for one bound; each step halves the interval of keys.
const LOOKS_MAX: usize = 64;
/// Bytes after the common prefix of two keys that determine a key between them.
const PLACE_BYTES: usize = 16;

/// Rows between two keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowRange {
    /// The first key.
    pub from: Vec<u8>,
    /// The key before which the range ends; `None` for all keys that follow.
    pub to: Option<Vec<u8>>,
    /// Approximate bytes of the rows on the disk.
    pub bytes: u64,
}

/// Splits all rows into at most `count` ranges. The first range starts before all keys, and the
/// last range includes all keys that follow.
///
/// # Errors
/// The errors of the disk.
pub(super) fn split(db: &DB, count: usize) -> Result<Vec<RowRange>> {
    let (mut bounds, mut ranges) = (Vec::new(), Vec::new());
    if let Some((first, last)) = ends(db)? {
        let bytes = |to: &[u8]| size(db, &first, to);
        let places = Places::between(&first, &last);
        let total = bytes(&last);
        for number in 1..count as u64 {
            let bytes_before = total / count as u64 * number;
            let bound = places.find(|key| bytes(key) < bytes_before);
            if bounds.last().is_none_or(|last| *last < bound) && bound > first && bound <= last {
                bounds.push(bound);
            }
        }
    }
    let mut from = Vec::new();
    for to in bounds {
        let bytes = size(db, &from, &to);
        ranges.push(RowRange {
            from: std::mem::replace(&mut from, to.clone()),
            to: Some(to),
            bytes,
        });
    }
    let bytes = size(db, &from, &[0xff; PLACE_BYTES]);
    ranges.push(RowRange { from, to: None, bytes });
    Ok(ranges)
}

/// Returns the first and the last document; documents are nearly all rows.
fn ends(db: &DB) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    let mut options = rocksdb::ReadOptions::default();
    options.set_iterate_upper_bound([forebay_core::key_order::DOCUMENTS + 1]);
    options.fill_cache(false);
    let mut rows = db.raw_iterator_opt(options);
    let mut end = |seek: fn(&mut rocksdb::DBRawIterator<'_>)| {
        seek(&mut rows);
        let key = rows.key().map(<[u8]>::to_vec);
        rows.status()
            .map(|()| key)
            .map_err(|error| from_rocksdb(&error, "looking for ranges of rows"))
    };
    let first = end(|rows| rows.seek_to_first())?;
    Ok(first.zip(end(|rows| rows.seek_to_last())?))
}

fn size(db: &DB, from: &[u8], to: &[u8]) -> u64 {
    db.get_approximate_sizes(&[Range::new(from, to)]).into_iter().sum()
}

/// Keys between two others, ordered by the bytes after their common prefix.
struct Places {
    prefix: Vec<u8>,
    from: u128,
    to: u128,
}

impl Places {
    fn between(from: &[u8], to: &[u8]) -> Self {
        let common = from.iter().zip(to).take_while(|(a, b)| a == b).count();
        let place = |key: &[u8]| {
            let mut bytes = [0; PLACE_BYTES];
            let suffix = &key[common..];
            let length = suffix.len().min(PLACE_BYTES);
            bytes[..length].copy_from_slice(&suffix[..length]);
            u128::from_le_bytes(bytes).swap_bytes()
        };
        Self { prefix: from[..common].to_vec(), from: place(from), to: place(to) }
    }

    fn key(&self, place: u128) -> Vec<u8> {
        let mut key = self.prefix.clone();
        key.extend(place.swap_bytes().to_le_bytes());
        while key.len() > self.prefix.len() && key.last() == Some(&0) {
            key.pop();
        }
        key
    }

    /// Returns the first key that is not below the wanted bound.
    fn find(&self, is_below: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        let (mut low, mut high) = (self.from, self.to);
        for _ in 0..LOOKS_MAX {
            let middle = low + (high - low) / 2;
            if middle == low {
                break;
            }
            match is_below(&self.key(middle)) {
                true => low = middle,
                false => high = middle,
            }
        }
        self.key(high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_points_are_between_their_keys() {
        let places = Places::between(b"document-1", b"document-9");
        assert_eq!(places.prefix, b"document-");
        assert_eq!(places.find(|key| key < &b"document-5"[..]), b"document-5");
        assert_eq!(places.find(|_| true), b"document-9");
        let places = Places::between(b"a", b"a");
        assert_eq!(places.find(|_| true), b"a");
    }
}
