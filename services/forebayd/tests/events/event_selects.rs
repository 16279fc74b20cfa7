//! Proves that selects of every kind return the answers of a naive model, over kills and
//! alterations.

use std::collections::BTreeMap;

use forebay::Store;
use forebay::schema::{Alteration, ColumnIndex, ColumnRules, FieldType, ScalarType, Value};
use forebay::writes::Token;
use forebay_core::clock::{Clock, SystemClock};
use forebay_core::entropy::SeededEntropy;
use forebay_wire::v1;

use crate::model::{Case, Order, some_orders};
use crate::{World, after, all_of, client, column, orders, select};

const BATCH: usize = 50;
const CASES: usize = 150;

pub async fn insert(store: &Store, orders: &[Order]) -> Token {
    let mut token = None;
    for some in orders.chunks(BATCH) {
        let mut batch = store.batch();
        for order in some {
            let mut event = store.insert(&order.user).set("n", order.n);
            event = event.set("note", order.note.as_str());
            if let Some(at) = order.at {
                event = event.set("at", Value::Timestamp(at));
            }
            if let Some(city) = &order.city {
                event = event.set("city", city.as_str());
            }
            if let Some(price) = order.price {
                event = event.set("price", price);
            }
            if let Some(weight) = order.weight {
                event = event.set("weight", weight);
            }
            batch.add(event).unwrap();
        }
        let sent = batch.send().await.unwrap();
        assert!(sent.results.iter().all(Result::is_ok), "{:?}", sent.results);
        match &mut token {
            None => token = Some(sent.token),
            Some(token) => token.merge(&sent.token).unwrap(),
        }
    }
    token.unwrap()
}

/// Returns an event's columns by name.
fn columns(
    answer: &v1::SelectEventsResponse,
    event: &v1::Event,
) -> BTreeMap<String, Option<Value>> {
    let name = |id: u32| answer.columns.iter().find(|it| it.id == id).unwrap().name.clone();
    let value = |field: &v1::DocumentField| {
        let value = field.value.clone().filter(|value| value.kind.is_some());
        (name(field.field), value.map(|value| Value::try_from(value).unwrap()))
    };
    event.columns.iter().map(value).collect()
}

fn number(answer: &v1::SelectEventsResponse, event: &v1::Event) -> i64 {
    match columns(answer, event).get("n") {
        Some(Some(Value::Int64(n))) => *n,
        other => panic!("{other:?}"),
    }
}

/// Reads the effective time of each order, which is the append time if the order has none.
pub async fn learn_times(address: &str, orders: &mut [Order], token: &Token) {
    let ask = v1::SelectEventsRequest { read: after(token), ..all_of("orders") };
    let answer = select(address, &ask).await.unwrap();
    assert_eq!(answer.events.len(), orders.len());
    for event in &answer.events {
        let order = &mut orders[number(&answer, event) as usize];
        assert_eq!(event.time_us, order.at.unwrap_or(event.append_time_us));
        assert_eq!(event.key, order.user.as_bytes());
        order.time = event.time_us;
        let found = columns(&answer, event);
        let is_found = |name: &str, value: Option<Value>| {
            assert_eq!(found.get(name).cloned().flatten(), value, "{name} of {order:?}");
        };
        is_found("city", order.city.clone().map(Into::into));
        is_found("weight", order.weight.map(Value::Float64));
        is_found("note", Some(order.note.clone().into()));
    }
}

