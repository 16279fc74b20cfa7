//! A scan of a copy: digests of its live documents, and the documents of some ranges.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use forebay_core::clock::Timestamp;
use forebay_core::fold::{PartitionState, RowLookup};
use forebay_core::key::Key;
use forebay_core::limits::{VERIFY_BYTES_MAX, VERIFY_RANGES};
use forebay_core::partition::xxh3_64;
use forebay_core::row::row_expires_at;
use forebay_core::rows_digest::RowsDigest;
use forebay_core::{Error, Result};

/// Some of the ranges that documents are assigned to by the hashes of their keys.
pub(super) type Ranges = BTreeSet<usize>;

fn range_of(key: &[u8]) -> usize {
    const { assert!(VERIFY_RANGES.is_power_of_two()) };
    (xxh3_64(key) >> (u64::BITS - VERIFY_RANGES.trailing_zeros())) as usize
}

/// The result of one scan of a copy.
pub struct DigestScan {
    /// Time at which expiry is evaluated: expired documents are not live.
    time: Timestamp,
    digests: Vec<RowsDigest>,
    /// Bytes of each range.
    bytes: Vec<u64>,
    /// Ranges whose documents are retained.
    retained_ranges: Ranges,
    retained: BTreeMap<Vec<u8>, Vec<u8>>,
    changed: ChangedDocuments,
}

/// The effects of the log on documents between two positions.
#[derive(Default)]
pub(super) struct ChangedDocuments {
    /// Rows of the changed documents, as the older copy has them.
    rows: HashMap<Vec<u8>, Option<Vec<u8>>>,
    /// Whether a drop-all removes all earlier documents.
    drops_all: bool,
}

impl ChangedDocuments {
    /// Returns the documents of these keys, for a copy in this state that advances to a position
    /// with `drop_all_count` drop-alls.
    pub(super) fn new(
        keys: impl IntoIterator<Item = Key>,
        state: &PartitionState,
        drop_all_count: u32,
    ) -> Self {
        let rows = keys.into_iter().map(|key| (key.as_bytes().to_vec(), None)).collect();
        Self { rows, drops_all: drop_all_count > state.drop_all_count }
    }

    pub(super) fn drop_all(&mut self) {
        self.rows.values_mut().for_each(|row| *row = None);
    }

    pub(super) fn write(&mut self, key: &[u8], row: Option<Vec<u8>>) -> Result<()> {
        let place = self.rows.get_mut(key).ok_or_else(unknown)?;
        *place = row;
        Ok(())
    }
}

impl RowLookup for ChangedDocuments {
    fn row(&self, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        let row = self.rows.get(key).ok_or_else(unknown)?;
        Ok(row.as_deref().map(Cow::Borrowed))
    }
}

fn unknown() -> Error {
    Error::internal("the log changes a document that it did not name earlier")
}

impl DigestScan {
    /// Returns a scan of a copy as of this time that retains the documents of these ranges.
    pub(super) fn new(time: Timestamp, ranges: Ranges) -> Self {
        Self {
            time,
            digests: vec![RowsDigest::default(); VERIFY_RANGES],
            bytes: vec![0; VERIFY_RANGES],
            retained_ranges: ranges,
            retained: BTreeMap::new(),
            changed: ChangedDocuments::default(),
        }
    }

    /// Returns a scan as [`DigestScan::new`] does, of an older copy some of whose documents
    /// change until then.
    pub(super) fn of_older(time: Timestamp, ranges: Ranges, changed: ChangedDocuments) -> Self {
        Self { changed, ..Self::new(time, ranges) }
    }

    /// Takes one document, as its identity bytes and its row; each document once.
    pub fn take(&mut self, key: &[u8], row: &[u8]) {
        if let Some(changed) = self.changed.rows.get_mut(key) {
            *changed = Some(row.to_vec());
        } else if !self.changed.drops_all {
            self.add(key, row);
        }
    }

    fn add(&mut self, key: &[u8], row: &[u8]) {
        if row_expires_at(row).is_some_and(|expires_at| expires_at <= self.time) {
            return;
        }
        let range = range_of(key);
        self.digests[range].add(key, row);
        self.bytes[range] += (key.len() + row.len()) as u64;
        if self.retained_ranges.contains(&range) {
            self.retained.insert(key.to_vec(), row.to_vec());
        }
    }

    /// Returns the changed documents, for the fold.
    pub(super) fn changed(&mut self) -> &mut ChangedDocuments {
        &mut self.changed
    }

    /// Adds the changed documents in their final state.
    pub(super) fn add_changed(&mut self) {
        for (key, row) in std::mem::take(&mut self.changed.rows) {
            row.iter().for_each(|row| self.add(&key, row));
        }
    }

    /// Returns the time of the scan.
    pub(super) fn time(&self) -> Timestamp {
        self.time
    }

    /// Returns the number of live documents.
    pub(super) fn documents(&self) -> u64 {
        self.digests.iter().map(|digest| digest.rows).sum()
    }

