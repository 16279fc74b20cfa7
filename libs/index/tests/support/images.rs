//! Images of a store, and stores that continue from one.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use forebay_core::Result;
use forebay_core::change::{FieldChange, FieldOp, Verb};
use forebay_core::id::PartitionId;
use forebay_core::replica_state::Phase;
use forebay_core::value::Value;
use forebay_index::{Image, ImageFile, Index, MappedFile};
use xxhash_rust::xxh3::xxh3_64;

use crate::support::{Bytes, INT64, STRING, Store, at, schema_at, spec};

/// The only partition of the stores.
pub const PARTITION: PartitionId = PartitionId(0);
/// Bytes of a block of an image.
pub const BLOCK_BYTES: usize = 8 * 1024;
/// Offsets in the header.
const BLOCKS_AT: usize = 112;
const META_CHECKSUM_AT: usize = 136;
const PARITIES_AT: usize = 144;

pub fn mapped(bytes: &[u8]) -> Arc<dyn ImageFile> {
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(bytes, 0).unwrap();
    Arc::new(MappedFile::from(file))
}

pub fn store() -> Store {
    Store::new(spec(1, &[("age", INT64), ("name", STRING)]))
}

/// Returns a generator of numbers that look random and are the same in each run.
pub fn numbers(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |bound| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    }
}

/// Writes a history of puts, some with a time to live, and deletes, over this many keys; one entry
/// at each of these milliseconds.
pub fn write_some(store: &mut Store, keys: u64, millis: std::ops::Range<i64>) {
    let mut number = numbers(millis.start as u64);
    for millis in millis {
        let changes = (0..20).map(|_| {
            let key = format!("key-{}", number(keys));
            if number(5) == 0 {
                return store.delete(&key);
            }
            let name = "n".repeat(number(90) as usize);
            let set = |field: &str, value| FieldChange {
                field: store.field(field),
                op: FieldOp::Set(Some(value)),
                ttl_us: None,
            };
            let fields = vec![set("age", Value::Int64(millis)), set("name", Value::String(name))];
            let ttl_us = (number(4) == 0).then(|| 20_000 + number(2_000_000) as i64);
            store.change(&key, Verb::Put, fields, ttl_us)
        });
        let changes: Vec<_> = changes.collect();
        store.write(changes, millis * 1_000);
    }
}

pub fn image_of(store: &Store) -> Vec<u8> {
    let mut bytes = Bytes::default();
    let writer = &store.partitions[&PARTITION].writer;
    let count = writer.write_image(b"a state".to_vec(), &mut bytes).unwrap();
    assert_eq!(count, bytes.0.len() as u64);
    bytes.0
}

/// Returns a store with an index of its own that continues from an image of another store.
pub fn gone_on(from: &Store, file: Arc<dyn ImageFile>) -> Store {
    try_gone_on(from, file).unwrap()
}

pub fn try_gone_on(from: &Store, file: Arc<dyn ImageFile>) -> Result<Store> {
    let image = Image::open(file).unwrap();
    assert_eq!(image.state(), b"a state");
    let mut store = store();
    store.index = Index::new([schema_at(&store.definition)], [PARTITION], 77).unwrap();
    let mut writer = store.index.writer(PARTITION).unwrap();
    let state = from.partitions[&PARTITION].state.clone();
    writer.start_rebuild_from_image(&image, &state)?;
    writer.publish_rebuild();
    writer.set_phase(Phase::Serving);
    assert_eq!(writer.progress(), image.metadata().progress);
    let followed = store.partitions.get_mut(&PARTITION).unwrap();
    followed.writer = writer;
    followed.state = state;
    store.write_as(from);
    Ok(store)
}

/// Returns every stored key and row, including expired documents that are not reclaimed yet.
pub fn rows(store: &Store) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = Vec::new();
    let writer = &store.partitions[&PARTITION].writer;
    let push = |key: &[u8], row: &[u8]| {
        rows.push((key.to_vec(), row.to_vec()));
        Ok(())
    };
    writer.visit_rows(push).unwrap();
    rows.sort();
    rows
}

pub fn ages(store: &Store, keys: u64, micros: i64) -> Vec<Result<Option<i64>>> {
    let age = store.index.field_as("age", INT64).unwrap();
    let view = store.index.view(at(micros));
    let read = |key: u64| {
        let found = view.get_scalar::<i64>(&age, format!("key-{key}").as_str())?;
        Ok(found.value())
    };
    (0..keys).map(read).collect()
}

pub fn usage_of(store: &Store) -> (u64, u64, u64) {
    let usage = store.partitions[&PARTITION].writer.usage();
    (usage.documents, usage.key_bytes, usage.row_bytes)
}

/// Returns the number of blocks of an image, without its parity.
pub fn blocks(image: &[u8]) -> usize {
    number(image, BLOCKS_AT)
}

/// Returns the number of parity blocks.
pub fn parities(image: &[u8]) -> usize {
    number(image, PARITIES_AT)
}

/// Converts an image to version 1, or to version 2 if it has blocks of a spill file: the formats of
/// builds before parity.
pub fn without_parity(image: &[u8], version: u16) -> Vec<u8> {
    let (blocks, parities) = (blocks(image), parities(image));
    let (blocks_end, meta_at) = ((1 + blocks) * BLOCK_BYTES, (1 + blocks + parities) * BLOCK_BYTES);
    let (checksums, rest) = image[meta_at..].split_at(8 * (blocks + parities));
    let meta = [&checksums[..8 * blocks], rest].concat();
    let mut header = image[..BLOCK_BYTES].to_vec();
    header[4..6].copy_from_slice(&version.to_le_bytes());
    header[PARITIES_AT..PARITIES_AT + 8].fill(0);
    header[META_CHECKSUM_AT..PARITIES_AT].copy_from_slice(&xxh3_64(&meta).to_le_bytes());
    let checksum = xxh3_64(&header[..BLOCK_BYTES - 8]);
    header[BLOCK_BYTES - 8..].copy_from_slice(&checksum.to_le_bytes());
    [&header[..], &image[BLOCK_BYTES..blocks_end], &meta].concat()
}

/// Damages this many blocks of an image, from `first` on, each in a different way.
pub fn damage(image: &mut [u8], first: usize, count: usize) {
    let blocks = image[BLOCK_BYTES..].as_chunks_mut::<BLOCK_BYTES>().0;
    for (number, block) in blocks.iter_mut().enumerate().skip(first).take(count) {
        match number % 4 {
            0 => block[..4_096].fill(0x5a),
            1 => block[4_096..].fill(0),
            2 => block[number % BLOCK_BYTES] ^= 0x20,
            _ => block.reverse(),
        }
        // For a block of zeros some of the cases above produce zeros again.
        block[77] ^= 4;
    }
}

fn number(image: &[u8], offset: usize) -> usize {
    u64::from_le_bytes(image[offset..offset + 8].try_into().unwrap()) as usize
}
