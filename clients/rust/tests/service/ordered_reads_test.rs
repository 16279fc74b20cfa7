//! Ordered reads: documents by key, and scans over all partitions in one order.

use std::collections::BTreeMap;
use std::ops::Bound;

use forebay::reads::{OrderedStream, ReadOptions};
use forebay::schema::{Alteration, FieldSpec, FieldType, KeyType, KeyValue, StoreSpec, Value};
use forebay::writes::Token;
use forebay::{ErrorCode, Store};

use crate::world::{INT64, PATIENCE, World, counters};

const DOCUMENTS: i64 = 300;

fn after(token: &Token) -> ReadOptions {
    ReadOptions::after(token.clone(), PATIENCE)
}

/// Returns the keys and the fields `n` of the remaining documents of a stream.
async fn drain(stream: &mut OrderedStream) -> Vec<(String, i64)> {
    let mut found = Vec::new();
    while let Some(next) = stream.next().await.unwrap() {
        let KeyValue::String(key) = next.key().unwrap().primary() else { panic!("{next:?}") };
        let n = next.document.cells().iter().find_map(|cell| match cell.value {
            Some(Value::Int64(n)) => Some(n),
            _ => None,
        });
        found.push((key.to_owned(), n.unwrap()));
    }
    found
}

/// Writes `key-000` and so on; returns the documents in order, and their token.
async fn fill(store: &Store) -> (BTreeMap<String, i64>, Token) {
    let (mut model, mut batch) = (BTreeMap::new(), store.batch());
    for n in 0..DOCUMENTS {
        let key = format!("key-{n:03}");
        batch.add(store.upsert(&key).set("n", n)).unwrap();
        model.insert(key, n);
    }
    (model, batch.send().await.unwrap().token)
}

#[tokio::test]
async fn documents_are_read_by_key_after_a_token() {
    let world = World::start().await;
    let store = counters(&world.client().await, 4).await;
    let (_, token) = fill(&store).await;
    let ordered_reads = store.ordered().unwrap();
    let n = |document: Option<forebay::reads::Document>| {
        let field = store.definition().field("n").unwrap().id;
        document.map(|document| document.value(field).cloned())
    };
    let read = after(&token);
    assert_eq!(n(ordered_reads.get(&read, "key-007").await.unwrap()), Some(Some(Value::Int64(7))));
    assert_eq!(ordered_reads.get(&read, "nobody").await.unwrap(), None);
    let keys = ["key-299", "nobody", "key-000", "key-299"];
    let found = ordered_reads.get_many(&read, &keys[..]).await.unwrap();
    let found: Vec<_> = found.into_iter().map(|found| n(found.unwrap())).collect();
    let value = |n| Some(Some(Value::Int64(n)));
    assert_eq!(found, [value(299), None, value(0), value(299)]);
    assert_eq!(
        ordered_reads.get(&read, 7_i64).await.unwrap_err().code(),
        ErrorCode::InvalidArgument
    );
    let deleted = store.delete("key-007").send().await.unwrap().token;
    assert_eq!(ordered_reads.get(&after(&deleted), "key-007").await.unwrap(), None);
    assert_eq!(ordered_reads.get(&ReadOptions::latest(PATIENCE), "key-007").await.unwrap(), None);
}

#[tokio::test]
async fn scan_of_all_partitions_is_in_one_order() {
    let world = World::start().await;
    let store = counters(&world.client().await, 4).await;
    let (model, token) = fill(&store).await;
    let ordered_reads = store.ordered().unwrap();
    let all: Vec<_> = model.clone().into_iter().collect();
    let mut stream = ordered_reads.scan().read(after(&token)).open().await.unwrap();
    assert_eq!(drain(&mut stream).await, all);
    let mut stream = ordered_reads.scan().reverse().open().await.unwrap();
    assert_eq!(drain(&mut stream).await, all.iter().rev().cloned().collect::<Vec<_>>());
    let mut stream = ordered_reads.scan().prefix("key-01").open().await.unwrap();
    assert_eq!(drain(&mut stream).await, all[10..20]);
    let range = (Bound::Excluded("key-100"), Bound::Included("key-200"));
    let mut stream = ordered_reads.scan().range::<&str>(range).limit(50).open().await.unwrap();
    assert_eq!(drain(&mut stream).await, all[101..151]);
    let mut stream = ordered_reads.scan().range("key-290"..).open().await.unwrap();
    assert_eq!(drain(&mut stream).await, all[290..]);
    let mut stream = ordered_reads.scan().range("x".."y").open().await.unwrap();
    assert_eq!(drain(&mut stream).await, []);
    assert!(stream.next().await.unwrap().is_none(), "it stays at its end");
}

