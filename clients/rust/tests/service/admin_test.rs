//! Administration of stores, and what a client says when nobody is there.

use forebay::{
    Alteration, Client, ClientOptions, ErrorCode, FieldSpec, FieldType, KeyType, Reader,
    ReaderOptions, ScalarType, SchemaVersion, StoreSpec,
};

use crate::world::{INT64, SOON, World, counters};

#[tokio::test]
async fn stores_are_created_once_described_listed_and_deleted() {
    let world = World::start().await;
    let client = world.client().await;
    let store = counters(&client, 4).await;
    let spec = StoreSpec::key_value("counters", KeyType::Bytes, 1);
    let error = client.create_store(&spec).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Conflict);
    let spec = StoreSpec::key_value("a", KeyType::Bytes, 1);
    client.create_store(&spec).await.unwrap();
    let described = client.describe_store("counters", None).await.unwrap();
    assert_eq!(described, *store.definition());
    let listed = client.list_stores().await.unwrap();
    let names: Vec<_> = listed.iter().map(|definition| definition.name.as_str()).collect();
    assert_eq!(names, ["a", "counters"]);
    client.delete_store("a").await.unwrap();
    assert_eq!(client.delete_store("a").await.unwrap_err().code(), ErrorCode::NotFound);
    assert_eq!(client.list_stores().await.unwrap(), [described]);
    let impossible = StoreSpec::documents("impossible", KeyType::String, 0);
    let error = client.create_store(&impossible).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
}

#[tokio::test]
async fn an_alteration_of_a_version_that_has_passed_is_a_conflict() {
    let world = World::start().await;
    let client = world.client().await;
    let store = counters(&client, 2).await;
    let add = |name: &str| [Alteration::AddField(FieldSpec::new(name, INT64))];
    let first = Some(SchemaVersion(1));
    let altered = client.alter_store("counters", first, &add("a")).await.unwrap();
    assert_eq!(altered.version, SchemaVersion(2));
    assert_eq!(*store.definition(), altered, "open handles see it at once");
    let error = client.alter_store("counters", first, &add("b")).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Conflict);
    let narrow =
        Alteration::WidenField { name: "n".to_owned(), to: FieldType::Scalar(ScalarType::Int32) };
    let error = client.alter_store("counters", None, &[narrow]).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    let old = client.describe_store("counters", first).await.unwrap();
    assert!(old.field("a").is_none());
    let error = client.describe_store("counters", Some(SchemaVersion(9))).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotFound);
}

#[tokio::test]
async fn nobody_there_is_unavailable_with_the_address() {
    let mut world = World::start().await;
    let client = world.hasty_client(SOON).await;
    world.kill();
    let endpoint = world.endpoint();
    let options = ClientOptions { deadline: SOON, ..ClientOptions::default() };
    let error = Client::connect(&endpoint, options.clone()).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unavailable);
    assert!(error.message().contains(&endpoint), "{error}");
    let error = Client::connect("no address", options).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    let mut following = ReaderOptions::new("counters");
    following.open_timeout = SOON;
    let error = Reader::open(&endpoint, following).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unavailable);
    // What reads is tried until the deadline; what changes surely never left.
    assert_eq!(client.list_stores().await.unwrap_err().code(), ErrorCode::Unavailable);
    let spec = StoreSpec::key_value("a", KeyType::Bytes, 1);
    assert_eq!(client.create_store(&spec).await.unwrap_err().code(), ErrorCode::Unavailable);
    world.restart().await;
    assert!(client.list_stores().await.unwrap().is_empty());
}
