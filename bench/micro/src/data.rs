//! The documents that the benchmarks write: five fields, about 130 bytes, under made-up keys.

use bytes::Bytes;
use forebay::schema::{FieldType, KeyType, SchemaVersion, StoreId, StoreSpec, Value};
use forebay::writes::Write;
use forebay::{Client, ErrorCode, Store};
use forebay_core::change::{Change, ClientBatch, Entry, EntryBody, FieldChange, FieldOp, Verb};
use forebay_core::id::{ClientId, LogId, Sequence};
use forebay_core::key::Key;
use forebay_wire::entry::encode_entry;

/// Distinct keys that the writes go to.
pub const KEYS: u64 = 100_000;
/// Number of partitions of the store.
pub const PARTITIONS: u32 = 4;
/// Description of the documents, for the result file.
pub const DATA: &str = "made-up user documents of 5 fields, about 130 bytes each with their key, \
                        upserted under 100,000 keys in an order without pattern; 4 partitions";

const TOWNS: [&str; 4] = ["Aachen on the Wurm", "Bergamo, upper town", "Coimbra", "Dundee"];
const LINE: &str = "likes long walks, short queues, and the sound of water at night";

/// Returns the specification of the store.
#[must_use]
pub fn spec(name: &str) -> StoreSpec {
    StoreSpec::documents(name, KeyType::String)
        .partitions(PARTITIONS)
        .field("age", FieldType::INT32)
        .field("visits", FieldType::INT64)
        .field("score", FieldType::FLOAT32)
        .field("town", FieldType::STRING)
        .field("line", FieldType::STRING)
}

/// Creates the store, or opens the existing one.
///
/// # Errors
/// Errors of the client.
pub async fn open_store(client: &Client, name: &str) -> forebay::Result<Store> {
    match client.create_store(&spec(name)).await {
        Err(error) if error.code() == ErrorCode::Conflict => client.store(name).await,
        created => created,
    }
}

/// Returns the key of the write with this number; neighbours are far apart.
#[must_use]
pub fn key(number: u64) -> String {
    // 7,919 and 100,000 share no factor, so 100,000 writes in a row go to 100,000 keys.
    format!("u{:09}", number.wrapping_mul(7_919) % KEYS)
}

/// Returns the fields of the write with this number.
fn fields(number: u64) -> [(&'static str, Value); 5] {
    let town = TOWNS[(number % TOWNS.len() as u64) as usize];
    [
        ("age", Value::Int32((number % 90) as i32)),
        ("visits", Value::Int64(number as i64)),
        ("score", Value::Float32((number % 1_000) as f32 / 1_000.0)),
        ("town", Value::from(town)),
        ("line", Value::from(LINE)),
    ]
}

/// Returns the write with this number.
pub fn write(store: &Store, number: u64) -> Write {
    write_to(store, &key(number), number)
}

/// Returns the write with this number, under a key of the caller's; its field `visits` holds the
/// number.
pub fn write_to(store: &Store, key: &str, number: u64) -> Write {
    let set = |write: Write, (name, value)| write.set(name, value);
    fields(number).into_iter().fold(store.upsert(key), set)
}

/// Returns one write as a log stores it: the record of raw disks and raw producers.
///
/// # Errors
/// No error in practice.
pub fn record() -> forebay::Result<Bytes> {
    let definition = spec("users").define(StoreId(1))?;
    let change = |(name, value): (&str, Value)| {
        let field = definition.field(name).map(|field| field.id);
        field.map(|field| FieldChange { field, op: FieldOp::Set(Some(value)), ttl_us: None })
    };
    let change = Change {
        sequence: Sequence(1_000_000),
        key: Key::plain(key(1).as_bytes())?,
        verb: Verb::Upsert,
        fields: fields(1).into_iter().filter_map(change).collect(),
        condition: None,
        ttl_us: None,
    };
    let batch = ClientBatch { client: ClientId(u128::MAX), changes: vec![change] };
    let body = EntryBody::Changes(vec![batch]);
    encode_entry(&Entry::original(LogId(u64::MAX), SchemaVersion(1), body))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use forebay_wire::entry::decode_entry;

    use super::*;

    #[test]
    fn record_is_the_entry_of_one_whole_write() {
        let entry = decode_entry(&record().unwrap()).unwrap();
        assert_eq!(entry.change_count(), 1);
        let EntryBody::Changes(batches) = entry.body else { panic!("no changes") };
        assert_eq!(batches[0].changes[0].fields.len(), 5);
    }

    #[test]
    fn key_count_writes_reach_all_keys() {
        let keys: BTreeSet<String> = (0..KEYS).map(key).collect();
        assert_eq!(keys.len() as u64, KEYS);
    }
}
