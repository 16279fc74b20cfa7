//! One reading of a copy: digests of what is live in it, and the documents of some of its ranges.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use forebay_core::clock::Timestamp;
use forebay_core::fold::{Documents, PartitionState};
use forebay_core::limits::{VERIFY_BYTES_MAX, VERIFY_RANGES};
use forebay_core::partition::xxh3_64;
use forebay_core::row::row_expires_at;
use forebay_core::rows_digest::RowsDigest;
use forebay_core::{Error, Result};

/// Some of the ranges that documents fall into by the hashes of their keys.
pub(super) type Ranges = BTreeSet<usize>;

fn range_of(key: &[u8]) -> usize {
    const { assert!(VERIFY_RANGES.is_power_of_two()) };
    (xxh3_64(key) >> (u64::BITS - VERIFY_RANGES.trailing_zeros())) as usize
}

/// What is reckoned of a copy while it is read.
pub struct Pass {
    /// What has expired by then is not live.
    time: Timestamp,
    digests: Vec<RowsDigest>,
    /// Bytes of each range.
    bytes: Vec<u64>,
    /// The ranges whose documents are kept.
    wanted: Ranges,
    kept: BTreeMap<Vec<u8>, Vec<u8>>,
    changing: Changing,
}

/// What the log says of documents between two positions.
#[derive(Default)]
pub(super) struct Changing {
    /// The rows of those that it changes, as the older copy has them.
    rows: HashMap<Vec<u8>, Option<Vec<u8>>>,
    /// Whether all that were there before are dropped.
    drops_all: bool,
}

impl Changing {
    /// The documents of these keys, of a copy in this state on its way to where so many drop-alls
    /// were carried out.
    pub(super) fn new(
        keys: impl IntoIterator<Item = Vec<u8>>,
        state: &PartitionState,
        drop_all_count: u32,
    ) -> Self {
        let rows = keys.into_iter().map(|key| (key, None)).collect();
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

impl Documents for Changing {
    fn row(&self, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        let row = self.rows.get(key).ok_or_else(unknown)?;
        Ok(row.as_deref().map(Cow::Borrowed))
    }
}

fn unknown() -> Error {
    Error::internal("the log changes a document that it did not name before")
}

impl Pass {
    /// Of a copy as it is at this time; keeps the documents of these ranges.
    pub(super) fn new(time: Timestamp, wanted: Ranges) -> Self {
        Self {
            time,
            digests: vec![RowsDigest::default(); VERIFY_RANGES],
            bytes: vec![0; VERIFY_RANGES],
            wanted,
            kept: BTreeMap::new(),
            changing: Changing::default(),
        }
    }

    /// As [`Pass::new`], of an older copy, some documents of which change until then.
    pub(super) fn of_older(time: Timestamp, wanted: Ranges, changing: Changing) -> Self {
        Self { changing, ..Self::new(time, wanted) }
    }

    /// Takes a document in, by its identity bytes and its row: each one once.
    pub fn take(&mut self, key: &[u8], row: &[u8]) {
        if let Some(changing) = self.changing.rows.get_mut(key) {
            *changing = Some(row.to_vec());
        } else if !self.changing.drops_all {
            self.add(key, row);
        }
    }

    fn add(&mut self, key: &[u8], row: &[u8]) {
        if row_expires_at(row).is_some_and(|at| at <= self.time) {
            return;
        }
        let range = range_of(key);
        self.digests[range].add(key, row);
        self.bytes[range] += (key.len() + row.len()) as u64;
        if self.wanted.contains(&range) {
            self.kept.insert(key.to_vec(), row.to_vec());
        }
    }

    /// The documents that change, for the fold.
    pub(super) fn changing(&mut self) -> &mut Changing {
        &mut self.changing
    }

    /// Takes in the documents that have changed, as they are now.
    pub(super) fn settle(&mut self) {
        for (key, row) in std::mem::take(&mut self.changing.rows) {
            row.iter().for_each(|row| self.add(&key, row));
        }
    }

    /// When it is of.
    pub(super) fn time(&self) -> Timestamp {
        self.time
    }

    /// How many documents are live.
    pub(super) fn documents(&self) -> u64 {
        self.digests.iter().map(|digest| digest.rows).sum()
    }

    /// The ranges that are not the same in another copy.
    pub(super) fn differing(&self, other: &Self) -> Ranges {
        let both = self.digests.iter().zip(&other.digests).enumerate();
        both.filter_map(|(range, (one, other))| (one != other).then_some(range)).collect()
    }

    /// The first of these ranges, as many as there is memory for: one at least.
    pub(super) fn some_of(&self, other: &Self, ranges: &Ranges) -> Ranges {
        let mut bytes = 0;
        let with_bytes =
            ranges.iter().map(|range| (*range, self.bytes[*range] + other.bytes[*range]));
        let fitting = with_bytes.take_while(|(range, more)| {
            bytes += more;
            bytes <= VERIFY_BYTES_MAX || Some(range) == ranges.first()
        });
        fitting.map(|(range, _)| range).collect()
    }

    /// The documents of the ranges that were wanted.
    pub(super) fn kept(&self) -> &BTreeMap<Vec<u8>, Vec<u8>> {
        &self.kept
    }
}
