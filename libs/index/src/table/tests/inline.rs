//! Tables of small records, which are in the buckets of their keys.

use super::*;

const KEYS: u64 = 30_000;
/// Minimum percentage of records in their buckets: the search of the rest begins in a bucket
/// without room.
const INLINE_PERCENT: usize = 75;

impl Table {
    /// Returns how many records are in the group that names them, and how many there are.
    fn inline_records(&self) -> (usize, usize) {
        let (mut inline, mut all) = (0, 0);
        for state in self.groups.iter() {
            let group_ref = GroupRef::of(&state.chunk);
            for word in self.group_of(state).unwrap().words() {
                inline += usize::from(group_ref.holds(slot::address(word)));
                all += 1;
            }
        }
        (inline, all)
    }

    fn assert_mostly_inline(&self) {
        let (inline, all) = self.inline_records();
        assert!(inline * 100 >= all * INLINE_PERCENT, "{inline} of {all}");
    }
}

fn row(key: u64, turn: u64) -> Vec<u8> {
    [key.to_le_bytes(), turn.to_le_bytes()].concat()
}

/// Returns a table with these rows, written in entries of 500.
fn filled(world: &TableWorld, rows: &[(u64, Vec<u8>)]) -> Table {
    let mut table = world.table();
    rows.chunks(500).for_each(|rows| write(&mut table, rows, world.publishing()));
    table
}

/// Writes some rows as one entry.
fn write(table: &mut Table, rows: &[(u64, Vec<u8>)], publishing: PublishTarget<'_>) {
    for (key, row) in rows {
        let key = key.to_le_bytes();
        table.prepare(table.hash.of(&key), &key, row, None, publishing).unwrap();
    }
    table.publish().unwrap();
    table.reclaim(4_096, RelocationTarget::Memory, publishing).unwrap();
}

#[test]
fn small_records_stay_inline_in_their_buckets() {
    let (world, mut number) = (TableWorld::new(), numbers(3));
    let rows: Vec<_> = (0..KEYS).map(|key| (key, row(key, 0))).collect();
    let mut table = filled(&world, &rows);
    table.assert_mostly_inline();
    let mut turns = vec![0; KEYS as usize];
    for turn in 1..=600 {
        let keys: std::collections::BTreeSet<_> = (0..500).map(|_| number(KEYS)).collect();
        let rows: Vec<_> = keys.into_iter().map(|key| (key, row(key, turn))).collect();
        rows.iter().for_each(|(key, _)| turns[*key as usize] = turn);
        write(&mut table, &rows, world.publishing());
    }
    for (key, turn) in (0..).zip(&turns) {
        assert_eq!(world.find(&u64::to_le_bytes(key)), Some(row(key, *turn)));
    }
    let (inline, all) = table.inline_records();
    assert!(inline * 2 >= all, "{inline} of {all} after ten updates of each");
    let all_at_rest = world.used_at_rest();
    assert!(all_at_rest < 2 * table.group_bytes, "{all_at_rest} and {}", table.group_bytes);
    table.retire(&world.reclaim);
    assert_eq!(world.used_at_rest(), 0);
}

#[test]
fn pending_writes_follow_the_records_of_rewritten_groups() {
    let world = TableWorld::new();
    let mut table = world.table();
    let known_rows: Vec<_> = (0..4_000).map(|key| (key, row(key, 1))).collect();
    write(&mut table, &known_rows, world.publishing());
    // In one entry old documents change and are removed while new ones split each group several
    // times.
    for gives_up in [true, false] {
        let before = table.groups.len();
        for key in 0..KEYS {
            let key_bytes = key.to_le_bytes();
            let hash = table.hash.of(&key_bytes);
            if key % 7 == 3 {
                table.prepare_removal(hash, &key_bytes).unwrap();
            } else {
                table.prepare(hash, &key_bytes, &row(key, 2), None, world.publishing()).unwrap();
            }
        }
        assert!(table.groups.len() > 3 * before || !gives_up);
        if gives_up {
            table.give_up();
            for (key, row) in &known_rows {
                assert_eq!(world.find(&key.to_le_bytes()).as_ref(), Some(row));
            }
            assert_eq!(world.find(&9_000_u64.to_le_bytes()), None);
        }
    }
    table.publish().unwrap();
    for key in 0..KEYS {
        let expected = (key % 7 != 3).then(|| row(key, 2));
        assert_eq!(world.find(&key.to_le_bytes()), expected, "key {key}");
    }
    let live: u32 = table.groups.iter().map(|state| state.live).sum();
    assert_eq!(live as usize, table.inline_records().1);
    table.retire(&world.reclaim);
    assert_eq!(world.used_at_rest(), 0);
}

