//! Comparison of two copies of a partition: whether they hold the same documents, and which
//! documents differ.
//!
//! The two copies are usually at two positions. The comparison therefore (1) folds the log between
//! the positions into the older copy's documents that the log changes; all other documents must be
//! equal already; (2) computes 4,096 digests of the live documents of each copy, by ranges of the
//! hashes of the keys; (3) compares one by one only the documents of ranges whose digests differ.

mod changes;
mod copies;
mod digest_scan;
mod self_check;

use std::collections::BTreeMap;

use async_trait::async_trait;
use forebay_core::clock::Timestamp;
use forebay_core::fold::PartitionState;
use forebay_core::id::{PartitionRef, Position};
use forebay_core::key::Key;
use forebay_core::limits::VERIFY_NAMED_MAX;
use forebay_core::row::{Document, row_schema_version};
use forebay_core::schema_set::SchemaSet;
use forebay_core::{Error, Result};
use futures::future::BoxFuture;

use self::digest_scan::Ranges;

pub use self::changes::VerifyLog;
pub use self::copies::{OfflineCopy, ReaderCopy, ShardCopy};
pub use self::digest_scan::DigestScan;

/// A function that starts a scan of a copy in this state.
pub type StartScan = Box<dyn FnOnce(&PartitionState) -> DigestScan + Send>;

/// A copy of one partition that is compared with another one.
#[async_trait]
pub trait VerifiedCopy: Send {
    /// Returns whether the copy follows its log, so that each scan may see a later state.
    fn follows_log(&self) -> bool;

    /// Returns the copy's current state.
    ///
    /// # Errors
    /// Returns the reason if the copy cannot be read.
    async fn state(&mut self) -> Result<PartitionState>;

    /// Reads the whole copy as of one moment after it has passed this position; each document once.
    ///
    /// # Errors
    /// Returns the reason if the copy cannot be read or does not reach the position.
    async fn read(
        &mut self,
        min_position: Position,
        begin: StartScan,
    ) -> Result<(DigestScan, PartitionState)>;

    /// Releases the resources that other processes hold for the copy.
    async fn end(self: Box<Self>) {}
}

/// The result of comparing two copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verification {
    /// Compared partition, of the compared store version.
    pub at: PartitionRef,
    /// Position at which both were compared.
    pub position: Position,
    /// Number of live documents of the first and of the second copy.
    pub documents: (u64, u64),
    /// First differing documents, by the bytes of their keys.
    pub differences: Vec<(Key, DifferenceKind)>,
    /// Number of further differing documents.
    pub more: u64,
    /// Number of ranges (of 4,096) that differ and whose documents were not compared, because there
    /// are too many.
    pub ranges_left: usize,
}

impl Verification {
    /// Returns whether both copies hold the same documents.
    pub fn is_same(&self) -> bool {
        self.differences.is_empty() && self.ranges_left == 0
    }
}

/// The kind of a difference between two copies of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DifferenceKind {
    /// Only the first copy has the document.
    OnlyInFirst,
    /// Only the second copy has the document.
    OnlyInSecond,
    /// Both copies have the document, with different contents.
    Contents,
}

impl DifferenceKind {
    fn mirrored(self) -> Self {
        match self {
            Self::OnlyInFirst => Self::OnlyInSecond,
            Self::OnlyInSecond => Self::OnlyInFirst,
            Self::Contents => Self::Contents,
        }
    }
}

