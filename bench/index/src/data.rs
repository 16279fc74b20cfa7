//! The data of the reads: documents that name each other, so that the next key comes from the bytes
//! just read.
//!
//! Document `n` contains the key of document `next(n)`, and `next` visits all documents once before
//! it returns to the first, in steps that jump over the whole store. A chain of reads is therefore
//! dependent, hits each document equally often, and is verified by its end: after a number of
//! steps, arithmetic says which document it must have reached. The workers in other languages
//! generate the same data; the vectors below hold for all.

use forebay::schema::KeyValue;
use forebay_index::DocumentKey;

/// Partitions of every measured store.
pub const PARTITIONS: u32 = 4;

/// The form of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// 16 bytes: the number, and a hash of it.
    Bytes16,
    /// The number, as an int64 key.
    Int64,
    /// The number, in 4 bytes.
    Bytes4,
}

/// A data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// Number of documents.
    pub entries: u64,
    /// Form of the keys.
    pub keys: Keys,
    /// Bytes of each value; the first bytes are the next key.
    pub value_bytes: usize,
}

/// A key as bytes; the data set determines how many of them count.
pub type KeyBytes = [u8; 16];

/// A step that is coprime to the sizes of the stores (products of 2 and 5), so that the chain
/// closes only after all documents. `STEP_BY - 1` is a multiple of 20.
const STEP_BY: u64 = 618_033_981;
const STEP_MORE: u64 = 7_309_231;

/// Returns a hash of a number: hashes of neighbours have nothing in common. The function is
/// SplitMix64's finalizer.
#[must_use]
pub fn mix(number: u64) -> u64 {
    let mut hash = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ hash >> 31
}

impl Data {
    /// Returns the bytes of each key.
    #[must_use]
    pub fn key_bytes(&self) -> usize {
        match self.keys {
            Keys::Bytes16 => 16,
            Keys::Int64 => 8,
            Keys::Bytes4 => 4,
        }
    }

    /// Returns the bytes of keys and values of all documents.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        self.entries * (self.key_bytes() + self.value_bytes) as u64
    }

    /// Returns the document whose key is in document `number`.
    #[must_use]
    pub fn next(&self, number: u64) -> u64 {
        (number * STEP_BY + STEP_MORE) % self.entries
    }

    /// Returns the document that a chain reaches after `steps` steps.
    #[must_use]
    pub fn after(&self, number: u64, steps: u64) -> u64 {
        let entries = u128::from(self.entries);
        let (mut factor, mut summand) =
            (u128::from(STEP_BY) % entries, u128::from(STEP_MORE) % entries);
        let (mut document, mut steps_left) = (u128::from(number), steps);
        while steps_left > 0 {
            if steps_left & 1 == 1 {
                document = (document * factor + summand) % entries;
            }
            summand = (summand * factor + summand) % entries;
            factor = factor * factor % entries;
            steps_left >>= 1;
        }
        document as u64
    }

    /// Returns the key of a document.
    #[must_use]
    pub fn key(&self, number: u64) -> KeyBytes {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&number.to_le_bytes());
        if self.keys == Keys::Bytes16 {
            key[8..].copy_from_slice(&mix(number).to_le_bytes());
        }
        key
    }

    /// Writes the value of a document: the next key, then bytes that no two documents share.
    pub fn value(&self, number: u64, value: &mut Vec<u8>) {
        value.clear();
        value.extend_from_slice(&self.key(self.next(number))[..self.key_bytes()]);
        let mut state = mix(number);
        while value.len() < self.value_bytes {
            state = mix(state);
            let part_bytes = (self.value_bytes - value.len()).min(8);
            value.extend_from_slice(&state.to_le_bytes()[..part_bytes]);
        }
    }

    /// Returns the number in a key.
    #[must_use]
    pub fn number(&self, key: &[u8]) -> u64 {
        let mut number = [0; 8];
        let bytes = self.key_bytes().min(8);
        number[..bytes].copy_from_slice(&key[..bytes]);
        u64::from_le_bytes(number)
    }
}

/// Returns a key as readers and writers take it.
#[must_use]
pub fn document_key<'k>(data: &Data, key: &'k [u8]) -> DocumentKey<'k> {
    match data.keys {
        Keys::Int64 => DocumentKey::from(data.number(key) as i64),
        _ => DocumentKey::new(KeyValue::Bytes(&key[..data.key_bytes()])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(entries: u64) -> Data {
        Data { entries, keys: Keys::Bytes16, value_bytes: 50 }
    }

    #[test]
    fn load_chain_visits_every_document_once() {
        let data = data(10_000);
        let (mut document, mut is_visited) = (0, vec![false; 10_000]);
        for _ in 0..10_000 {
            assert!(
                !std::mem::replace(&mut is_visited[document as usize], true),
                "{document} came twice"
            );
            document = data.next(document);
        }
        assert_eq!(document, 0);
    }

    #[test]
    fn chain_of_reads_ends_at_the_predicted_document() {
        for entries in [100_000, 1_000_000, 25_000_000] {
            let data = data(entries);
            let mut document = 17;
            (0..1_000).for_each(|_| document = data.next(document));
            assert_eq!(data.after(17, 1_000), document);
        }
    }

    #[test]
    fn value_begins_with_the_next_key() {
        let (data, mut value) = (data(1_000_000), Vec::new());
        data.value(41, &mut value);
        assert_eq!(value.len(), 50);
        assert_eq!(value[..16], data.key(data.next(41)));
        assert_eq!(data.number(&value), data.next(41));
        let small = Data { keys: Keys::Bytes4, value_bytes: 32, ..data };
        small.value(41, &mut value);
        assert_eq!((value.len(), small.number(&value)), (32, small.next(41)));
    }

    /// The workers in Java and Python have the same test.
    #[test]
    fn data_matches_its_pinned_bytes() {
        let (data, mut value) = (data(1_000_000), Vec::new());
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(data.next(1), 343_212);
        data.value(1, &mut value);
        assert_eq!(hex::encode(&value), VALUE_1);
    }

    const VALUE_1: &str = concat!(
        "ac3c0500000000004d1697d0f350a3451e61397408ab415e",
        "c3868d6df4028ab15649eed9dd9581e2e5c8bef81a3d8c346c26"
    );
}
