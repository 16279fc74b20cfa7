//! The documents that changed between two offsets of a log.

use std::collections::HashSet;

use forebay_core::change::EntryBody;
use forebay_core::id::LogId;
use forebay_core::key::Key;
use forebay_core::{ErrorCode, Result};
use forebay_log::RecordRange;
use forebay_wire::entry::decode_entry;

/// Returns the keys that the entries with this log id name in a range of their log; `None` if there
/// are more than `keys_max` keys.
///
/// # Errors
/// The errors of [`RecordRange::next`]; `UpgradeNeeded` for an entry of a newer build.
pub async fn changed_keys(
    mut range: RecordRange<'_>,
    log_id: LogId,
    keys_max: usize,
) -> Result<Option<HashSet<Key>>> {
    let mut keys = HashSet::new();
    loop {
        let records = range.next().await?;
        if records.is_empty() {
            return Ok(Some(keys));
        }
        for record in records {
            // An entry that every replica skips has changed nothing.
            let entry = match decode_entry(&record.entry) {
                Ok(entry) if entry.log_id == log_id => entry,
                Err(error) if error.code() == ErrorCode::UpgradeNeeded => return Err(error),
                _ => continue,
            };
            let EntryBody::Changes(batches) = entry.body else { continue };
            let changes = batches.into_iter().flat_map(|batch| batch.changes);
            keys.extend(changes.map(|change| change.key));
            if keys.len() > keys_max {
                return Ok(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use forebay_core::change::{Change, ClientBatch, Entry, Verb};
    use forebay_core::clock::SystemClock;
    use forebay_core::id::{
        ClientId, Offset, PartitionCount, PartitionId, PartitionRef, SchemaVersion, Sequence,
        StoreId,
    };
    use forebay_log::{ChangeLog, MemoryLog};
    use forebay_wire::entry::encode_entry;

    use super::*;

    const AT: PartitionRef = PartitionRef { store: StoreId(1), partition: PartitionId(0) };

    fn key(name: &str) -> Key {
        Key::plain(name.as_bytes()).unwrap()
    }

    fn entry(log_id: u64, body: EntryBody) -> Bytes {
        encode_entry(&Entry::original(LogId(log_id), SchemaVersion(1), body)).unwrap()
    }

    fn deletes(names: &[&str]) -> EntryBody {
        let change = |(number, name): (usize, &&str)| Change {
            sequence: Sequence(number as u64 + 1),
            key: key(name),
            verb: Verb::Delete,
            fields: Vec::new(),
            condition: None,
            ttl_us: None,
        };
        let changes = names.iter().enumerate().map(change).collect();
        EntryBody::Changes(vec![ClientBatch { client: ClientId(7), changes }])
    }

    #[tokio::test]
    async fn changed_keys_are_limited_to_their_range_log_and_count() {
        let log = MemoryLog::new(Arc::new(SystemClock));
        log.create(AT.store, PartitionCount(1)).await.unwrap();
        for record in [
            entry(5, deletes(&["before"])),
            entry(5, deletes(&["a", "b"])),
            entry(6, deletes(&["of another log"])),
            Bytes::from_static(b"garbage"),
            entry(5, EntryBody::Heartbeat),
            entry(5, deletes(&["b", "c"])),
            entry(5, deletes(&["behind"])),
        ] {
            log.append(AT, record).await.unwrap();
        }
        let keys_changed = async |offsets: std::ops::Range<u64>, keys_max| {
            let offsets = Offset(offsets.start)..Offset(offsets.end);
            changed_keys(RecordRange { log: &log, at: AT, offsets }, LogId(5), keys_max).await
        };
        let expected = HashSet::from(["a", "b", "c"].map(key));
        assert_eq!(keys_changed(1..6, 3).await.unwrap(), Some(expected));
        assert_eq!(keys_changed(1..6, 2).await.unwrap(), None);
        assert_eq!(keys_changed(3..3, 0).await.unwrap(), Some(HashSet::new()));
        let error = keys_changed(1..9, 9).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Unavailable, "{error}");
        log.trim(AT, Offset(3)).await.unwrap();
        assert_eq!(keys_changed(1..6, 3).await.unwrap_err().code(), ErrorCode::TokenLost);
    }
}
