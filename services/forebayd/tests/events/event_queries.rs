//! Proves that SQL statements over events and over their exports return the answers of a naive
//! model, and that exports have each event once, over kills and alterations.

use std::time::Duration;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use forebay::Store;
use forebay::schema::{Alteration, FieldSpec, ScalarType};
use forebay_core::clock::{Clock, SystemClock};
use forebay_core::entropy::SeededEntropy;
use forebay_core::{Error, ErrorCode};
use forebay_query::query;
use forebay_wire::status::error_of_status;
use forebay_wire::v1;
use forebay_wire::v1::exports_client::ExportsClient;
use futures::TryStreamExt;
use tonic::transport::{Channel, Endpoint};

use crate::daemon::{Daemon, LONG};
use crate::event_selects::{insert, learn_times};
use crate::model::{Case, Order, some_orders};
use crate::{LOOK_EVERY, World, client, orders, scalar};

const CASES: usize = 40;

fn channel(address: &str) -> Channel {
    Endpoint::from_shared(format!("http://{address}")).unwrap().connect_lazy()
}

/// Returns the integers that a statement selects, in ascending order.
async fn numbers(address: &str, sql: &str) -> Result<Vec<i64>, Error> {
    let mut rows = query(channel(address), sql).await?.batches;
    let mut numbers = Vec::new();
    while let Some(batch) = rows.try_next().await? {
        numbers.extend(batch.column(0).as_primitive::<Int64Type>().values());
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Waits until a statement returns this count.
async fn wait(address: &str, sql: &str, count: i64) {
    let wait = async {
        while numbers(address, sql).await.unwrap_or_default() != [count] {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.expect("the events do not come");
}

/// Takes an export; returns the number of its events, and its own number.
async fn export(address: &str) -> Result<(u64, Option<u64>), Error> {
    let request = v1::ExportEventsRequest { stream: "orders".to_owned() };
    let told = |status| error_of_status(&status);
    let answer = ExportsClient::new(channel(address)).export_events(request).await.map_err(told)?;
    let mut progress = answer.into_inner();
    while let Some(step) = progress.message().await.map_err(told)? {
        if step.is_done {
            return Ok((step.events, step.number));
        }
    }
    Err(Error::unavailable("it ended before it was done"))
}

async fn assert_model(address: &str, table: &str, orders: &[Order], seed: u64) {
    let entropy = SeededEntropy::new(seed);
    let about = orders.iter().map(|order| order.time).max().unwrap();
    for case in 0..CASES {
        let case_of = Case::random(&entropy, about, false);
        let sql = case_of.sql(table);
        let found = numbers(address, &sql).await;
        let found = found.unwrap_or_else(|error| panic!("{case}: {sql}: {error}"));
        let expected: Vec<_> = case_of.all(orders).iter().map(|order| order.n).collect();
        assert_eq!(found, expected, "seed {seed}, case {case}: {sql}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_and_exports_have_each_event_once_despite_kills_and_alterations() {
    let (world, exports) = (World::new(), tempfile::tempdir().unwrap());
    let url = format!("file://{}", exports.path().display());
    let daemon = world.start(&["--exports", &url]);
    let asked = client(&daemon.address).await;
    let store = asked.create_store(&orders()).await.unwrap();
    let now = SystemClock.now().as_micros();
    let mut all = some_orders(1, 0, 900, now);
    let token = insert(&store, &all).await;
    learn_times(&daemon.address, &mut all, &token).await;
    assert_model(&daemon.address, "orders", &all, 11).await;
    assert_eq!(numbers(&daemon.address, "SELECT count(*) FROM exports.orders").await.unwrap(), [0]);
    assert_eq!(export(&daemon.address).await.unwrap(), (900, Some(1)));
    assert_model(&daemon.address, "exports.orders", &all, 12).await;
    assert_eq!(export(&daemon.address).await.unwrap(), (0, None), "nothing has come");

    // Earlier exports have the former types and names.
    let alterations = [
        Alteration::RenameField { from: "city".to_owned(), to: "town".to_owned() },
        Alteration::WidenField { name: "price".to_owned(), to: scalar(ScalarType::Int64) },
        Alteration::AddField(FieldSpec::new("more", scalar(ScalarType::String))),
        Alteration::DropField("note".to_owned()),
    ];
    asked.alter_store("orders", None, &alterations).await.unwrap();
    // A statement sees the new columns, or the table is not open yet.
    match numbers(&daemon.address, "SELECT count(more) FROM orders").await {
        Err(error) => assert_eq!(error.code(), ErrorCode::Unavailable, "{error}"),
        Ok(counted) => assert_eq!(counted, [0]),
    }
    let store = asked.store("orders").await.unwrap();
    let mut later = some_orders(2, 900, 300, now);
    for order in &mut later {
        (order.city, order.note) = (None, String::new());
    }
    insert_altered(&store, &later).await;
    wait(&daemon.address, "SELECT count(*) FROM orders", 1_200).await;
    daemon.kill();

    let daemon = world.start(&["--exports", &url]);
    wait(&daemon.address, "SELECT count(*) FROM orders", 1_200).await;
    assert_eq!(export(&daemon.address).await.unwrap(), (300, Some(2)));
    for table in ["orders", "exports.orders"] {
        let all: Vec<_> = (0..1_200).collect();
        let ask = |what: &str| format!("SELECT n FROM {table} WHERE {what}");
        let found = async |what: &str| numbers(&daemon.address, &ask(what)).await.unwrap();
        assert_eq!(found("true").await, all);
        assert_eq!(found("price IS NOT NULL OR more IS NULL").await, all);
        assert_eq!(found("town IS NOT NULL AND n >= 900").await, [0; 0]);
        assert!(found("town = 'city-1'").await.len() > 50);
        let sum = format!("SELECT sum(price) FROM {table}");
        let prices = numbers(&daemon.address, &sum).await.unwrap();
        let known = self::prices(&some_orders(1, 0, 900, now)) + self::prices(&later);
        assert_eq!(prices, [known]);
    }
    daemon.terminate();
}

fn prices(orders: &[Order]) -> i64 {
    orders.iter().filter_map(|order| order.price).map(i64::from).sum()
}

async fn insert_altered(store: &Store, orders: &[Order]) {
    let mut batch = store.batch();
    for order in orders {
        let mut event = store.insert(&order.user).set("n", order.n);
        if let Some(price) = order.price {
            event = event.set("price", i64::from(price));
        }
        batch.add(event).unwrap();
    }
    assert!(batch.send().await.unwrap().results.iter().all(Result::is_ok));
}

/// Proves that the files of a killed export are not part of any export, and are removed later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_export_leaves_no_valid_files() {
    let (world, exports) = (World::new(), tempfile::tempdir().unwrap());
    let url = format!("file://{}", exports.path().display());
    let daemon = world.start(&["--exports", &url]);
    let store = client(&daemon.address).await.create_store(&orders()).await.unwrap();
    let (address, now) = (daemon.address.clone(), SystemClock.now().as_micros());
    daemon.terminate();
    let data = world.data().to_str().unwrap();
    let start = || Daemon::start(&["--data-dir", data, "--exports", &url], &address);
    let mut count = 0;
    for round in 0..6 {
        let daemon = start();
        insert(&store, &some_orders(round, count, 400, now)).await;
        count += 400;
        wait(&address, "SELECT count(*) FROM orders", count).await;
        let to = address.clone();
        let exporting = tokio::spawn(async move { export(&to).await });
        tokio::time::sleep(Duration::from_millis(4 * round)).await;
        daemon.kill();
        drop(exporting.await.unwrap());
    }
    let daemon = start();
    insert(&store, &some_orders(9, count, 10, now)).await;
    count += 10;
    wait(&daemon.address, "SELECT count(*) FROM orders", count).await;
    export(&daemon.address).await.unwrap();
    // An export with new events removes the files of failed ones.
    insert(&store, &some_orders(10, count, 10, now)).await;
    count += 10;
    wait(&daemon.address, "SELECT count(*) FROM orders", count).await;
    export(&daemon.address).await.unwrap();
    let all: Vec<_> = (0..count).collect();
    assert_eq!(numbers(&daemon.address, "SELECT n FROM exports.orders").await.unwrap(), all);
    daemon.terminate();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn export_needs_a_location_and_a_stream() {
    let world = World::new();
    let daemon = world.start(&[]);
    let asked = client(&daemon.address).await;
    let refused = async |address: &str| export(address).await.unwrap_err().code();
    assert_eq!(refused(&daemon.address).await, ErrorCode::InvalidArgument);
    asked.create_store(&orders()).await.unwrap();
    wait(&daemon.address, "SELECT count(*) FROM orders", 0).await;
    assert_eq!(refused(&daemon.address).await, ErrorCode::InvalidArgument);
    let sql = "SELECT n FROM exports.orders";
    let error = numbers(&daemon.address, sql).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
    let error = numbers(&daemon.address, "SELECT n FROM nowhere").await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
    let statement = "SELECT a._key FROM orders a, orders b, nowhere";
    assert!(numbers(&daemon.address, statement).await.is_err());
    daemon.terminate();
    let exports = tempfile::tempdir().unwrap();
    let daemon = world.start(&["--exports", &format!("file://{}", exports.path().display())]);
    assert_eq!(export(&daemon.address).await.map(|(events, _)| events).unwrap_or_default(), 0);
    daemon.terminate();
}
