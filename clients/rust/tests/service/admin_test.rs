//! Administration of stores, and the errors of a client if no node answers.

use std::fmt::Debug;

use forebay::schema::{Alteration, FieldSpec, FieldType, KeyType, SchemaVersion, StoreSpec};
use forebay::{Client, ClientOptions, ErrorCode, Reader, ReaderOptions};

use forebay_log::faulty::FaultRates;

use crate::world::{INT64, PATIENCE, SOON, World, counters};

#[tokio::test]
async fn stores_are_created_once_described_listed_and_deleted() {
    let world = World::start().await;
    let client = world.client().await;
    let store = counters(&client, 4).await;
    let spec = StoreSpec::key_value("counters", KeyType::Bytes).partitions(1);
    let error = client.create_store(&spec).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Conflict);
    let spec = StoreSpec::key_value("a", KeyType::Bytes).partitions(1);
    client.create_store(&spec).await.unwrap();
    let described = client.describe_store("counters", None).await.unwrap();
    assert_eq!(described, *store.definition());
    let listed = client.list_stores().await.unwrap();
    let names: Vec<_> = listed.iter().map(|definition| definition.name.as_str()).collect();
    assert_eq!(names, ["a", "counters"]);
    client.delete_store("a").await.unwrap();
    assert_eq!(client.delete_store("a").await.unwrap_err().code(), ErrorCode::NotFound);
    assert_eq!(client.list_stores().await.unwrap(), [described]);
    let impossible = StoreSpec::documents("impossible", KeyType::String).partitions(0);
    let error = client.create_store(&impossible).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
}

#[tokio::test]
async fn alteration_of_a_past_version_is_a_conflict() {
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
    let narrow = Alteration::WidenField { name: "n".to_owned(), to: FieldType::INT32 };
    let error = client.alter_store("counters", None, &[narrow]).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    let old = client.describe_store("counters", first).await.unwrap();
    assert!(old.field("a").is_none());
    let error = client.describe_store("counters", Some(SchemaVersion(9))).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotFound);
}

#[tokio::test]
async fn unreachable_server_is_unavailable_with_its_address() {
    let mut world = World::start().await;
    let client = world.hasty_client(SOON).await;
    world.kill();
    let endpoint = world.endpoint();
    let options = ClientOptions::default().deadline(SOON);
    let error = Client::connect(&endpoint, options.clone()).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unavailable);
    assert!(error.message().contains(&endpoint), "{error}");
    let error = Client::connect("no address", options).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    let mut following = ReaderOptions::new("counters");
    following.open_timeout = SOON;
    let error = Reader::open(&endpoint, following).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unavailable);
    // Reads retry until the deadline; a change surely never left.
    assert_eq!(client.list_stores().await.unwrap_err().code(), ErrorCode::Unavailable);
    let spec = StoreSpec::key_value("a", KeyType::Bytes).partitions(1);
    let mut changed = client.create_store(&spec).await.unwrap_err().code();
    for _ in 0..20 {
        if changed == ErrorCode::Unavailable {
            break;
        }
        // On a busy machine the time may pass before the refusal arrives.
        assert_eq!(changed, ErrorCode::UnknownOutcome);
        changed = client.create_store(&spec).await.unwrap_err().code();
    }
    assert_eq!(changed, ErrorCode::Unavailable);
    world.restart().await;
    assert!(client.list_stores().await.unwrap().is_empty());
}

fn all(rates: impl FnOnce(&mut FaultRates)) -> FaultRates {
    let mut all = FaultRates::default();
    rates(&mut all);
    all
}

fn in_doubt_and_there() -> FaultRates {
    all(|rates| rates.append_in_doubt_appended = 10_000)
}

fn in_doubt_and_lost() -> FaultRates {
    all(|rates| rates.append_in_doubt_lost = 10_000)
}

fn faults(world: &World) -> u64 {
    world.log.counts().by_name().iter().map(|(_, count)| count).sum()
}

/// Makes a call whose first append has this fault, and kills the writer right after, so that the
/// caller gets no answer before its deadline. Restarts the writer.
async fn leave_unknown<T: Debug>(
    world: &mut World,
    rates: FaultRates,
    call: impl Future<Output = forebay::Result<T>>,
) {
    let before = faults(world);
    world.log.set_rates(rates);
    let kill = async {
        while faults(world) == before {
            tokio::task::yield_now().await;
        }
        world.kill();
    };
    let (result, ()) = tokio::join!(call, kill);
    let error = result.unwrap_err();
    assert_eq!(error.code(), ErrorCode::UnknownOutcome, "{error}");
    world.log.set_rates(FaultRates::default());
    world.restart().await;
}

fn spec() -> StoreSpec {
    StoreSpec::documents("counters", KeyType::String).partitions(2).field("n", INT64)
}

