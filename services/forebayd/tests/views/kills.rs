//! Inserts over kills. Proves that each event is folded once into the group of its user and, after
//! repartitioning, into the group of its city.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use forebay::schema::Value;
use forebay::{Reader, ReaderOptions, Store};
use forebay_core::clock::{Clock, SystemClock};
use forebay_core::entropy::{Entropy, SeededEntropy};

use crate::daemon::LONG;
use crate::oracle::{HOUR_US, Order, expected};
use crate::{ViewClients, World, client, number, orders};

const WRITERS: u64 = 3;
const BATCHES: usize = 250;
const EVENTS: usize = 20;
const USERS: u64 = 12;
const CITIES: u64 = 5;
const KILLS: usize = 8;

const VIEWS: [(&str, &str); 2] = [("by_user", "[key]"), ("by_city", "[city]")];

/// The values of groups by user are also materialized to a store.
const MATERIALIZED: &str = "materialize: {store: users, interval: 20ms}\n";

fn declaration(view: &str, entity: &str) -> String {
    let materialized = if view == "by_user" { MATERIALIZED } else { "" };
    format!(
        "apiVersion: forebay/v1\nkind: FeatureView\nname: {view}\n\
         source: orders\nentity: {entity}\nallowed_lateness: 4h\n\
         where: price >= 10\n\
         windows:\n  all: unbounded\n  1h: {{sliding: 1h, slide: 1m}}\n\
         features:\n  orders: {{count: '*'}}\n  spent: {{sum: price}}\n  \
         dearest: {{max: price}}\n  average: {{avg: price}}\n{materialized}"
    )
}

/// Returns orders of the last three hours, in random order.
fn some_orders(seed: u64, now: i64) -> Vec<Order> {
    let entropy = SeededEntropy::new(seed);
    let below = |bound: u64| entropy.next_u64().unwrap() % bound;
    let order = |_| Order {
        user: format!("user-{}", below(USERS)),
        at: now - below(3 * HOUR_US as u64) as i64,
        city: format!("city-{}", below(CITIES)),
        price: below(100) as i64,
    };
    (0..BATCHES * EVENTS).map(order).collect()
}

async fn insert(store: Store, orders: Vec<Order>, heard: Arc<AtomicUsize>) {
    for some in orders.chunks(EVENTS) {
        let mut batch = store.batch();
        for order in some {
            let event = store.insert(&order.user).set("at", Value::Timestamp(order.at));
            batch.add(event.set("city", order.city.as_str()).set("price", order.price)).unwrap();
        }
        let sent = batch.send().await.unwrap();
        assert!(sent.results.iter().all(Result::is_ok), "{:?}", sent.results);
        heard.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_folded_once_despite_kills() {
    let world = World::new();
    let mut daemon = world.start("127.0.0.1:0");
    let setup = client(&daemon.address).await;
    orders(&setup).await;
    let clients = ViewClients::at(&daemon.address);
    for (view, entity) in VIEWS {
        clients.apply(&declaration(view, entity)).await;
    }
    let now = SystemClock.now().as_micros();
    let (heard, mut all, mut writers) = (Arc::<AtomicUsize>::default(), Vec::new(), Vec::new());
    for seed in 0..WRITERS {
        let store = client(&daemon.address).await.store("orders").await.unwrap();
        let orders = some_orders(seed, now);
        all.extend(orders.iter().filter(|order| order.price >= 10).cloned());
        writers.push(tokio::spawn(insert(store, orders, Arc::clone(&heard))));
    }
    for kill in 1..=KILLS {
        let batches = WRITERS as usize * BATCHES;
        while heard.load(Ordering::SeqCst) < kill * batches / (KILLS + 1) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let address = daemon.kill();
        daemon = world.start(&address);
    }
    for writer in writers {
        tokio::time::timeout(LONG, writer).await.unwrap().unwrap();
    }
    let clients = ViewClients::at(&daemon.address);
    assert_all_as_expected(&clients, &all).await;
    assert_all_materialized(&daemon.address, &all).await;
    // Flushed state is resumed: nothing is folded twice.
    let address = daemon.kill();
    let _daemon = world.start(&address);
    assert_all_as_expected(&ViewClients::at(&address), &all).await;
}

async fn assert_all_as_expected(clients: &ViewClients, all: &[Order]) {
    let users = (0..USERS).map(|user| ("by_user", format!("user-{user}")));
    let cities = (0..CITIES).map(|city| ("by_city", format!("city-{city}")));
    for (view, name) in users.chain(cities) {
        let of_group = all.iter().filter(|order| match view {
            "by_user" => order.user == name,
            _ => order.city == name,
        });
        let count = of_group.clone().count() as i64;
        let group = [Value::String(name.clone())];
        let answer = clients.values_once(view, &group, |answer| {
            number(answer, "orders_all").is_some_and(|folded| folded >= count)
        });
        let (values, at) = answer.await;
        assert_eq!(values, expected(of_group, at), "{view} of {name}");
    }
}

/// Asserts that the values of all time are the same in the documents.
async fn assert_all_materialized(address: &str, all: &[Order]) {
    let reader = Reader::open(address, ReaderOptions::new("users")).await.unwrap();
    reader.await_ready(LONG).await.unwrap();
    let definition = reader.definition();
    let id = |name: &str| definition.field(name).unwrap().id;
    for user in (0..USERS).map(|user| format!("user-{user}")) {
        let of_user = all.iter().filter(|order| order.user == user);
        let count = Some(Value::Int64(of_user.clone().count() as i64));
        let held = || reader.get_document(&user).unwrap();
        let wait = async {
            while held().and_then(|held| held.value(id("orders_all")).cloned()) != count {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        assert!(tokio::time::timeout(LONG, wait).await.is_ok(), "{user}: {:?}", held());
        let document = held().unwrap();
        for (name, value) in
            expected(of_user, 0).into_iter().filter(|(name, _)| name.ends_with("_all"))
        {
            assert_eq!(document.value(id(&name)).cloned(), value, "{name} of {user}");
        }
    }
}