async fn assert_model(address: &str, orders: &[Order], seed: u64, notes_are_found: bool) {
    let entropy = SeededEntropy::new(seed);
    let about = orders.iter().map(|order| order.time).max().unwrap();
    for case in 0..CASES {
        let case_of = Case::random(&entropy, about, notes_are_found);
        let answer = select(address, &case_of.ask).await;
        let answer = answer.unwrap_or_else(|error| panic!("{case} {:?}: {error}", case_of.ask));
        let found: Vec<_> =
            answer.events.iter().map(|event| &orders[number(&answer, event) as usize]).collect();
        let expected = case_of.expected(orders);
        let what = format!("seed {seed}, case {case}: {:?}", case_of.ask);
        assert_eq!(found.len(), expected.len(), "{what}");
        for (found, expected) in found.iter().zip(&expected) {
            let is_alike = case_of.order(found, expected).is_eq();
            assert!(is_alike, "{found:?} instead of {expected:?}: {what}");
        }
        let mut numbers: Vec<_> = found.iter().map(|order| order.n).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), found.len(), "an event twice: {what}");
        let by_itself = case_of.expected(orders).len() < case_of.ask.limit as usize;
        let mut wanted: Vec<_> = expected.iter().map(|order| order.n).collect();
        wanted.sort_unstable();
        assert!(!by_itself || numbers == wanted, "other events than are there: {what}");
        if case_of.ask.columns == ["n"] {
            let others = answer.events.iter().filter(|event| event.columns.len() > 1);
            assert_eq!(others.count(), 0, "columns that were not asked for: {what}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn selects_equal_the_model_across_kills_and_alterations() {
    let world = World::new();
    let daemon = world.start(&[]);
    let address = daemon.address.clone();
    let client_of = client(&address).await;
    let store = client_of.create_store(&orders()).await.unwrap();
    let now = SystemClock.now().as_micros();
    let mut inserted = some_orders(1, 0, 2_000, now);
    let token = insert(&store, &inserted).await;
    learn_times(&address, &mut inserted, &token).await;
    assert_model(&address, &inserted, 2, false).await;

    // Unflushed events are replayed from the log, this time with direct I/O.
    daemon.kill();
    let daemon = world.start(&["--direct-io"]);
    let address = daemon.address.clone();
    let client_of = client(&address).await;
    let store = client_of.store("orders").await.unwrap();
    inserted.extend(some_orders(3, 2_000, 500, now));
    let token = insert(&store, &inserted[2_000..]).await;
    learn_times(&address, &mut inserted, &token).await;
    assert_model(&address, &inserted, 4, false).await;

    // A new index and a wider column find the events that are already retained.
    let rules = ColumnRules { index: Some(ColumnIndex::Range), ..ColumnRules::default() };
    let widen = FieldType::INT64;
    let alterations = [
        Alteration::SetRules { name: "note".to_owned(), rules },
        Alteration::WidenField { name: "price".to_owned(), to: widen },
        Alteration::RenameField { from: "city".to_owned(), to: "town".to_owned() },
    ];
    client_of.alter_store("orders", None, &alterations).await.unwrap();
    let store = client_of.store("orders").await.unwrap();
    let more = store.insert("user-1").set("n", 2_500_i64).set("note", "note-1").send();
    let token = more.await.unwrap().token;
    inserted.push(Order {
        n: 2_500,
        user: "user-1".to_owned(),
        at: None,
        time: 0,
        city: None,
        price: None,
        weight: None,
        note: "note-1".to_owned(),
    });
    let wait = v1::SelectEventsRequest { read: after(&token), ..all_of("orders") };
    let answer = select(&address, &wait).await.unwrap();
    assert_eq!(answer.events.len(), inserted.len());
    let last = answer.events.iter().find(|event| number(&answer, event) == 2_500).unwrap();
    inserted[2_500].time = last.time_us;
    assert_model(&address, &inserted, 5, true).await;
}

/// Proves that no select sees the stream as it was before an alteration, although each alteration
/// reopens the stream.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn select_sees_every_earlier_alteration() {
    let world = World::new();
    let daemon = world.start(&[]);
    let client = client(&daemon.address).await;
    let store = client.create_store(&orders()).await.unwrap();
    for round in 0..20 {
        let name = format!("more_{round}");
        let added = column(&name, ScalarType::String, Some(ColumnIndex::Exact));
        client.alter_store("orders", None, &[Alteration::AddField(added)]).await.unwrap();
        let by = v1::select_events_request::By::Equal(v1::select_events_request::Equal {
            column: name.clone(),
            value: Some((&Value::String("x".to_owned())).into()),
        });
        let columns = vec!["n".to_owned(), name.clone()];
        let ask = v1::SelectEventsRequest { by: Some(by), columns, ..all_of("orders") };
        assert_eq!(select(&daemon.address, &ask).await.unwrap().events, []);
        let event = store.insert("user-1").set("n", round).set(&name, "x");
        let token = event.send().await.unwrap().token;
        let ask = v1::SelectEventsRequest { read: after(&token), ..ask };
        let answer = select(&daemon.address, &ask).await.unwrap();
        let found: Vec<_> = answer.events.iter().map(|it| number(&answer, it)).collect();
        assert_eq!(found, [round]);
    }
}
