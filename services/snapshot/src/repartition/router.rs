//! Routing of forwarded changes to their new partitions, in groups: entries of one source partition
//! that follow each other closely become one entry in each target partition.

use std::collections::{BTreeMap, VecDeque};

use forebay_core::Result;
use forebay_core::change::{Change, ClientBatch, Entry, EntryBody};
use forebay_core::clock::Timestamp;
use forebay_core::id::{ClientId, Offset, PartitionCount, PartitionId, Position, SchemaVersion};
use forebay_core::key::Key;
use forebay_core::limits::{ENTRY_BYTES_MAX, ENTRY_CHANGES_MAX, FORWARD_GROUP_US};
use forebay_core::partition::{partition_of, xxh3_64};
use forebay_core::versions::StoreLogs;

/// Content of a group.
pub(super) enum GroupContent {
    /// The changes by target partition.
    Changes(BTreeMap<PartitionId, Vec<ClientBatch>>),
    /// The same body for all partitions.
    All(EntryBody),
}

/// Entries that are forwarded together.
pub(super) struct ForwardGroup {
    /// Append time of the last entry.
    pub append_time: Timestamp,
    /// Schema version of all entries.
    pub schema_version: SchemaVersion,
    /// Position of the last entry in its own log.
    pub position: Position,
    pub content: GroupContent,
    began: Timestamp,
    changes: usize,
    bytes: usize,
}

impl ForwardGroup {
    /// Returns whether the changes of `next`, which has this number of changes and of bytes, may
    /// join this group.
    fn has_room_for(&self, next: &ForwardGroup, (changes, bytes): (usize, usize)) -> bool {
        matches!(self.content, GroupContent::Changes(_))
            && self.schema_version == next.schema_version
            && next.append_time.micros_since(self.began) <= FORWARD_GROUP_US
            && self.changes + changes <= ENTRY_CHANGES_MAX
            && self.bytes + bytes <= ENTRY_BYTES_MAX
    }
}

/// Returns the client id that forwarded changes of a source partition have in the new partitions.
/// The client has numbered the changes of each partition separately, so each source partition needs
/// an id of its own.
pub(crate) fn forwarded_client(client: ClientId, logs: StoreLogs, from: PartitionId) -> ClientId {
    let half = u128::from(xxh3_64(logs.at(from).to_string().as_bytes()));
    ClientId(client.0 ^ (half << 64 | half.rotate_left(32)))
}

/// Routes the changes of the source logs to the target partitions.
pub(super) struct PartitionRouter {
    pub from: StoreLogs,
    pub to: PartitionCount,
    pub is_partitioned: bool,
}

impl PartitionRouter {
    /// Adds an entry that its source partition has applied to the waiting groups: those of its
    /// changes that have not reached their target yet. `size` is the number of bytes of the entry.
    ///
    /// # Errors
    /// `Corrupt` for an invalid key.
    pub(super) fn add(
        &self,
        waiting: &mut VecDeque<ForwardGroup>,
        partition: PartitionId,
        entry: Entry,
        (offset, append_time, size): (Offset, Timestamp, usize),
        is_forwarded: impl Fn(PartitionId, Position) -> bool,
    ) -> Result<()> {
        let (position, changes) = (entry.position(offset), entry.change_count());
        let mut group = ForwardGroup {
            append_time,
            schema_version: entry.schema_version,
            position,
            content: GroupContent::Changes(BTreeMap::new()),
            began: append_time,
            changes: 0,
            bytes: 0,
        };
        let batches = match entry.body {
            EntryBody::Changes(batches) => batches,
            body @ (EntryBody::Definition | EntryBody::Heartbeat) => {
                group.content = GroupContent::All(body);
                (group.changes, group.bytes) = (changes, size);
                waiting.push_back(group);
                return Ok(());
            }
            // These entries concern only their own log.
            EntryBody::LogHeader
            | EntryBody::Barrier
            | EntryBody::Control(_)
            | EntryBody::DeadLetters(_) => return Ok(()),
        };
        if !waiting.back().is_some_and(|last| last.has_room_for(&group, (changes, size))) {
            waiting.push_back(group);
        }
        let Some(group) = waiting.back_mut() else { return Ok(()) };
        group.changes += changes;
        group.bytes += size;
        (group.position, group.append_time) = (position, append_time.max(group.append_time));
        let GroupContent::Changes(routed) = &mut group.content else { return Ok(()) };
        for batch in batches {
            let client = forwarded_client(batch.client, self.from, partition);
            for change in batch.changes {
                let to = self.partition(&change)?;
                if is_forwarded(to, position) {
                    continue;
                }
                push(routed.entry(to).or_default(), client, change);
            }
        }
        Ok(())
    }

    fn partition(&self, change: &Change) -> Result<PartitionId> {
        let (partition_key, primary) = Key::split(change.key.as_bytes(), self.is_partitioned)?;
        Ok(partition_of(partition_key.unwrap_or(primary), self.to))
    }
}

