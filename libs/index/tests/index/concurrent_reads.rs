//! Readers next to writers: no document is ever mixed or missing between two entries, and every
//! status is true of the reads after it.
//!
//! Each entry writes every lasting key of its partition in several changes and sets all number
//! fields to the entry's offset, so any disagreement inside a document is a mix of two entries.
//! Some entries also carry a definition that drops one marker field, adds the next one and drops
//! all documents; now and then a partition is rebuilt.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::support::*;
use forebay_core::ErrorCode;
use forebay_core::change::{Change, ClientBatch, EntryBody, FieldChange, FieldOp, Verb};
use forebay_core::fold::FoldEffects;
use forebay_core::id::{ClientId, Offset, PartitionId};
use forebay_core::key::Key;
use forebay_core::partition::partition_of;
use forebay_core::row::Presence;
use forebay_core::schema::{Alteration, FieldSpec, StoreSpec};
use forebay_core::value::Value;
use forebay_index::{Conversion, GatherField, GatherOut, Index, KeyAnswer, KeyStatus};

const PARTITIONS: u32 = 2;
const KEYS: usize = 40;
const ENTRIES: u64 = 1_500;
const READERS: usize = 3;
/// Maximum stall of a reader, on a busy machine and under a sanitizer.
const READER_STANDS_MAX: Duration = Duration::from_secs(60);

fn keys() -> Vec<String> {
    (0..KEYS).map(|n| format!("lasting-{n}")).collect()
}

fn partition(key: &str) -> PartitionId {
    partition_of(key.as_bytes(), forebay_core::id::PartitionCount(PARTITIONS))
}

/// The changes of one entry: a, then b, then the rest, for each lasting key; plus one key that
/// comes and goes.
fn changes(store: &mut Store, to: PartitionId, n: u64, marker: &str) -> Vec<Change> {
    let number = || Some(Value::Int64(n as i64));
    let text = || Some(Value::String("x".repeat((n % 300) as usize)));
    let mut changes = Vec::new();
    for key in keys().iter().filter(|key| partition(key) == to) {
        changes.push(store.upsert(key, &[("a", number())]));
        changes.push(store.upsert(key, &[("b", number()), ("text", text())]));
        changes.push(store.upsert(key, &[("c", number()), (marker, number())]));
    }
    let passing = (0..).map(|i| format!("passing-{i}")).find(|key| partition(key) == to).unwrap();
    changes.push(store.delete(&passing));
    if !n.is_multiple_of(3) {
        let set = [("a", number()), ("b", number()), ("c", number()), (marker, number())];
        changes.push(store.upsert(&passing, &set));
    }
    changes
}

fn rebuild(store: &mut Store, id: PartitionId) {
    let followed = store.partitions.get_mut(&id).unwrap();
    let mut copied = FoldEffects::default();
    followed
        .writer
        .visit_rows(|key, row| {
            copied.writes.push((Key::from_identity_bytes(key), Some(row.to_vec())));
            Ok(())
        })
        .unwrap();
    start_rebuild(&store.index, followed);
    followed.writer.apply(&copied, &followed.state).unwrap();
    followed.writer.publish_rebuild();
}

