//! An entry that finds no memory leaves no trace.

use forebay_core::ErrorCode;
use forebay_core::catalog::SchemaAt;
use forebay_core::clock::Timestamp;
use forebay_core::id::{Offset, StoreId};
use forebay_core::key::{Key, KeyType};
use forebay_core::layout::Layout;
use forebay_core::row::Document;
use forebay_core::schema::StoreSpec;
use forebay_core::value::{FieldType, Value};

use super::*;
use crate::index::Index;
use crate::view::ReadAt;

/// Returns an index of one partition over 8 MiB, its writer, and a function that makes rows of this
/// many bytes.
fn small_index() -> (Index, PartitionWriter, impl Fn(usize) -> Vec<u8>) {
    let definition = StoreSpec::documents("texts", KeyType::String)
        .partitions(1)
        .field("text", FieldType::STRING)
        .define(StoreId(1))
        .unwrap();
    let layout = Layout::of(&definition);
    let field = definition.field("text").unwrap().id;
    let row = move |bytes: usize| {
        let mut document = Document::new(None, None);
        document.set(field, Some(Value::String("x".repeat(bytes))), None);
        document.encode(&layout).unwrap()
    };
    let schema = SchemaAt::of(definition);
    let index = Index::with_addresses(8 << 20, [schema], [PartitionId(0)], 7).unwrap();
    let mut writer = index.writer(PartitionId(0)).unwrap();
    writer.set_phase(Phase::Serving);
    (index, writer, row)
}

fn used(index: &Index) -> u64 {
    let header = &index.inner.followed_partition(PartitionId(0)).unwrap().header;
    // SAFETY: no writer takes the space out of use during the test.
    unsafe { header.load_space(&index.inner.resources.reclaim) }.unwrap().memory.used_bytes()
}

fn key(n: usize) -> Key {
    Key::from_identity_bytes(format!("key-{n:05}").as_bytes())
}

fn apply(writer: &mut PartitionWriter, effects: &FoldEffects, offset: u64) -> Result<()> {
    let at = writer.partition_ref().at;
    let mut state = PartitionState::new(at, forebay_core::id::PartitionCount(1));
    state.offset_applied = Offset(offset);
    writer.apply(effects, &state)
}

#[test]
fn memory_lines_end_with_the_memory_and_moved_groups_are_counted() {
    let (index, mut writer, row) = small_index();
    assert_eq!(index.memory_lines().unwrap().counts(), [0]);
    let writes = (0..3_000).map(|n| (key(n), Some(row(10)))).collect();
    apply(&mut writer, &FoldEffects { writes, ..FoldEffects::default() }, 1).unwrap();
    assert_eq!(writer.groups_moved_max(), 1);
    let lines = index.memory_lines().unwrap();
    let count = lines.counts()[0];
    assert!(count * 64 >= used(&index));
    // The first chunk is in use. Others may not be in use, and must not be touched.
    assert!(lines.load(0, 0).is_some());
    assert_eq!((lines.load(0, count), lines.load(1, 0)), (None, None));
}

#[test]
fn drop_all_entry_without_memory_changes_nothing() {
    let (index, mut writer, row) = small_index();
    let writes = (0..100).map(|n| (key(n), Some(row(10)))).collect();
    apply(&mut writer, &FoldEffects { writes, ..FoldEffects::default() }, 1).unwrap();
    let (progress, usage) = (writer.progress(), writer.usage());
    let used_before = used(&index);

    let writes = (0..20).map(|n| (key(n), Some(row(700_000)))).collect();
    let too_much = FoldEffects { drop_all: true, writes, ..FoldEffects::default() };
    let error = apply(&mut writer, &too_much, 2).unwrap_err();
    assert_eq!(error.code(), ErrorCode::LimitExceeded);
    assert_eq!((writer.progress(), writer.usage()), (progress, usage));
    let text = index.field("text").unwrap();
    let mut buffer = [0; 10];
    for n in 0..100 {
        let view = index.view(ReadAt::new(Timestamp::from_micros(0)));
        let key = format!("key-{n:05}");
        let read = view.get_str(&text, key.as_str(), &mut buffer).unwrap();
        assert_eq!(read, crate::CopyOut::Length(10));
    }
    // The attempt leaves nothing behind, and the partition continues.
    let writes = vec![(key(0), None)];
    apply(&mut writer, &FoldEffects { writes, ..FoldEffects::default() }, 3).unwrap();
    assert_eq!(used(&index), used_before);
    apply(&mut writer, &FoldEffects { drop_all: true, ..FoldEffects::default() }, 4).unwrap();
    assert_eq!((writer.usage(), used(&index)), (PartitionUsage::default(), 0));
}

#[test]
fn position_is_never_ahead_of_the_applied_writes() {
    let (_index, mut writer, row) = small_index();
    let writes = (0..20).map(|n| (key(n), Some(row(700_000)))).collect();
    let error =
        apply(&mut writer, &FoldEffects { writes, ..FoldEffects::default() }, 9).unwrap_err();
    assert_eq!(error.code(), ErrorCode::LimitExceeded);
    assert_eq!(writer.progress(), Progress::START);
}

#[test]
fn memory_limit_is_never_exceeded_and_a_raised_limit_admits_writes() {
    let (index, mut writer, row) = small_index();
    let limit = 2 << 20;
    index.limit_memory(limit);
    let write = |n: usize, bytes| FoldEffects {
        writes: vec![(key(n), Some(row(bytes)))],
        ..FoldEffects::default()
    };
    let mut n = 0;
    let error = loop {
        let effects = apply(&mut writer, &write(n, 30_000), n as u64 + 1);
        let memory = index.metrics().memory;
        assert!(memory.used <= limit, "{memory:?}");
        match effects {
            Ok(()) => n += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.code(), ErrorCode::LimitExceeded);
    assert!(error.message().contains("memory limit"), "{error}");
    assert!(n > 20, "{n} rows of 30 kB in 2 MiB");
    assert_eq!(writer.usage().documents, n as u64);
    // A replacing document needs room for both; a removed document makes room.
    let removals =
        FoldEffects { writes: (0..n).map(|n| (key(n), None)).collect(), ..FoldEffects::default() };
    apply(&mut writer, &removals, n as u64 + 1).unwrap();
    index.limit_memory(2 * limit);
    (0..n).for_each(|number| {
        apply(&mut writer, &write(number, 30_000), (n + number) as u64 + 2).unwrap()
    });
    assert_eq!(writer.usage().documents, n as u64);
    assert_eq!(index.metrics().memory.limit, Some(2 * limit));
}