/// Adds a change after the changes of its client.
fn push(batches: &mut Vec<ClientBatch>, client: ClientId, change: Change) {
    match batches.last_mut().filter(|batch| batch.client == client) {
        Some(batch) => batch.changes.push(change),
        None => batches.push(ClientBatch { client, changes: vec![change] }),
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::change::Verb;
    use forebay_core::id::{LogId, Sequence, StoreId};

    use super::*;

    const FROM: PartitionId = PartitionId(1);

    fn router() -> PartitionRouter {
        let from = StoreLogs::first(StoreId(7), PartitionCount(2));
        PartitionRouter { from, to: PartitionCount(3), is_partitioned: false }
    }

    fn entry(body: EntryBody, schema_version: u32) -> Entry {
        Entry::original(LogId(9), SchemaVersion(schema_version), body)
    }

    fn changes(client: u128, numbers: &[u64]) -> EntryBody {
        let change = |number: &u64| Change {
            sequence: Sequence(*number),
            key: Key::from_identity_bytes(&number.to_le_bytes()),
            verb: Verb::Delete,
            fields: Vec::new(),
            condition: None,
            ttl_us: None,
        };
        let changes = numbers.iter().map(change).collect();
        EntryBody::Changes(vec![ClientBatch { client: ClientId(client), changes }])
    }

    /// Returns the waiting groups after these entries, each with its body, definition and time;
    /// entries before the offset `from` count as forwarded.
    fn group_entries(from: u64, entries: Vec<(EntryBody, u32, i64)>) -> VecDeque<ForwardGroup> {
        let mut waiting = VecDeque::new();
        for (offset, (body, version, time)) in (0..).zip(entries) {
            let record_head = (Offset(offset), Timestamp::from_micros(time), 100);
            let is_forwarded = |_: PartitionId, position: Position| position.offset < Offset(from);
            router()
                .add(&mut waiting, FROM, entry(body, version), record_head, is_forwarded)
                .unwrap();
        }
        waiting
    }

    fn batches(group: &ForwardGroup) -> Vec<(PartitionId, ClientId, Vec<u64>)> {
        let GroupContent::Changes(sorted) = &group.content else { panic!("no changes") };
        let all = sorted.iter().flat_map(|(to, all)| all.iter().map(|batch| (*to, batch)));
        let numbers = |batch: &ClientBatch| batch.changes.iter().map(|it| it.sequence.0).collect();
        all.map(|(to, batch)| (to, batch.client, numbers(batch))).collect()
    }

    #[test]
    fn router_groups_close_changes_by_the_partition_of_their_keys() {
        let first = (changes(3, &[1, 2, 3, 4, 5, 6]), 1, 1_000);
        let close = (changes(3, &[7]), 1, 1_000 + FORWARD_GROUP_US);
        let late = (changes(3, &[8]), 1, 1_001 + FORWARD_GROUP_US);
        let newer = (changes(3, &[9]), 2, 1_001 + FORWARD_GROUP_US);
        let waiting = group_entries(0, vec![first.clone(), close.clone(), late, newer]);
        let ends: Vec<u64> = waiting.iter().map(|group| group.position.offset.0).collect();
        assert_eq!(ends, [1, 2, 3]);
        assert_eq!(waiting[0].append_time, Timestamp::from_micros(1_000 + FORWARD_GROUP_US));
        let client = forwarded_client(ClientId(3), router().from, FROM);
        let mut all_numbers = Vec::new();
        for (to, found_client, numbers) in batches(&waiting[0]) {
            assert_eq!(found_client, client);
            assert!(numbers.is_sorted());
            for number in numbers {
                assert_eq!(partition_of(&number.to_le_bytes(), PartitionCount(3)), to);
                all_numbers.push(number);
            }
        }
        all_numbers.sort_unstable();
        assert_eq!(all_numbers, [1, 2, 3, 4, 5, 6, 7]);
        let rest = batches(&group_entries(1, vec![first, close])[0]);
        assert_eq!(rest.iter().map(|(_, _, numbers)| &**numbers).collect::<Vec<_>>(), [[7]]);
    }

    #[test]
    fn router_sends_entries_about_the_whole_log_to_all_partitions_in_order() {
        let waiting = group_entries(
            0,
            vec![
                (EntryBody::LogHeader, 0, 1),
                (changes(3, &[1]), 1, 2),
                (EntryBody::Definition, 2, 3),
                (EntryBody::Barrier, 2, 4),
                (EntryBody::Heartbeat, 2, 5),
                (changes(3, &[2]), 2, 6),
            ],
        );
        let is_to_all = |group: &ForwardGroup| matches!(group.content, GroupContent::All(_));
        let kinds: Vec<_> = waiting.iter().map(is_to_all).collect();
        assert_eq!(kinds, [false, true, true, false]);
    }

    #[test]
    fn router_gives_a_client_another_id_for_each_source_partition() {
        let logs = router().from;
        let client_from = |partition| forwarded_client(ClientId(3), logs, PartitionId(partition));
        assert_ne!(client_from(0), client_from(1));
        assert_ne!(client_from(0), ClientId(3));
        assert_eq!(client_from(0), client_from(0));
    }
}
