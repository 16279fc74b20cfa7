//! Proves the behaviour of an in-memory reader without a client: tokens of other logs, entries that
//! the fold refuses.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::change::{Change, FieldChange, FieldOp, Verb};
use forebay_core::clock::Timestamp;
use forebay_core::entropy::SeededEntropy;
use forebay_core::id::{LogId, PartitionId, SchemaVersion, Sequence, StoreId};
use forebay_core::key::{Key, KeyType};
use forebay_core::partition::partition_of;
use forebay_core::schema::{Definition, StoreSpec};
use forebay_core::value::{FieldType, Value};
use forebay_core::{ErrorCode, Result};
use forebay_reader::{MemoryReader, ReadOptions};
use forebay_wire::token::Token;

const STORE: StoreId = StoreId(42);
const INT64: FieldType = FieldType::INT64;

fn users() -> Definition {
    let spec = StoreSpec::documents("users", KeyType::String).partitions(4).field("age", INT64);
    spec.define(STORE).unwrap()
}

fn open_reader() -> MemoryReader {
    let now = Timestamp::from_micros(1_000_000_000);
    MemoryReader::open(users(), now, Arc::new(SeededEntropy::new(1))).unwrap()
}

fn increment(key: &str) -> Change {
    let field = users().field("age").unwrap().id;
    let op = FieldOp::Increment(Value::Int64(1));
    let fields = vec![FieldChange { field, op, ttl_us: None }];
    let key = Key::plain(key.as_bytes()).unwrap();
    let (verb, condition, ttl_us) = (Verb::Upsert, None, None);
    Change { sequence: Sequence(0), key, verb, fields, condition, ttl_us }
}

fn age(reader: &MemoryReader, key: &str) -> Result<i64> {
    let age = reader.reader().field_as("age", INT64)?;
    reader.reader().get_i64(&age, key, 0)
}

fn home(key: &str) -> PartitionId {
    partition_of(key.as_bytes(), users().partitions)
}

#[tokio::test(start_paused = true)]
async fn token_of_another_log_is_lost_at_once() {
    let reader = open_reader();
    let at = home("ada");
    let (log_id, position, _) = reader.apply(at, SchemaVersion(1), vec![increment("ada")]).unwrap();
    let mut own_token = Token::new(STORE);
    own_token.advance(at, log_id, position).unwrap();
    let mut foreign = Token::new(STORE);
    foreign.advance(at, LogId(log_id.0 ^ 2), position).unwrap();
    let patience = Duration::from_secs(3600);
    let waits = |token: &Token| ReadOptions::after(token.clone(), patience);
    let began = tokio::time::Instant::now();
    reader.reader().wait(&waits(&own_token), &[at]).await.unwrap();
    let error = reader.reader().wait(&waits(&foreign), &[at]).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::TokenLost);
    assert_eq!(began.elapsed(), Duration::ZERO, "neither has waited");
}

#[test]
fn entry_refused_by_the_fold_changes_nothing_and_the_next_entry_applies() {
    let reader = open_reader();
    let at = home("ada");
    let stray = (0..100).map(|number| format!("u{number}")).find(|key| home(key) != at).unwrap();
    let changes = vec![increment("ada"), increment(&stray)];
    let error = reader.apply(at, SchemaVersion(1), changes).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Corrupt, "{error}");
    assert_eq!((age(&reader, "ada").unwrap(), age(&reader, &stray).unwrap()), (0, 0));
    for expected in 1..=3 {
        reader.apply(at, SchemaVersion(1), vec![increment("ada")]).unwrap();
        assert_eq!(age(&reader, "ada").unwrap(), expected);
    }
    let status = reader.reader().status();
    assert_eq!(status.partitions[at.0 as usize].counts.records_skipped, 1);
    let nowhere = reader.apply(PartitionId(4), SchemaVersion(1), Vec::new()).unwrap_err();
    assert_eq!(nowhere.code(), ErrorCode::InvalidArgument);
}

#[test]
fn reader_outlives_the_memory_reader_that_owns_it() {
    let owner = open_reader();
    owner.apply(home("ada"), SchemaVersion(1), vec![increment("ada")]).unwrap();
    let reader = owner.reader().clone();
    drop(owner);
    let age = reader.field_as("age", INT64).unwrap();
    assert_eq!(reader.get_i64(&age, "ada", 0).unwrap(), 1);
    assert!(reader.is_ready());
}
