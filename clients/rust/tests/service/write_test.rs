//! Writes as an application sends them, read back in process.

use forebay::ErrorCode;
use forebay::reads::DocumentKey;
use forebay::schema::{Alteration, FieldSpec, FieldType, KeyType, ScalarType, StoreSpec, Value};
use forebay::writes::{Token, WriteResult};
use forebay_core::limits::{DEDUP_WINDOW, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use futures::future::join_all;

use crate::world::{INT64, PATIENCE, STRING, World, counters, counts, document};

#[tokio::test]
async fn each_verb_takes_effect_at_its_token() {
    let world = World::start().await;
    let client = world.client().await;
    let store = counters(&client, 4).await;
    let reader = world.reader("counters").await;
    let (n, name) = {
        let definition = store.definition();
        (definition.field("n").unwrap().id, definition.field("name").unwrap().id)
    };

    let outcome = store.upsert("u1").set("n", 41).set("name", "Ada").send().await.unwrap();
    assert_eq!(outcome.result, WriteResult::Appended);
    let found = document(&reader, &outcome.token, "u1").await.unwrap();
    assert_eq!(found.value(n), Some(&Value::Int64(41)));
    assert_eq!(found.value(name), Some(&Value::String("Ada".to_owned())));

    let outcome = store.upsert("u1").increment("n", 1).set_null("name").send().await.unwrap();
    let found = document(&reader, &outcome.token, "u1").await.unwrap();
    assert_eq!(found.value(n), Some(&Value::Int64(42)));
    assert_eq!(found.cell(name).unwrap().value, None, "null, not absent");

    let outcome = store.upsert("u1").remove_field("name").max("n", 40).send().await.unwrap();
    let found = document(&reader, &outcome.token, "u1").await.unwrap();
    assert_eq!(found.cell(name), None);
    assert_eq!(found.value(n), Some(&Value::Int64(42)));

    let outcome = store.put("u1").set("name", "").send().await.unwrap();
    let found = document(&reader, &outcome.token, "u1").await.unwrap();
    assert_eq!(found.cell(n), None, "a put replaces the document");
    assert_eq!(found.value(name), Some(&Value::String(String::new())), "empty, not absent");

    let outcome = store.delete("u1").send().await.unwrap();
    assert_eq!(document(&reader, &outcome.token, "u1").await, None);
}

#[tokio::test]
async fn token_survives_encoding() {
    let world = World::start().await;
    let store = counters(&world.client().await, 4).await;
    let mut token = store.upsert("u1").set("n", 1).send().await.unwrap().token;
    token.merge(&store.upsert("u2").set("n", 2).send().await.unwrap().token).unwrap();
    let token = Token::decode(&token.encode()).unwrap();
    let reader = world.reader("counters").await;
    assert!(document(&reader, &token, "u1").await.is_some());
    assert!(document(&reader, &token, "u2").await.is_some());
}

#[tokio::test]
async fn if_absent_race_has_exactly_one_applied_write() {
    let world = World::start().await;
    let client = world.client().await;
    counters(&client, 1).await;
    let others = [client, world.client().await, world.client().await];
    for round in 0..5 {
        let key = format!("u{round}");
        let race = others.iter().map(|client| async {
            let store = client.store("counters").await.unwrap();
            store.upsert(&key).set("n", 1).if_absent().send().await.unwrap().result
        });
        let mut results = join_all(race).await;
        results.sort_by_key(|result| *result != WriteResult::Applied);
        let condition_failed = WriteResult::ConditionFailed(None);
        assert_eq!(results, [WriteResult::Applied, condition_failed, condition_failed]);
    }
}

#[tokio::test]
async fn if_version_failure_returns_the_current_version() {
    let world = World::start().await;
    let client = world.client().await;
    let mut spec =
        StoreSpec::documents("versioned", KeyType::Int64).partitions(2).field("n", INT64);
    spec.options.versioned = true;
    let store = client.create_store(&spec).await.unwrap();
    store.upsert(7).set("n", 1).send().await.unwrap();
    let guess = store.upsert(7).set("n", 2).if_version(Default::default()).send().await.unwrap();
    let WriteResult::ConditionFailed(Some(version)) = guess.result else {
        panic!("{:?}", guess.result)
    };
    let retried = store.upsert(7).set("n", 2).if_version(version).send().await.unwrap();
    assert_eq!(retried.result, WriteResult::Applied);
    let newer_outcome = store.upsert(7).set("n", 2).if_newer("n").send().await.unwrap();
    assert!(
        matches!(newer_outcome.result, WriteResult::ConditionFailed(Some(_))),
        "2 is not above 2"
    );
}

#[tokio::test]
async fn key_value_store_stores_bytes() {
    let world = World::start().await;
    let client = world.client().await;
    let spec = StoreSpec::key_value("blobs", KeyType::Bytes).partitions(4);
    let store = client.create_store(&spec).await.unwrap();
    let reader = client.reader(forebay::ReaderOptions::new("blobs")).await.unwrap();
    reader.await_ready(PATIENCE).await.unwrap();
    let large = vec![7; VALUE_BYTES_MAX];
    let longest_key = vec![0xff; KEY_BYTES_MAX];
    let mut token = Token::new(store.definition().store);
    for (key, value) in [(&b"\xff\x00"[..], &b""[..]), (b"", b"x"), (&longest_key, &large)] {
        token.merge(&store.put_value(key, value).send().await.unwrap().token).unwrap();
    }
    let value = store.definition().fields[0].id;
    for (key, expected) in [(&b"\xff\x00"[..], &b""[..]), (b"", b"x"), (&longest_key, &large)] {
        let found = document(&reader, &token, key).await.unwrap();
        assert_eq!(found.value(value), Some(&Value::Bytes(expected.to_vec())));
    }
    let deleted = store.delete(b"").send().await.unwrap();
    assert_eq!(document(&reader, &deleted.token, b"").await, None);
}

#[tokio::test]
async fn partition_key_and_key_together_name_the_document() {
    let world = World::start().await;
    let client = world.client().await;
    let mut spec = StoreSpec::documents("carts", KeyType::String)
        .partitions(8)
        .field("user", INT64)
        .field("items", FieldType::List(ScalarType::String));
    spec.partition_key = Some("user".to_owned());
    let store = client.create_store(&spec).await.unwrap();
    let reader = world.reader("carts").await;
    let key = |user: i64| DocumentKey::from("cart").with_partition_key(user);
    let list_outcome =
        store.upsert(key(1)).list_append("items", ["a", "b"], 2).send().await.unwrap();
    let other = store.upsert(key(2)).set_add("items", ["c"], 2).send().await.unwrap();
    let set_outcome = store.upsert(key(1)).set_remove("items", ["a"]).send().await.unwrap();
    let mut token = list_outcome.token;
    token.merge(&other.token).unwrap();
    token.merge(&set_outcome.token).unwrap();
    let items = store.definition().field("items").unwrap().id;
    for (user, expected) in [(1, "b"), (2, "c")] {
        let found = document(&reader, &token, key(user)).await.unwrap();
        let list = Value::List(ScalarType::String, vec![Value::from(expected)]);
        assert_eq!(found.value(items), Some(&list));
    }
}

#[tokio::test]
async fn invalid_write_is_refused_before_it_is_sent() {
    let world = World::start().await;
    let client = world.client().await;
    let error = client.store("nobody").await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotFound);
    assert_eq!(error.context().store.as_deref(), Some("nobody"));

    let store = counters(&client, 2).await;
    let long_key = "k".repeat(KEY_BYTES_MAX + 1);
    let long_value = "v".repeat(VALUE_BYTES_MAX + 1);
    let cases = [
        (store.upsert("u").set("nn", 1), ErrorCode::NotFound),
        (store.upsert("u").set("n", "text"), ErrorCode::InvalidArgument),
        (store.upsert("u").set("n", 0.5), ErrorCode::InvalidArgument),
        (store.upsert("u").set("n", 1).set("n", 2), ErrorCode::InvalidArgument),
        (store.delete("u").set("n", 1), ErrorCode::InvalidArgument),
        (store.upsert(5).set("n", 1), ErrorCode::InvalidArgument),
        (store.upsert(&long_key).set("n", 1), ErrorCode::LimitExceeded),
        (store.upsert("u").set("name", long_value), ErrorCode::LimitExceeded),
        (store.upsert("u").if_version(Default::default()), ErrorCode::InvalidArgument),
    ];
    for (write, code) in cases {
        let error = write.send().await.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert_eq!(error.error().context().store.as_deref(), Some("counters"));
        assert!(error.into_pending().is_none(), "nothing is left to resolve");
    }
    assert!(world.appended_everywhere(&store).await.iter().all(Vec::is_empty));
}

