//! Feature views that two `forebay-features` processes share on Kafka: over kills and over
//! reassigned partitions, each event is folded exactly once, and either process finds it.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use forebay::Store;
use forebay::schema::{
    Alteration, ColumnIndex, ColumnRules, FieldSpec, FieldType, KeyType, StoreSpec, Value,
};
use forebay::writes::Token;
use forebay_testkit::tree;
use forebay_wire::v1;
use forebay_wire::v1::events_client::EventsClient;
use forebay_wire::v1::features_client::FeaturesClient;
use forebay_wire::v1::select_events_request::{By, Equal};
use forebay_wire::v1::writer_client::WriterClient;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use crate::service::{LONG, Service, client};

const PREFIX: &str = "features";
const ROUNDS: i64 = 4;
const EVENTS: i64 = 500;
const USERS: i64 = 11;
const VIEW: &str = "apiVersion: forebay/v1\nkind: FeatureView\nname: spending\n\
                    source: orders\nentity: [user]\nallowed_lateness: 1h\n\
                    features: {orders: {count: '*'}, spent: {sum: price}}\n";

fn channel(address: &str) -> Channel {
    Endpoint::from_shared(format!("http://{address}")).unwrap().connect_lazy()
}

/// Returns count and sum of a group, from the process that folds it.
async fn values(processes: &[Option<Service>], user: i64) -> Option<(i64, i64)> {
    for process in processes.iter().flatten() {
        let group = vec![(&Value::Int64(user)).into()];
        let request = v1::GetViewValuesRequest { view: "spending".into(), group };
        let answer = FeaturesClient::new(channel(&process.address)).get_view_values(request).await;
        let Ok(answer) = answer else { continue };
        let number = |named: &v1::get_view_values_response::Named| match named
            .value
            .clone()
            .map(|value| Value::try_from(value).unwrap())
        {
            Some(Value::Int64(number)) => number,
            _ => 0,
        };
        let values: Vec<_> = answer.into_inner().values.iter().map(number).collect();
        return Some((values[0], values[1]));
    }
    None
}

/// Waits until all groups have the expected number of events; asserts that count and sum are right.
async fn assert_all(processes: &[Option<Service>], expected: &[(i64, i64)]) {
    for (user, expected) in expected.iter().enumerate() {
        let mut last = None;
        let wait = async {
            while last.is_none_or(|(count, _)| count < expected.0) {
                tokio::time::sleep(Duration::from_millis(20)).await;
                last = values(processes, user as i64).await;
            }
        };
        let arrival = tokio::time::timeout(2 * LONG, wait).await;
        assert!(arrival.is_ok(), "user {user}: {last:?} of {expected:?}");
        assert_eq!(last, Some(*expected), "user {user}");
    }
}

