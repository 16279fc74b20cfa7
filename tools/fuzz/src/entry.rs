//! Entries: any bytes are refused, or are an entry that round-trips through its own frame and that
//! the fold applies exactly once.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use forebay_core::catalog::SchemaAt;
use forebay_core::change::{Entry, EntryBody};
use forebay_core::clock::Timestamp;
use forebay_core::fold::{FoldEffects, FoldError, PartitionState, Record, RowLookup, Schemas};
use forebay_core::id::{PartitionCount, PartitionId, PartitionRef, SchemaVersion, StoreId};
use forebay_core::key::KeyType;
use forebay_core::schema::{Alteration, StoreOptions, StoreSpec};
use forebay_core::value::{FieldType, ScalarType, VectorType};
use forebay_core::{ErrorCode, Result};
use forebay_wire::entry::{
    ENTRY_FORMAT_VERSION, ENTRY_HEADER_BYTES, ENTRY_MAGIC, decode_entry, encode_entry,
};

const STORE: StoreId = StoreId(1);
const PARTITION: PartitionRef = PartitionRef { store: STORE, partition: PartitionId(0) };

struct Versions(Vec<Arc<SchemaAt>>);

impl Schemas for Versions {
    fn at(&self, version: SchemaVersion) -> Option<Arc<SchemaAt>> {
        self.0.iter().find(|schema| schema.definition.version == version).cloned()
    }
}

#[derive(Default)]
struct Rows(BTreeMap<Vec<u8>, Vec<u8>>);

impl RowLookup for Rows {
    fn row(&self, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        Ok(self.0.get(key).map(Cow::from))
    }
}

/// A store with a field of each kind, and a second version with dropped, widened and emptied
/// fields.
static VERSIONS: LazyLock<Versions> = LazyLock::new(|| {
    let mut spec = StoreSpec::documents("fuzz", KeyType::Bytes)
        .partitions(1)
        .field("count", FieldType::INT32)
        .field("name", FieldType::STRING)
        .field("score", FieldType::FLOAT64)
        .field("tags", FieldType::List(ScalarType::Bytes))
        .field("floats", FieldType::List(ScalarType::Float32))
        .field("embedding", FieldType::Vector(VectorType::F16, 2));
    spec.options.versioned = true;
    let first = spec.define(STORE).expect("a definition of distinct fields");
    let to = FieldType::INT64;
    let alterations = [
        Alteration::DropField("name".to_owned()),
        Alteration::WidenField { name: "count".to_owned(), to },
        Alteration::DropAll,
        Alteration::SetOptions(StoreOptions { ttl_us: Some(5), ..StoreOptions::default() }),
    ];
    let second = first.altered(&alterations).expect("alterations of its own fields");
    Versions([first, second].map(SchemaAt::of).into())
});

/// Decodes the input: mode u8, then a frame; with an odd `mode` a body, which gets a valid frame.
///
/// # Panics
/// Panics if an entry does not round-trip through its own frame, or is applied twice.
pub fn entry_decode(input: &[u8]) {
    let Some((mode, rest)) = input.split_first() else { return };
    let frame = if mode % 2 == 1 { framed(rest) } else { rest.to_vec() };
    match decode_entry(&frame) {
        Ok(entry) => {
            let encoded = encode_entry(&entry).expect("a decoded entry can be encoded");
            let decoded = decode_entry(&encoded).expect("an encoded entry can be decoded");
            assert_eq!(encode_entry(&decoded).as_ref(), Ok(&encoded));
            apply(&entry);
        }
        Err(error) => {
            let codes = [ErrorCode::Corrupt, ErrorCode::UpgradeNeeded];
            assert!(codes.contains(&error.code()), "{error}");
        }
    }
}

fn framed(body: &[u8]) -> Vec<u8> {
    let mut frame = ENTRY_MAGIC.to_vec();
    frame.extend(ENTRY_FORMAT_VERSION.to_le_bytes());
    frame.extend([0, 0]);
    frame.extend(7u64.to_le_bytes());
    frame.extend((body.len() as u32).to_le_bytes());
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&frame), body);
    frame.extend(checksum.to_le_bytes());
    debug_assert_eq!(frame.len(), ENTRY_HEADER_BYTES);
    frame.extend_from_slice(body);
    frame
}

/// Applies an entry and then a duplicate of it, which must write nothing.
fn apply(entry: &Entry) {
    let count = PartitionCount::new(1).expect("one partition");
    let mut state = PartitionState::new(PARTITION, count);
    // The state after the log's header entry.
    state.log_id = Some(entry.log_id);
    let mut rows = Rows::default();
    let Some(first) = apply_once(&mut state, &mut rows, entry) else { return };
    let before = state.clone();
    let Some(second) = apply_once(&mut state, &mut rows, entry) else {
        panic!("an applied entry fails when it is applied again");
    };
    if first.skipped.is_some() || entry.source.is_some() {
        assert!(second.skipped.is_some(), "a skipped or copied entry is skipped again");
        return;
    }
    assert!(second.writes.is_empty() && second.outcomes.is_empty() && !second.drop_all);
    assert_eq!(second.repeats, entry.change_count() as u64);
    assert_eq!((state.dedup, state.partition_time), (before.dedup, before.partition_time));
}

fn apply_once(state: &mut PartitionState, rows: &mut Rows, entry: &Entry) -> Option<FoldEffects> {
    let before = state.clone();
    let append_time = Timestamp::from_micros(1_000);
    let offset = state.offset_applied;
    let record = Record { offset, append_time, entry: Ok(entry.clone()) };
    match state.apply(record, rows, &*VERSIONS) {
        Ok(effects) => {
            for (key, row) in &effects.writes {
                match row {
                    Some(row) => rows.0.insert(key.as_bytes().to_vec(), row.clone()),
                    None => rows.0.remove(key.as_bytes()),
                };
            }
            if effects.skipped.is_none() && !matches!(entry.body, EntryBody::Changes(_)) {
                assert!(effects.writes.is_empty());
            }
            Some(effects)
        }
        Err(FoldError::NeedsDefinition(version)) => {
            assert!(version > SchemaVersion(2), "{version} is known");
            assert_eq!(*state, before);
            None
        }
        Err(error) => panic!("{error:?}"),
    }
}