#[tokio::test]
async fn change_too_large_for_an_entry_is_refused_before_it_is_sent() {
    let world = World::start().await;
    let client = world.client().await;
    let spec = StoreSpec::documents("wide", KeyType::String)
        .partitions(1)
        .field("a", STRING)
        .field("b", STRING);
    let store = client.create_store(&spec).await.unwrap();
    let large_value = "v".repeat(VALUE_BYTES_MAX * 3 / 4);
    let error = store
        .put("u")
        .set("a", large_value.as_str())
        .set("b", large_value)
        .send()
        .await
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::LimitExceeded);
    assert_eq!(error.error().context().store.as_deref(), Some("wide"));
}

#[tokio::test]
async fn batch_larger_than_every_window_is_sent_in_parts() {
    let world = World::start().await;
    let client = world.client().await;
    let store = counters(&client, 3).await;
    let keys = 2_500;
    let mut batch = store.batch();
    for number in 0..4 * keys {
        batch.add(store.upsert(&format!("u{}", number % keys)).increment("n", 1)).unwrap();
    }
    assert!(batch.len() as u64 / 3 > 2 * DEDUP_WINDOW);
    let outcome = batch.send().await.unwrap().require_complete().unwrap();
    assert_eq!(outcome.results, vec![WriteResult::Appended; 4 * keys].map_ok());
    assert_eq!(outcome.token.positions.len(), 3);
    let counts = counts(&world.reader("counters").await).await;
    assert_eq!(counts.len(), keys);
    assert!(counts.values().all(|count| *count == 4));
    for appended in world.appended_everywhere(&store).await {
        let expected: Vec<_> = (1..=appended.len() as u64).collect();
        let sequences: Vec<_> = appended.iter().map(|(_, sequence)| sequence.0).collect();
        assert_eq!(sequences, expected, "dense, and in the order of the batch");
    }
}