async fn insert(store: &Store, events: std::ops::Range<i64>, all: &mut [(i64, i64)]) {
    for first in events.clone().step_by(50) {
        let mut batch = store.batch();
        for price in first..first + 50 {
            let user = price * 7 % USERS;
            batch.add(store.insert(price).set("user", user).set("price", price)).unwrap();
            let of_user = &mut all[user as usize];
            *of_user = (of_user.0 + 1, of_user.1 + price);
        }
        let sent = batch.send().await.unwrap();
        assert!(sent.results.iter().all(Result::is_ok));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_are_exact_while_their_partitions_change_owners() {
    let replicator = Service::replicator(PREFIX, "127.0.0.1:0");
    let writer = Service::writer(PREFIX, "127.0.0.1:0", &replicator);
    let number = FieldType::INT64;
    let spec = StoreSpec::stream("orders", KeyType::Int64)
        .partitions(3)
        .field("user", number)
        .field("price", number);
    let store = client(&writer.address).await.create_store(&spec).await.unwrap();
    let request =
        v1::ApplyViewRequest { declaration: VIEW.to_owned(), dry_run: false, first_line: 1 };
    WriterClient::new(channel(&writer.address)).apply_view(request).await.unwrap();
    let data = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let start = |place: usize| Some(Service::features(PREFIX, data[place].path()));
    let mut processes = [start(0), None];
    let mut all = vec![(0, 0); USERS as usize];
    for round in 0..ROUNDS {
        insert(&store, round * EVENTS..round * EVENTS + EVENTS / 2, &mut all).await;
        let (joiner, leaver) = if round % 2 == 0 { (1, 0) } else { (0, 1) };
        processes[joiner] = start(joiner);
        insert(&store, round * EVENTS + EVENTS / 2..(round + 1) * EVENTS, &mut all).await;
        if round + 1 < ROUNDS {
            // The process is killed, so the other one has to take over its partitions.
            processes[leaver] = None;
        }
    }
    assert_all(&processes, &all).await;
    // Each process includes the other one's partitions in its answer.
    for process in processes.iter().flatten() {
        let mut found = Err("nothing was asked".to_owned());
        let wait = async {
            while found.as_ref().map(BTreeSet::len) != Ok((ROUNDS * EVENTS) as usize) {
                tokio::time::sleep(Duration::from_millis(20)).await;
                found = keys(process).await;
            }
        };
        let arrival = tokio::time::timeout(2 * LONG, wait).await;
        let found = found.map(|found| found.len());
        assert!(arrival.is_ok(), "{} of its stream: {found:?}", process.address);
        let events = ROUNDS * EVENTS;
        let expected = format!("{events},{events},{}", events * (events - 1) / 2);
        assert_eq!(answer_of_query(process), expected);
    }
}

/// Returns the numbers of events and keys and the sum of prices of the stream, as a process answers
/// a statement.
fn answer_of_query(process: &Service) -> String {
    let sql = "SELECT count(*), count(DISTINCT _key), sum(price) FROM orders";
    let mut command = Command::new(tree::built("forebayd").unwrap());
    let output = command.args(["sql", "--node", &process.address, sql]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().last().unwrap_or_default().to_owned()
}

/// Returns the keys of all events of the stream, as a process answers; asserts that no key occurs
/// twice.
async fn keys(process: &Service) -> Result<BTreeSet<Vec<u8>>, String> {
    let request = v1::SelectEventsRequest {
        stream: "orders".to_owned(),
        columns: vec!["price".to_owned()],
        limit: 10_000,
        ..Default::default()
    };
    let mut events = EventsClient::new(channel(&process.address));
    let answer =
        events.select_events(request).await.map_err(|status| status.to_string())?.into_inner();
    let keys: BTreeSet<_> = answer.events.iter().map(|event| event.key.to_vec()).collect();
    assert_eq!(keys.len(), answer.events.len(), "an event twice");
    Ok(keys)
}

/// Returns the columns and the number of the events that a select after a write finds; waits while
/// the stream is reopened.
async fn found(process: &Service, selector: By, token: &Token) -> (Vec<String>, usize) {
    let wait = v1::read_options::Wait::AfterToken(token.encode());
    let request = v1::SelectEventsRequest {
        stream: "orders".to_owned(),
        by: Some(selector),
        read: Some(v1::ReadOptions { wait: Some(wait), wait_ms: 30_000, age_ms_max: None }),
        ..Default::default()
    };
    let mut events = EventsClient::new(channel(&process.address));
    let wait = async {
        loop {
            match events.select_events(request.clone()).await {
                Err(status) if status.code() == Code::Unavailable => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                answer => return answer.unwrap().into_inner(),
            }
        }
    };
    let answer = tokio::time::timeout(LONG, wait).await.expect("the stream does not open");
    (answer.columns.into_iter().map(|column| column.name).collect(), answer.events.len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resumed_process_knows_alterations_made_during_its_pause() {
    let prefix = "altered";
    let replicator = Service::replicator(prefix, "127.0.0.1:0");
    let writer = Service::writer(prefix, "127.0.0.1:0", &replicator);
    let client = client(&writer.address).await;
    let spec = StoreSpec::stream("orders", KeyType::Int64).partitions(2);
    let store = client.create_store(&spec).await.unwrap();
    let data = tempfile::tempdir().unwrap();
    let process = Service::features(prefix, data.path());
    let mut columns = Vec::new();
    for round in 0..10_i64 {
        let column = format!("more_{round}");
        let rules = ColumnRules { index: Some(ColumnIndex::Exact), ..ColumnRules::default() };
        let string = FieldType::STRING;
        let field = FieldSpec { rules, ..FieldSpec::new(&column, string) };
        columns.push(column.clone());
        process.freeze();
        client.alter_store("orders", None, &[Alteration::AddField(field)]).await.unwrap();
        let event = store.insert(round).set(&column, "x").send();
        let token = event.await.unwrap().token;
        let value = Some((&Value::String("x".to_owned())).into());
        let by_column = By::Equal(Equal { column, value });
        let by_key = By::Key(Bytes::copy_from_slice(&round.to_le_bytes()));
        // The process finds the requests when it continues.
        let (by_column, by_key, ()) = tokio::join!(
            found(&process, by_column, &token),
            found(&process, by_key, &token),
            async {
                tokio::time::sleep(Duration::from_millis(20)).await;
                process.thaw();
            }
        );
        assert_eq!((&by_column, &by_key), (&(columns.clone(), 1), &(columns.clone(), 1)));
    }
}
