//! A store of users, its expected documents, and readers that bootstrap from its snapshots.

#![allow(dead_code)] // Each test binary uses its part of it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use forebay::schema::{FieldType, KeyType, KeyValue, StoreOptions, StoreSpec, Value};
use forebay::writes::Token;
use forebay::{Reader, ReaderOptions, Store};
use forebay_core::id::{PartitionId, PartitionRef};
use forebay_snapshot::{Manifest, SnapshotStore};

pub const PARTITIONS: u32 = 2;
/// Longest wait for an expected event.
pub const LONG: Duration = Duration::from_secs(60);

/// Expected documents of a store.
pub type ExpectedDocuments = BTreeMap<i64, i64>;

/// Returns the definition of a store whose logs are trimmed directly up to their newest snapshots.
pub fn spec() -> StoreSpec {
    let number = FieldType::INT64;
    let mut spec =
        StoreSpec::documents("users", KeyType::Int64).partitions(PARTITIONS).field("age", number);
    spec.options = StoreOptions { log_retention_us: Some(0), ..StoreOptions::default() };
    spec
}

/// Writes these documents, and deletes one of a hundred.
pub async fn write(
    store: &Store,
    expected: &mut ExpectedDocuments,
    keys: Range<i64>,
    add: i64,
) -> Token {
    let mut all = Token::new(store.definition().store);
    let keys: Vec<_> = keys.collect();
    for keys in keys.chunks(1_000) {
        let mut batch = store.batch();
        for key in keys {
            if (key + add) % 100 == 0 {
                batch.add(store.delete(*key)).unwrap();
                expected.remove(key);
            } else {
                batch.add(store.upsert(*key).set("age", *key + add)).unwrap();
                expected.insert(*key, *key + add);
            }
        }
        let outcome = batch.send().await.unwrap();
        assert!(outcome.results.iter().all(Result::is_ok));
        all.merge(&outcome.token).unwrap();
    }
    all
}

/// Opens a reader that bootstraps from snapshots, and waits until it has this token's writes.
pub async fn reader(address: &str, snapshots: &SnapshotStore, token: &Token) -> Reader {
    let reader = reader_of("users", address, snapshots).await;
    reader.await_token(token, LONG).await.unwrap();
    reader
}

/// Opens a reader of a store of another name, and waits until it is ready.
pub async fn reader_of(name: &str, address: &str, snapshots: &SnapshotStore) -> Reader {
    let snapshots = Some(snapshots.clone());
    let options = ReaderOptions::new(name).snapshots(snapshots);
    let reader = Reader::open(address, options).await.unwrap();
    reader.await_ready(LONG).await.unwrap();
    reader
}

pub fn assert_holds(reader: &Reader, expected: &ExpectedDocuments, keys: Range<i64>) {
    let field = reader.definition().field("age").unwrap().id;
    for key in keys {
        let document = reader.get_document(KeyValue::Int64(key)).unwrap();
        let found = document.and_then(|document| document.value(field).cloned());
        assert_eq!(found, expected.get(&key).copied().map(Value::Int64), "{key}");
    }
}

pub fn partitions(store: &Store) -> impl Iterator<Item = PartitionRef> + use<> {
    let store = store.definition().store;
    (0..PARTITIONS).map(move |number| PartitionRef { store, partition: PartitionId(number) })
}

/// Returns the newest snapshot of each partition, once it is as wanted.
pub async fn snapshots(
    snapshots: &SnapshotStore,
    store: &Store,
    is_expected: impl Fn(&Manifest) -> bool,
) -> Vec<Manifest> {
    let mut found = Vec::new();
    for at in partitions(store) {
        let wait = async {
            loop {
                if let Ok(Some(newest)) = snapshots.partition(at).newest(None).await
                    && is_expected(&newest)
                {
                    return newest;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let newest = tokio::time::timeout(LONG, wait).await;
        found.push(newest.unwrap_or_else(|_| panic!("no such snapshot of {at}")));
    }
    found
}