trait MapOk<T> {
    fn map_ok(self) -> Vec<forebay::Result<T>>;
}

impl<T> MapOk<T> for Vec<T> {
    fn map_ok(self) -> Vec<forebay::Result<T>> {
        self.into_iter().map(Ok).collect()
    }
}

#[tokio::test]
async fn batch_names_its_invalid_change_and_sends_no_change() {
    let world = World::start().await;
    let client = world.client().await;
    let store = counters(&client, 2).await;
    let mut batch = store.batch();
    batch.add(store.upsert("a").set("n", 1)).unwrap();
    batch.add(store.upsert("b").set("n", "text")).unwrap();
    let error = batch.send().await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert!(error.to_string().contains("change 1"), "{error}");
    assert!(world.appended_everywhere(&store).await.iter().all(Vec::is_empty));
    let other =
        client.create_store(&StoreSpec::key_value("other", KeyType::Int64).partitions(1)).await;
    let foreign = store.batch().add(other.unwrap().delete(1)).unwrap_err();
    assert_eq!(foreign.code(), ErrorCode::InvalidArgument);
    assert_eq!(store.batch().send().await.unwrap().results, []);
}

#[tokio::test]
async fn more_concurrent_writes_than_a_window_all_arrive() {
    let world = World::start().await;
    let client = world.client().await;
    let store = counters(&client, 1).await;
    let writes = 2 * DEDUP_WINDOW + 500;
    let sends = (0..writes).map(|_| store.upsert("u").increment("n", 1).send());
    for sent in join_all(sends).await {
        sent.unwrap();
    }
    let counts = counts(&world.reader("counters").await).await;
    assert_eq!(counts[&b"u"[..]], writes as i64);
}

#[tokio::test]
async fn handle_learns_alterations_of_other_clients() {
    let world = World::start().await;
    let (client, other) = (world.client().await, world.client().await);
    let store = counters(&client, 2).await;
    let add = Alteration::AddField(FieldSpec::new("city", STRING));
    other.alter_store("counters", None, &[add]).await.unwrap();
    // A name that the handle does not know makes the client fetch the definition.
    store.upsert("u").set("city", "Oslo").send().await.unwrap();
    assert_eq!(store.definition().version.0, 2);

    let drop_and_add = [
        Alteration::DropField("city".to_owned()),
        Alteration::AddField(FieldSpec::new("city", INT64)),
    ];
    other.alter_store("counters", None, &drop_and_add).await.unwrap();
    // The answer to this write says that the definition is old, so the next write has the new one.
    store.upsert("u").set("n", 1).send().await.unwrap();
    let outcome = store.upsert("u").set("city", 47).send().await.unwrap();
    assert_eq!(store.definition().version.0, 3);
    let city = store.definition().field("city").unwrap().id;
    let found = document(&world.reader("counters").await, &outcome.token, "u").await.unwrap();
    assert_eq!(found.value(city), Some(&Value::Int64(47)));
}

#[tokio::test]
async fn handle_is_bound_to_its_store_and_not_to_its_name() {
    let world = World::start().await;
    let client = world.client().await;
    let store = counters(&client, 2).await;
    client.delete_store("counters").await.unwrap();
    let error = store.upsert("u").set("n", 1).send().await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotFound, "{error}");
    let recreated = counters(&client, 2).await;
    let error = store.upsert("u").set("n", 1).send().await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotFound, "{error}");
    assert_eq!(store.refresh().await.unwrap_err().code(), ErrorCode::NotFound);
    recreated.upsert("u").set("n", 1).send().await.unwrap();
}