#[tokio::test]
async fn scan_resumes_at_its_cursor_in_the_same_state() {
    let mut world = World::start().await;
    let store = counters(&world.client().await, 4).await;
    let (model, token) = fill(&store).await;
    let ordered_reads = store.ordered().unwrap();
    let all: Vec<_> = model.into_iter().collect();
    let (mut found, mut cursor, mut read) = (Vec::new(), Vec::new(), after(&token));
    while found.len() < all.len() {
        let scan = ordered_reads.scan().read(read).cursor(cursor).limit(70);
        let mut stream = scan.open().await.unwrap();
        found.extend(drain(&mut stream).await);
        (cursor, read) = (stream.cursor().unwrap(), ReadOptions::local());
        for n in [5, 95, 195, 295] {
            store.upsert(&format!("key-{n:03}")).set("n", -1).send().await.unwrap();
            store.upsert(&format!("key-{n:03}x")).set("n", -1).send().await.unwrap();
        }
    }
    assert_eq!(found, all);

    let mut stream = ordered_reads.scan().limit(10).open().await.unwrap();
    drain(&mut stream).await;
    let cursor = stream.cursor().unwrap();
    world.restart().await;
    let scan = || {
        ordered_reads.scan().limit(10).read(ReadOptions::latest(PATIENCE)).cursor(cursor.clone())
    };
    let error = scan().open().await.unwrap().next().await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::TokenLost, "{error}");
    let mut stream = scan().allow_snapshot_change().open().await.unwrap();
    let moved = drain(&mut stream).await;
    assert_eq!((moved.len(), moved[0].0.as_str()), (10, "key-009"), "{moved:?}");
}

#[tokio::test]
async fn scan_stays_in_its_partition_key() {
    let world = World::start().await;
    let mut spec = StoreSpec::documents("carts", KeyType::String)
        .partitions(4)
        .field("user", INT64)
        .field("n", FieldType::INT64);
    spec.partition_key = Some("user".to_owned());
    let store = world.client().await.create_store(&spec).await.unwrap();
    let mut all = Token::new(store.definition().store);
    for (user, cart, n) in [(1_i64, "b", 2_i64), (1, "a", 1), (2, "a", 3), (-1, "c", 4)] {
        let key = forebay::reads::DocumentKey::from(cart).with_partition_key(user);
        all.merge(&store.upsert(key).set("n", n).send().await.unwrap().token).unwrap();
    }
    let ordered_reads = store.ordered().unwrap();
    let scan = || ordered_reads.scan().read(after(&all)).fields(["n"]);
    let mut stream = scan().partition_key(1_i64).open().await.unwrap();
    assert_eq!(drain(&mut stream).await, [("a".to_owned(), 1), ("b".to_owned(), 2)]);
    let mut stream = scan().partition_key(1_i64).range("b"..).open().await.unwrap();
    assert_eq!(drain(&mut stream).await, [("b".to_owned(), 2)]);
    let mut stream = scan().open().await.unwrap();
    let counts: Vec<_> = drain(&mut stream).await.into_iter().map(|(_, n)| n).collect();
    assert_eq!(counts, [4, 1, 2, 3], "by the partition key first");
}

#[tokio::test]
async fn scan_reads_a_field_that_another_client_added() {
    let world = World::start().await;
    let store = counters(&world.client().await, 2).await;
    let other = world.client().await;
    let add = Alteration::AddField(FieldSpec::new("more", INT64));
    other.alter_store("counters", None, &[add]).await.unwrap();
    let write = other.store("counters").await.unwrap().upsert("u").set("n", 1).set("more", 2);
    let token = write.send().await.unwrap().token;
    let scan = store.ordered().unwrap().scan().read(after(&token)).fields(["more"]);
    let mut stream = scan.open().await.unwrap();
    assert_eq!(drain(&mut stream).await, [("u".to_owned(), 2)]);
}