#[test]
fn inline_ranges_never_overlap_or_leave_their_bucket() {
    let memory = Memory::reserve(1 << 30).unwrap();
    let chunk = memory.allocate(group_layout::bytes(true)).unwrap();
    // SAFETY: the chunk is this test's.
    unsafe { memory.clear(&chunk) };
    let group_ref = GroupRef::of(&chunk);
    // SAFETY: as above.
    let group = unsafe { Group::at(&memory, group_ref) };
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for hash in (0..20_000_u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
        let bytes = 4 + hash % 40;
        let Some(start) = group.take_room(hash, bytes) else { continue };
        assert!(bytes <= group_layout::INLINE_RECORD_BYTES_MAX);
        let room = group_layout::ROOM;
        let bucket = group_ref.bucket(hash, 0);
        assert!(start >= bucket + room.start && start + bytes <= bucket + room.end);
        ranges.push((start, start + bytes));
    }
    ranges.sort_unstable();
    assert!(ranges.len() > 512, "{} rooms", ranges.len());
    assert!(ranges.windows(2).all(|two| two[0].1 <= two[1].0));
    memory.release([chunk]);
}

#[test]
fn groups_take_the_layout_that_suits_their_records() {
    let world = TableWorld::new();
    let small: Vec<_> = (0..KEYS).map(|key| (key, row(key, 0))).collect();
    let mut table = filled(&world, &small);
    table.assert_mostly_inline();
    // The records grow, so the halves of later splits are plain.
    let large = |key: u64| vec![key as u8; 100];
    let grown_rows: Vec<_> = (0..3 * KEYS).map(|key| (key, large(key))).collect();
    grown_rows.chunks(500).for_each(|rows| write(&mut table, rows, world.publishing()));
    assert!(table.groups.iter().all(|state| !GroupRef::of(&state.chunk).is_inline()));
    for key in 0..3 * KEYS {
        assert_eq!(world.find(&key.to_le_bytes()), Some(large(key)));
    }
    // If no group may be inline, no record is inline.
    let mut table = world.table();
    table.allow_inline(false);
    small.chunks(500).for_each(|rows| write(&mut table, rows, world.publishing()));
    assert_eq!(table.inline_records(), (0, KEYS as usize));
}

#[test]
fn split_uses_plain_groups_if_inline_groups_find_no_memory() {
    let world = TableWorld::with_memory(8 * 1024 * 1024);
    let mut table = world.table();
    let full = u64::from(group_layout::filled_max(false));
    let rows: Vec<_> = (0..full).map(|key| (key, row(key, 0))).collect();
    write(&mut table, &rows, world.publishing());
    // The spare chunks suffice for the directory, both halves and some records.
    let chunks = starve(&world.memory, 6);
    write(&mut table, &[(full, row(full, 0))], world.publishing());
    assert_eq!(table.groups.len(), 2);
    assert_eq!(table.inline_records(), (0, full as usize + 1));
    for key in 0..=full {
        assert_eq!(world.find(&key.to_le_bytes()), Some(row(key, 0)));
    }
    world.memory.release(chunks);
}

#[test]
fn uncounted_group_is_not_rewritten_for_one_record() {
    let world = TableWorld::new();
    let rows: Vec<_> = (0..KEYS).map(|key| (key, row(key, 0))).collect();
    let mut table = filled(&world, &rows);
    // This is the state after an image or a takeover: no room in the buckets.
    for place in 0..table.groups.len() {
        let state = &mut table.groups[place];
        (state.filled, state.live, state.is_counted) = (0, 0, false);
    }
    let chunks = |table: &Table| table.groups.iter().map(|state| state.chunk.address()).collect();
    let before: Vec<u64> = chunks(&table);
    for turn in 1..4 {
        // The record is rewritten until its bucket's room is used up and the record is elsewhere.
        write(&mut table, &[(7, row(7, turn))], world.publishing());
    }
    assert_eq!(chunks(&table), before);
    assert_eq!(world.find(&7_u64.to_le_bytes()), Some(row(7, 3)));
}
