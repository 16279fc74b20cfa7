//! Foreign records, produced directly into the topic. Proves that every reader skips and counts
//! them alike, and serves later records.

use forebay::reads::ReadOptions;
use forebay::schema::{Definition, KeyValue, PartitionId, Value};
use forebay::writes::WriteResult;
use forebay::{Client, ClientOptions, Reader, ReaderOptions};
use forebay_core::change::{Change, ClientBatch, Entry, EntryBody, FieldChange, FieldOp, Verb};
use forebay_core::id::{ClientId, LogId, Sequence};
use forebay_core::key::Key;
use forebay_core::partition::partition_of;
use forebay_wire::entry::encode_entry;

use crate::daemon::{LONG, count_of, counts};
use crate::world::World;

/// Number of wrong records, which readers must count exactly.
const RECORDS: u64 = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_records_are_skipped_and_counted_and_later_keys_are_served() {
    let world = World::new("garbage");
    let daemon = world.forebayd("127.0.0.1:0");
    let client = Client::connect(&daemon.address, ClientOptions::default()).await.unwrap();
    let store = client.create_store(&counts()).await.unwrap();
    let early = Reader::open(&daemon.address, ReaderOptions::new("counts")).await.unwrap();
    early.await_ready(LONG).await.unwrap();
    let before = store.upsert(1_i64).set("count", 41).send().await.unwrap().token;
    early.await_token(&before, LONG).await.unwrap();

    let definition = store.definition();
    let at = partition_of(&1_i64.to_le_bytes(), definition.partitions);
    let log_id = early.log_id(at).unwrap().unwrap();
    let records = wrong_records(&definition, log_id, at);
    assert_eq!(records.len() as u64, RECORDS);
    for record in &records {
        world.produce(&world.topic(definition.store), at.0, record.as_deref()).await;
    }

    // The node's own replica returns the outcome, so it has passed the garbage, too.
    let taken = store.upsert(1_i64).set("count", 0).if_absent().send().await.unwrap();
    assert_eq!(taken.result, WriteResult::ConditionFailed(None));
    store.upsert(1_i64).increment("count", 1).send().await.unwrap();
    let late = Reader::open(&daemon.address, ReaderOptions::new("counts")).await.unwrap();
    for reader in [&early, &late] {
        reader.await_ready(LONG).await.unwrap();
        reader.wait(&ReadOptions::latest(LONG), &[at]).await.unwrap();
        assert_eq!(count_of(reader, 1), Some(42));
        let documents = reader.status().partitions.iter().map(|at| at.documents).sum::<u64>();
        assert_eq!(documents, 1);
        let status = reader.status().partitions.into_iter().find(|status| status.partition == at);
        let status = status.unwrap();
        assert_eq!(status.counts.records_skipped, RECORDS, "{status:?}");
        assert_eq!((status.generation, status.log_id), (1, Some(log_id)));
    }
}

/// Returns one record of each kind that replicas must skip.
fn wrong_records(definition: &Definition, log_id: LogId, at: PartitionId) -> Vec<Option<Vec<u8>>> {
    let count = definition.field("count").unwrap().id;
    let set = |value| FieldChange { field: count, op: FieldOp::Set(Some(value)), ttl_us: None };
    let encode = |log_id: LogId, key: i64, value: Value| {
        let change = Change {
            sequence: Sequence(1),
            key: KeyValue::Int64(key).with_bytes(Key::plain).unwrap(),
            verb: Verb::Upsert,
            fields: vec![set(value)],
            condition: None,
            ttl_us: None,
        };
        let batch = ClientBatch { client: ClientId(7), changes: vec![change] };
        let body = EntryBody::Changes(vec![batch]);
        encode_entry(&Entry::original(log_id, definition.version, body)).unwrap().to_vec()
    };
    let good = encode(log_id, 1, Value::Int64(666));
    let mut flipped = good.clone();
    *flipped.last_mut().unwrap() ^= 1;
    let partition = |key: i64| partition_of(&key.to_le_bytes(), definition.partitions);
    let elsewhere = (2..).find(|key| partition(*key) != at).unwrap();
    vec![
        None,
        Some(Vec::new()),
        Some(b"garbage, and long enough for a header of an entry".to_vec()),
        Some(good[..good.len() - 1].to_vec()),
        Some(flipped),
        Some(encode(log_id, elsewhere, Value::Int64(666))),
        Some(encode(log_id, 1, Value::String("six".to_owned()))),
        Some(encode(LogId(log_id.0 ^ 1), 1, Value::Int64(666))),
    ]
}