/// Starts a new generation. A stalled reader keeps all retired spaces with their addresses, and no
/// addresses may be left then: the call waits for the reader.
fn start_rebuild(index: &Index, followed: &mut FollowedPartition) {
    for _ in 0..READER_STANDS_MAX.as_millis() {
        match followed.writer.start_rebuild() {
            Ok(()) => return,
            Err(error) => assert_eq!(error.code(), ErrorCode::LimitExceeded, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(1));
        index.collect_garbage();
    }
    panic!("no reader went on");
}

fn write_all(store: &mut Store) {
    let mut marker = 0;
    for n in 0..ENTRIES {
        if n.is_multiple_of(100) && n > 0 {
            let mut alterations = vec![
                Alteration::DropField(format!("marker-{marker}")),
                Alteration::AddField(FieldSpec::new(format!("marker-{}", marker + 1), INT64)),
            ];
            if n.is_multiple_of(200) {
                alterations.push(Alteration::DropAll);
            }
            marker += 1;
            store.define(&alterations);
        }
        for id in (0..PARTITIONS).map(PartitionId) {
            assert_eq!(store.partitions[&id].state.offset_applied, Offset(n));
            let changes = changes(store, id, n, &format!("marker-{marker}"));
            let body = EntryBody::Changes(vec![ClientBatch { client: ClientId(5), changes }]);
            let (index, definition) = (store.index.clone(), store.definition.clone());
            let followed = store.partitions.get_mut(&id).unwrap();
            followed.append(&index, &definition, body, n as i64);
            if n % 250 == 249 {
                rebuild(store, id);
            }
        }
    }
}

/// Checks one document: all its numbers agree, and it has exactly one marker. Returns the number.
fn check_document(document: &forebay_core::row::Document) -> i64 {
    let numbers: Vec<_> = document
        .cells()
        .iter()
        .filter_map(|cell| match cell.value {
            Some(Value::Int64(n)) => Some(n),
            _ => None,
        })
        .collect();
    assert_eq!(numbers.len(), 4, "a, b, c and one marker in {document:?}");
    assert!(numbers.iter().all(|n| *n == numbers[0]), "a mixed document: {document:?}");
    numbers[0]
}

/// Checks every document of a scan and counts them.
fn scan_all(index: &Index) -> usize {
    let mut scan = index.scan();
    let mut documents = 0;
    loop {
        let visited = scan.next_batch(at(0), 7, |document| {
            check_document(&document.row.document()?);
            documents += 1;
            Ok(())
        });
        if visited.unwrap() == 0 {
            return documents;
        }
    }
}

/// Checks that no partition has fallen behind its position of before.
fn check_positions(index: &Index, offsets: &mut [Offset]) {
    for (id, previous) in offsets.iter_mut().enumerate() {
        let status = index.status(PartitionId(id as u32)).unwrap();
        assert!(status.progress.offset_applied >= *previous, "a position fell");
        assert!(status.progress.position.offset.0 <= status.progress.offset_applied.0);
        *previous = status.progress.offset_applied;
    }
}

fn read_all(index: &Index, is_done: &AtomicBool, rounds: &AtomicU64) {
    let lasting = keys();
    let fields: Vec<_> = ["a", "b", "c"].map(GatherField::new).into();
    let plan = index.plan_gather::<f64>(&fields, Conversion::Lossy).unwrap();
    let handles = ["a", "b", "c"].map(|name| index.field_as(name, INT64).unwrap());
    let text = index.field_as("text", STRING).unwrap();
    let mut offsets = vec![Offset(0); PARTITIONS as usize];
    let mut read = vec![-1_i64; KEYS];
    loop {
        let last_round = is_done.load(Ordering::Acquire);
        check_positions(index, &mut offsets);
        let floor = |key: &str| offsets[partition(key).0 as usize].0 as i64 - 1;
        let view = index.view(at(0));
        let mut values = vec![0.0; 3 * KEYS];
        let mut statuses = vec![KeyStatus::Absent; KEYS];
        let mut cells = vec![Presence::Absent; 3 * KEYS];
        let mut gather_out = GatherOut {
            values: &mut values,
            statuses: Some(&mut statuses),
            cells: Some(&mut cells),
        };
        view.gather(&plan, &lasting[..], &mut gather_out).unwrap();
        for (place, row) in values.chunks(3).enumerate() {
            assert!(row.iter().all(|n| *n == row[0]), "a mixed row: {row:?}");
            if statuses[place] == KeyStatus::Found {
                assert!(cells[3 * place..3 * place + 3].iter().all(|c| *c == Presence::Value));
                assert!(row[0] as i64 >= read[place].max(floor(&lasting[place])));
                read[place] = row[0] as i64;
            } else {
                assert_eq!(read[place].max(floor(&lasting[place])), -1, "a document vanished");
            }
        }
        view.get_many(&lasting[..], |place, answer| {
            let KeyAnswer::Found(row) = answer else {
                assert_eq!(read[place], -1, "a document vanished");
                return Ok(());
            };
            let numbers = [0, 1, 2].map(|field| row.scalar::<i64>(&handles[field]).unwrap());
            let n = numbers[0].value().unwrap();
            assert!(numbers.iter().all(|number| number.value() == Some(n)), "{numbers:?}");
            assert_eq!(row.str(&text)?.value().unwrap().len(), (n % 300) as usize);
            assert!(n >= read[place]);
            read[place] = n;
            Ok(())
        })
        .unwrap();
        drop(view);
        let scanned = scan_all(index);
        let present = read.iter().filter(|n| **n >= 0).count();
        assert!(scanned >= present, "a scan missed documents: {scanned} of {present}");
        rounds.fetch_add(1, Ordering::Relaxed);
        if last_round {
            assert!(read.iter().all(|n| *n == ENTRIES as i64 - 1));
            return;
        }
    }
}

fn spec_of_numbers() -> StoreSpec {
    let fields = [("a", INT64), ("b", INT64), ("c", INT64), ("text", STRING), ("marker-0", INT64)];
    spec(PARTITIONS, &fields)
}

#[test]
fn readers_never_see_a_mixed_document_or_a_decreasing_position() {
    read_beside_writes(Store::new(spec_of_numbers()));
}

#[test]
fn readers_of_a_shared_copy_see_whole_documents_and_rising_positions() {
    let dir = tempfile::tempdir().unwrap();
    read_beside_writes(Store::shared(spec_of_numbers(), dir.path()));
}

/// Stops the readers even if the writer fails.
struct Stops<'s>(&'s AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn read_beside_writes(mut store: Store) {
    let (index, is_done) = (store.index.clone(), AtomicBool::new(false));
    let rounds = [const { AtomicU64::new(0) }; READERS];
    std::thread::scope(|scope| {
        let read_all = |rounds| read_all(&index, &is_done, rounds);
        let readers = rounds.each_ref().map(|rounds| scope.spawn(move || read_all(rounds)));
        // Every reader starts before the first entry and continues after the last.
        let _stops = Stops(&is_done);
        while rounds.iter().any(|rounds| rounds.load(Ordering::Relaxed) == 0) {
            std::thread::yield_now();
        }
        write_all(&mut store);
        is_done.store(true, Ordering::Release);
        // The threads are joined one by one: ThreadSanitizer does not see how a scope waits for its
        // threads.
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    assert!(rounds.iter().all(|rounds| rounds.load(Ordering::Relaxed) >= 2));
    let lasting_and_passing = KEYS as u64 + u64::from(PARTITIONS) * u64::from(ENTRIES % 3 != 1);
    let documents: u64 = index.metrics().partitions.iter().map(|p| p.usage.documents).sum();
    assert_eq!(documents, lasting_and_passing);
}

#[test]
fn no_document_is_missed_during_rebuilds() {
    read_beside_rebuilds(Store::new(spec(1, &[("a", INT64)])), 20_000);
}

#[test]
fn no_document_is_missed_during_rebuilds_of_a_shared_copy() {
    let dir = tempfile::tempdir().unwrap();
    read_beside_rebuilds(Store::shared(spec(1, &[("a", INT64)]), dir.path()), 100);
}

/// A reader that looks a key up while its generation is retired finds the key in the next one.
fn read_beside_rebuilds(mut store: Store, swaps: u32) {
    let change = store.upsert("key", &[("a", Some(Value::Int64(7)))]);
    store.write(vec![change], 1);
    let (index, is_done) = (store.index.clone(), AtomicBool::new(false));
    let reads = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                let handle = index.field_as("a", INT64).unwrap();
                while !is_done.load(Ordering::Relaxed) {
                    let read = index.view(at(0)).get_i64(&handle, "key", -1).unwrap();
                    // The writer must end even if this check fails.
                    if read != 7 {
                        is_done.store(true, Ordering::Relaxed);
                    }
                    assert_eq!(read, 7, "a document was missed");
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _stops = Stops(&is_done);
        while reads.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        for _ in 0..swaps {
            rebuild(&mut store, PartitionId(0));
            // A stalled reader keeps all retired spaces, with their addresses.
            store.index.collect_garbage();
        }
        is_done.store(true, Ordering::Relaxed);
    });
}

/// Proves that the check above can fail: the same readers' check finds a document that was
/// assembled wrongly.
#[test]
#[should_panic(expected = "a mixed document")]
fn mixed_document_would_be_noticed() {
    let fields = [("a", INT64), ("b", INT64), ("c", INT64), ("marker-0", INT64)];
    let mut store = Store::new(spec(1, &fields));
    let set =
        |field, n| FieldChange { field, op: FieldOp::Set(Some(Value::Int64(n))), ttl_us: None };
    let fields = ["a", "b", "c", "marker-0"].map(|name| store.field(name));
    let fields = fields.iter().enumerate().map(|(place, field)| set(*field, place as i64 / 3));
    let change = store.change("lasting-0", Verb::Put, fields.collect(), None);
    store.write(vec![change], 1);
    let document = store.index.view(at(0)).get_document("lasting-0").unwrap().unwrap();
    check_document(&document);
}