#[tokio::test]
async fn same_create_resolves_an_unknown_create() {
    for rates in [in_doubt_and_there(), in_doubt_and_lost()] {
        let mut world = World::start().await;
        let (client, other) = (world.hasty_client(SOON).await, world.client().await);
        leave_unknown(&mut world, rates, client.create_store(&spec())).await;
        let is_there = !other.list_stores().await.unwrap().is_empty();
        assert_eq!(is_there, rates.append_in_doubt_appended > 0);
        let store = call_until_known(async || client.create_store(&spec()).await).await.unwrap();
        assert_eq!(other.list_stores().await.unwrap(), [(*store.definition()).clone()]);
        store.upsert("k").increment("n", 1).send().await.unwrap();
        // The creation is resolved: from now on the name is taken, for this client too.
        for client in [&client, &other] {
            let error = client.create_store(&spec()).await.unwrap_err();
            assert_eq!(error.code(), ErrorCode::Conflict, "{error}");
        }
    }
}

/// Repeats a call of a client with short deadlines until its outcome is known.
async fn call_until_known<T>(call: impl AsyncFn() -> forebay::Result<T>) -> forebay::Result<T> {
    let calls = async {
        loop {
            match call().await {
                Err(error) if error.code().is_retryable() => {}
                outcome => return outcome,
            }
        }
    };
    tokio::time::timeout(PATIENCE, calls).await.unwrap()
}

#[tokio::test]
async fn create_overtaken_by_another_definition_stays_a_conflict() {
    let mut world = World::start().await;
    let (client, other) = (world.hasty_client(SOON).await, world.client().await);
    leave_unknown(&mut world, in_doubt_and_lost(), client.create_store(&spec())).await;
    let other_definition = other.create_store(&spec().field("theirs", INT64)).await.unwrap();
    let error = call_until_known(async || client.create_store(&spec()).await).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Conflict, "{error}");
    assert_eq!(other.list_stores().await.unwrap(), [(*other_definition.definition()).clone()]);
}

#[tokio::test]
async fn same_alteration_resolves_an_unknown_alteration_and_happens_once() {
    for rates in [in_doubt_and_there(), in_doubt_and_lost()] {
        for from in [None, Some(SchemaVersion(1))] {
            let mut world = World::start().await;
            let (client, other) = (world.hasty_client(SOON).await, world.client().await);
            other.create_store(&spec()).await.unwrap();
            let alterations =
                [Alteration::DropAll, Alteration::AddField(FieldSpec::new("m", INT64))];
            let alter = async || client.alter_store("counters", from, &alterations).await;
            leave_unknown(&mut world, rates, alter()).await;
            let altered = call_until_known(alter).await.unwrap();
            assert_eq!(altered.version, SchemaVersion(2));
            assert_eq!(other.describe_store("counters", None).await.unwrap(), altered);
            // The alteration is resolved: the next one is another alteration.
            let second_alterations = [Alteration::DropAll];
            let next = client.alter_store("counters", None, &second_alterations).await.unwrap();
            assert_eq!(next.version, SchemaVersion(3));
        }
    }
}

#[tokio::test]
async fn overtaken_alteration_conflicts_or_gets_the_next_version() {
    let mut world = World::start().await;
    let (client, other) = (world.hasty_client(SOON).await, world.client().await);
    other.create_store(&spec()).await.unwrap();
    let add = |name: &str| [Alteration::AddField(FieldSpec::new(name, INT64))];
    for (from, version) in [(Some(SchemaVersion(1)), 2), (None, 3)] {
        let addition = add("ours");
        let alter = async || client.alter_store("counters", from, &addition).await;
        leave_unknown(&mut world, in_doubt_and_lost(), alter()).await;
        let other_field = format!("theirs{version}");
        other.alter_store("counters", None, &add(&other_field)).await.unwrap();
        let outcome = call_until_known(alter).await;
        match from {
            Some(_) => assert_eq!(outcome.unwrap_err().code(), ErrorCode::Conflict),
            None => assert_eq!(outcome.unwrap().version, SchemaVersion(4)),
        }
    }
}

#[tokio::test]
async fn same_delete_resolves_an_unknown_delete() {
    for rates in [in_doubt_and_there(), in_doubt_and_lost()] {
        let mut world = World::start().await;
        let (client, other) = (world.hasty_client(SOON).await, world.client().await);
        other.create_store(&spec()).await.unwrap();
        leave_unknown(&mut world, rates, client.delete_store("counters")).await;
        call_until_known(async || client.delete_store("counters").await).await.unwrap();
        assert!(other.list_stores().await.unwrap().is_empty());
        assert_eq!(client.delete_store("counters").await.unwrap_err().code(), ErrorCode::NotFound);
    }
}

#[tokio::test]
async fn administration_call_survives_a_restart_of_the_writer() {
    let mut world = World::start().await;
    let client = world.client().await;
    world.log.set_rates(in_doubt_and_there());
    let creating = client.clone();
    let creating = tokio::spawn(async move { creating.create_store(&spec()).await });
    while faults(&world) == 0 {
        tokio::time::sleep(SOON / 100).await;
    }
    world.kill();
    world.log.set_rates(FaultRates::default());
    world.restart().await;
    let store = tokio::time::timeout(PATIENCE, creating).await.unwrap().unwrap().unwrap();
    assert_eq!(client.list_stores().await.unwrap(), [(*store.definition()).clone()]);
}
