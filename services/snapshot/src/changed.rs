//! Which documents have changed between two positions, as the log tells.

use std::collections::BTreeSet;

use forebay_core::change::EntryBody;
use forebay_core::id::{LogId, Offset, PartitionRef};
use forebay_core::key_order::KeyOrder;
use forebay_core::{ErrorCode, Result};
use forebay_log::{ChangeLog, RecordRange};
use forebay_wire::entry::decode_entry;

/// The keys that the log's entries of this id name from one offset to before another, as a shard
/// has them; `None` for more than `most`.
///
/// # Errors
/// `TokenLost` where the log does not hold them any more, else those of the log.
pub(crate) async fn changed_keys(
    log: &dyn ChangeLog,
    at: PartitionRef,
    log_id: LogId,
    order: KeyOrder,
    offsets: std::ops::Range<Offset>,
    most: usize,
) -> Result<Option<BTreeSet<Vec<u8>>>> {
    let (mut keys, mut range) = (BTreeSet::new(), RecordRange { log, at, offsets });
    loop {
        let records = range.next().await?;
        if records.is_empty() {
            return Ok(Some(keys));
        }
        for record in records {
            // What every replica skips has changed nothing.
            let entry = match decode_entry(&record.entry) {
                Ok(entry) if entry.log_id == log_id => entry,
                Err(error) if error.code() == ErrorCode::UpgradeNeeded => return Err(error),
                _ => continue,
            };
            let EntryBody::Changes(batches) = entry.body else { continue };
            for change in batches.into_iter().flat_map(|batch| batch.changes) {
                keys.extend(order.stored(change.key.as_bytes()));
            }
            if keys.len() > most {
                return Ok(None);
            }
        }
    }
}