#[tokio::test]
async fn invalid_scan_is_refused() {
    let world = World::start().await;
    let store = counters(&world.client().await, 2).await;
    let ordered_reads = store.ordered().unwrap();
    let code = async |scan: forebay::reads::OrderedScan| match scan.open().await {
        Err(error) => error.code(),
        Ok(mut stream) => stream.next().await.unwrap_err().code(),
    };
    let invalid = ErrorCode::InvalidArgument;
    assert_eq!(code(ordered_reads.scan().range(1_i64..2)).await, invalid);
    assert_eq!(code(ordered_reads.scan().prefix("a").range("a"..)).await, invalid);
    assert_eq!(code(ordered_reads.scan().partition_key("a")).await, invalid);
    assert_eq!(code(ordered_reads.scan().cursor(b"none".to_vec())).await, invalid);
    assert_eq!(code(ordered_reads.scan().fields(["age"])).await, ErrorCode::NotFound);
    let (_, token) = fill(&store).await;
    let mut stream = ordered_reads.scan().read(after(&token)).limit(1).open().await.unwrap();
    assert!(stream.next().await.unwrap().is_some());
    let other = ordered_reads.scan().reverse().limit(1).cursor(stream.cursor().unwrap());
    assert_eq!(code(other).await, invalid);
}

/// The store serves as an ordered key-value server: arbitrary bytes are put, read, deleted and
/// scanned.
#[tokio::test]
async fn key_value_store_orders_arbitrary_bytes() {
    let world = World::start().await;
    let spec = StoreSpec::key_value("kv", KeyType::Bytes).partitions(3);
    let store = world.client().await.create_store(&spec).await.unwrap();
    let keys: [&[u8]; 7] = [b"", b"\0", b"\0\0", b"a", b"a\0", b"\xff", b"\xff\xff\xff"];
    let mut all = Token::new(store.definition().store);
    for (n, key) in keys.iter().enumerate().rev() {
        let value = vec![n as u8; n * 1_000];
        all.merge(&store.put(*key).set("value", value).send().await.unwrap().token).unwrap();
    }
    let ordered_reads = store.ordered().unwrap();
    let field = store.definition().field("value").unwrap().id;
    let bytes = |document: &forebay::reads::Document| match document.value(field) {
        Some(Value::Bytes(bytes)) => bytes.clone(),
        other => panic!("{other:?}"),
    };
    let scan = async |scan: forebay::reads::OrderedScan| {
        let (mut stream, mut found) = (scan.read(after(&all)).open().await.unwrap(), Vec::new());
        while let Some(next) = stream.next().await.unwrap() {
            let KeyValue::Bytes(key) = next.key().unwrap().primary() else { panic!("{next:?}") };
            found.push((key.to_vec(), bytes(&next.document).len()));
        }
        found
    };
    let expected: Vec<_> =
        keys.iter().enumerate().map(|(n, key)| (key.to_vec(), n * 1_000)).collect();
    assert_eq!(scan(ordered_reads.scan()).await, expected);
    assert_eq!(scan(ordered_reads.scan().prefix(b"\0")).await, expected[1..3]);
    assert_eq!(scan(ordered_reads.scan().prefix(b"\xff")).await, expected[5..]);
    assert_eq!(scan(ordered_reads.scan().prefix(b"")).await, expected);
    let found = ordered_reads.get(&after(&all), &b"a\0"[..]).await.unwrap().unwrap();
    assert_eq!(bytes(&found), vec![4; 4_000]);
    let deleted = store.delete(&b""[..]).send().await.unwrap().token;
    assert_eq!(ordered_reads.get(&after(&deleted), &b""[..]).await.unwrap(), None);
    assert_eq!(scan(ordered_reads.scan().range(..&b"a"[..])).await, expected[1..3]);
}