/// Compares two copies at one position: the later of their two positions.
///
/// Reads both copies whole, and twice if they differ. Holds in memory the documents that the log
/// changes between the positions, and then up to 256 MiB of the documents that may differ.
///
/// # Errors
/// - `InvalidArgument` for two copies that both move, or are of two partitions.
/// - `TokenLost` for copies of two logs, or if the log between them is gone.
/// - `LimitExceeded` if the log changes too many documents.
/// - `Corrupt` for a damaged copy.
/// - The errors of the copies.
pub fn verify<'a>(
    first: &'a mut dyn VerifiedCopy,
    second: &'a mut dyn VerifiedCopy,
    log: &'a VerifyLog,
) -> BoxFuture<'a, Result<Verification>> {
    Box::pin(async move {
        if first.follows_log() && second.follows_log() {
            let message = "two readers cannot be paused at one position; compare each with a shard \
                or a snapshot";
            return Err(Error::invalid_argument(message));
        }
        let positions = (first.state().await?.position, second.state().await?.position);
        let is_first_older =
            second.follows_log() || (!first.follows_log() && positions.0 <= positions.1);
        if is_first_older {
            return compare(first, second, log).await;
        }
        let mut verified = compare(second, first, log).await?;
        let (older, newer) = verified.documents;
        verified.documents = (newer, older);
        verified.differences.iter_mut().for_each(|(_, kind)| *kind = kind.mirrored());
        Ok(verified)
    })
}

async fn compare(
    older: &mut dyn VerifiedCopy,
    newer: &mut dyn VerifiedCopy,
    log: &VerifyLog,
) -> Result<Verification> {
    let copies = read_both(older, newer, log, Ranges::new()).await?;
    let differing = copies.older.differing(&copies.newer);
    if differing.is_empty() {
        return Ok(copies.verified(0, Vec::new()));
    }
    let ranges = copies.older.some_of(&copies.newer, &differing);
    let ranges_left = differing.len() - ranges.len();
    drop(copies);
    let copies = read_both(older, newer, log, ranges).await?;
    let differences = copies.differences(&log.schemas)?;
    Ok(copies.verified(ranges_left, differences))
}

/// Two copies at one position.
struct ComparedCopies {
    older: DigestScan,
    newer: DigestScan,
    state: PartitionState,
}

async fn read_both(
    older: &mut dyn VerifiedCopy,
    newer: &mut dyn VerifiedCopy,
    log: &VerifyLog,
    ranges: Ranges,
) -> Result<ComparedCopies> {
    let before = older.state().await?;
    let begin = {
        let ranges = ranges.clone();
        Box::new(move |state: &PartitionState| DigestScan::new(state.partition_time, ranges))
    };
    let (newer, state) = newer.read(before.position, begin).await?;
    check_same_log(&before, &state)?;
    let changed = log.changed_documents(&before, &state).await?;
    let time = newer.time();
    let begin = Box::new(move |_: &PartitionState| DigestScan::of_older(time, ranges, changed));
    let (mut older, mut folded) = older.read(before.position, begin).await?;
    log.fold(&mut folded, older.changed(), state.offset_applied).await?;
    older.add_changed();
    let end = |copy: &PartitionState| (copy.position, copy.partition_time, copy.drop_all_count);
    if end(&folded) != end(&state) {
        let message = "the two replicas differ in position, time or drop-alls after the same log; \
            rebuild the wrong one";
        return Err(Error::corrupt(message).with_partition(state.partition.partition));
    }
    Ok(ComparedCopies { older, newer, state })
}

/// Refuses copies of two partitions, or of two logs.
fn check_same_log(first: &PartitionState, second: &PartitionState) -> Result<()> {
    if (first.partition, first.partitions) != (second.partition, second.partitions) {
        let message = format!(
            "the first replica is of {} of {}, the second of {} of {}; name the same store, \
             version and partition",
            first.partition, first.partitions, second.partition, second.partitions
        );
        return Err(Error::invalid_argument(message));
    }
    if first.log_id != second.log_id {
        let message = "the two replicas follow two logs, so no common position exists; compare \
            replicas of one log";
        return Err(Error::token_lost(message).with_partition(first.partition.partition));
    }
    Ok(())
}

impl ComparedCopies {
    fn verified(
        self,
        ranges_left: usize,
        mut differences: Vec<(Key, DifferenceKind)>,
    ) -> Verification {
        let unnamed = differences.len().saturating_sub(VERIFY_NAMED_MAX) as u64;
        differences.truncate(VERIFY_NAMED_MAX);
        Verification {
            at: self.state.partition,
            position: self.state.position,
            documents: (self.older.documents(), self.newer.documents()),
            differences,
            more: unnamed,
            ranges_left,
        }
    }