    /// Returns the ranges that differ from another copy's.
    pub(super) fn differing(&self, other: &Self) -> Ranges {
        let pairs = self.digests.iter().zip(&other.digests).enumerate();
        pairs
            .filter_map(|(range, (digest, other_digest))| (digest != other_digest).then_some(range))
            .collect()
    }

    /// Returns the first of these ranges that fit into memory together; at least one.
    pub(super) fn some_of(&self, other: &Self, ranges: &Ranges) -> Ranges {
        let mut bytes = 0;
        let with_bytes =
            ranges.iter().map(|range| (*range, self.bytes[*range] + other.bytes[*range]));
        let fitting = with_bytes.take_while(|(range, range_bytes)| {
            bytes += range_bytes;
            bytes <= VERIFY_BYTES_MAX || Some(range) == ranges.first()
        });
        fitting.map(|(range, _)| range).collect()
    }

    /// Returns the documents of the retained ranges.
    pub(super) fn retained(&self) -> &BTreeMap<Vec<u8>, Vec<u8>> {
        &self.retained
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::id::{PartitionCount, PartitionId, PartitionRef, StoreId};
    use forebay_core::row::Document;

    use super::*;

    /// Returns the row of a document without fields that expires at this time, if any.
    fn row(expires_us: Option<i64>) -> Vec<u8> {
        use forebay_core::{key::KeyType, layout::Layout, schema::StoreSpec};
        let definition =
            StoreSpec::documents("a", KeyType::Bytes).partitions(1).define(StoreId(1)).unwrap();
        let document = Document::new(expires_us.map(Timestamp::from_micros), None);
        document.encode(&Layout::of(&definition)).unwrap()
    }

    fn scan(ranges: Ranges) -> DigestScan {
        DigestScan::new(Timestamp::from_micros(1_000), ranges)
    }

    fn state() -> PartitionState {
        let at = PartitionRef { store: StoreId(1), partition: PartitionId(0) };
        PartitionState::new(at, PartitionCount(1))
    }

    #[test]
    fn digest_counts_live_rows_in_any_order_and_skips_expired_rows() {
        let (mut first, mut second) = (scan(Ranges::new()), scan(Ranges::new()));
        for (key, expires) in [("a", None), ("gone", Some(1_000)), ("b", Some(1_001))] {
            first.take(key.as_bytes(), &row(expires));
        }
        for (key, expires) in [("b", Some(1_001)), ("a", None), ("long gone", Some(1))] {
            second.take(key.as_bytes(), &row(expires));
        }
        assert_eq!((first.documents(), second.documents()), (2, 2));
        assert!(first.differing(&second).is_empty());
        second.take(b"c", &row(None));
        assert_eq!(first.differing(&second), Ranges::from([range_of(b"c")]));
    }

    #[test]
    fn digest_leaves_changing_rows_to_the_fold_and_drops_the_rest_on_drop_all() {
        let keys = || [Key::plain(b"a").unwrap(), Key::plain(b"new").unwrap()];
        for (drops, remaining) in [(0, 3), (1, 2)] {
            let changed = ChangedDocuments::new(keys(), &state(), drops);
            let time = Timestamp::from_micros(1_000);
            let mut scan_of_older = DigestScan::of_older(time, Ranges::new(), changed);
            scan_of_older.take(b"a", &row(None));
            scan_of_older.take(b"b", &row(None));
            assert_eq!(scan_of_older.changed().row(b"a").unwrap().as_deref(), Some(&row(None)[..]));
            assert_eq!(scan_of_older.changed().row(b"new").unwrap(), None);
            assert!(scan_of_older.changed().row(b"b").is_err(), "the log does not name it");
            scan_of_older.changed().write(b"new", Some(row(None))).unwrap();
            scan_of_older.add_changed();
            assert_eq!(scan_of_older.documents(), remaining);
        }
    }

    #[test]
    fn verification_compares_as_many_ranges_as_memory_allows_but_at_least_one() {
        let (mut first, mut second) = (scan(Ranges::new()), scan(Ranges::new()));
        let ranges = Ranges::from([3, 5, 9]);
        for (range, bytes) in [(3, VERIFY_BYTES_MAX), (5, 1), (9, 1)] {
            first.bytes[range] = bytes;
            second.bytes[range] = 1;
        }
        assert_eq!(first.some_of(&second, &ranges), Ranges::from([3]));
        first.bytes[3] = VERIFY_BYTES_MAX - 3;
        assert_eq!(first.some_of(&second, &ranges), Ranges::from([3, 5]));
        assert_eq!(first.some_of(&second, &Ranges::new()), Ranges::new());
    }

    #[test]
    fn only_documents_of_wanted_ranges_are_collected() {
        let mut range_scan = scan(Ranges::from([range_of(b"a")]));
        range_scan.take(b"a", &row(None));
        range_scan.take(b"b", &row(None));
        assert_eq!(range_scan.retained().keys().collect::<Vec<_>>(), [b"a"]);
    }
}