    /// Returns the differing documents, of those that were retained.
    fn differences(&self, schemas: &SchemaSet) -> Result<Vec<(Key, DifferenceKind)>> {
        let (older, newer) = (self.older.retained(), self.newer.retained());
        let keys: BTreeMap<_, ()> = older.keys().chain(newer.keys()).map(|key| (key, ())).collect();
        let mut found = Vec::new();
        for key in keys.into_keys() {
            let kind = match (older.get(key), newer.get(key)) {
                (Some(_), None) => DifferenceKind::OnlyInFirst,
                (None, _) => DifferenceKind::OnlyInSecond,
                (Some(first_row), Some(second_row)) => {
                    if first_row == second_row
                        || is_same(first_row, second_row, schemas, self.newer.time())
                    {
                        continue;
                    }
                    DifferenceKind::Contents
                }
            };
            found.push((Key::from_identity_bytes(key), kind));
        }
        Ok(found)
    }
}

/// Returns whether two rows hold the same document at a time: an expired document or field may be
/// present or absent. An undecodable row equals no other.
fn is_same(first_row: &[u8], second_row: &[u8], schemas: &SchemaSet, time: Timestamp) -> bool {
    let live = |row: &[u8]| {
        let schema = schemas.get(row_schema_version(row)?)?;
        let mut document = Document::decode(row, &schema.layout).ok()?;
        document.retain(|cell| cell.expires_at.is_none_or(|expiry| expiry > time));
        Some(document)
    };
    live(first_row).is_some_and(|first_row| live(second_row) == Some(first_row))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use forebay_core::catalog::SchemaAt;
    use forebay_core::id::{FieldId, PartitionCount, PartitionId, StoreId};
    use forebay_core::key::KeyType;
    use forebay_core::schema::StoreSpec;
    use forebay_core::value::{FieldType, Value};

    use super::*;

    fn schema() -> Arc<SchemaAt> {
        let number = FieldType::INT64;
        let spec = StoreSpec::documents("a", KeyType::Int64).partitions(1).field("x", number);
        SchemaAt::of(spec.field("y", number).define(StoreId(1)).unwrap())
    }

    #[test]
    fn expired_fields_may_be_present_or_absent() {
        let schema = schema();
        let schemas = SchemaSet::new([Arc::clone(&schema)]).unwrap();
        let time = Timestamp::from_micros;
        let row = |y: Option<i64>, expires: i64| {
            let mut document = Document::new(None, None);
            document.set(FieldId(1), Some(Value::Int64(1)), None);
            if let Some(y) = y {
                document.set(FieldId(2), Some(Value::Int64(y)), Some(time(expires)));
            }
            document.encode(&schema.layout).unwrap()
        };
        let are_same = |first_row: Vec<u8>, second_row: Vec<u8>| {
            is_same(&first_row, &second_row, &schemas, time(10))
        };
        assert!(are_same(row(Some(5), 10), row(None, 0)));
        assert!(are_same(row(Some(5), 9), row(Some(6), 10)));
        assert!(!are_same(row(Some(5), 11), row(None, 0)));
        assert!(!are_same(row(Some(5), 11), row(Some(6), 11)));
        assert!(!are_same(vec![1, 2], vec![1, 2]), "an unreadable row equals no row");
    }

    #[test]
    fn verification_names_a_limited_number_of_documents_and_counts_the_rest() {
        let at = PartitionRef { store: StoreId(1), partition: PartitionId(0) };
        let scan = || DigestScan::new(Timestamp::MIN, Ranges::new());
        let state = PartitionState::new(at, PartitionCount(1));
        let copies = ComparedCopies { older: scan(), newer: scan(), state };
        let key = |number: usize| Key::plain(&number.to_le_bytes()).unwrap();
        let all = 0..VERIFY_NAMED_MAX + 7;
        let found = all.map(|number| (key(number), DifferenceKind::Contents)).collect();
        let verified = copies.verified(2, found);
        assert_eq!((verified.differences.len(), verified.more), (VERIFY_NAMED_MAX, 7));
        assert!(!verified.is_same() && verified.ranges_left == 2);
    }
}
