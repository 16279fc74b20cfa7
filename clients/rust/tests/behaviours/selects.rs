//! Selects of a stream's retained events: the criteria, the attributes of each event, and the
//! selects that are refused.

use forebay::reads::{EventQuery, Presence, ReadOptions};
use forebay::schema::{
    ColumnIndex, ColumnRules, FieldSpec, FieldType, KeyType, KeyValue, ScalarType, StoreSpec,
    StreamSpec, Timestamp, Value,
};
use forebay::writes::Token;
use forebay::{Client, ErrorCode, Store};

use crate::world::{
    INT32, INT64, PATIENCE, STRING, StoreFixture, TIMESTAMP, after, assert_refused, client, int,
    new_name, over_limit,
};

const SECOND_US: i64 = 1_000_000;

/// Orders of three users, and the token of the log.
struct Orders {
    _client: Client,
    store: Store,
    token: Token,
}

/// Returns a spec with a time, a city, a class and a price, and a note and tags, which have no
/// index.
fn spec() -> StoreSpec {
    let indexed = |name: &str, column_type, index| {
        let rules = ColumnRules { index: Some(index), ..ColumnRules::default() };
        FieldSpec { rules, ..FieldSpec::new(name, column_type) }
    };
    let mut spec =
        StoreSpec::stream(new_name(), KeyType::String).partitions(3).field("at", TIMESTAMP);
    spec.fields.push(indexed("city", STRING, ColumnIndex::Exact));
    spec.fields.push(indexed("class", INT32, ColumnIndex::Exact));
    spec.fields.push(indexed("price", INT64, ColumnIndex::Range));
    spec.stream = Some(StreamSpec { event_time: Some("at".to_owned()) });
    spec.field("note", STRING).field("tags", FieldType::List(ScalarType::String))
}

/// Writes twelve orders, one a second: the even ones in Rome with a null note, the others in Oslo;
/// the last one has no price.
async fn orders() -> Orders {
    let client = client().await;
    let store = client.create_store(&spec()).await.unwrap();
    let mut batch = store.batch();
    for n in 0..12_i64 {
        let event = store.insert(&format!("user-{}", n % 3)).set("class", n % 4);
        let event = event.set("at", Value::Timestamp(n * SECOND_US));
        let event = match n % 2 {
            0 => event.set("city", "Rome").set_null("note"),
            _ => event.set("city", "Oslo"),
        };
        // The prices are 0, 10 to 110, in a different order.
        let event = if n < 11 { event.set("price", n * 7 % 12 * 10) } else { event };
        batch.add(event).unwrap();
    }
    let token = batch.send().await.unwrap().require_complete().unwrap().token;
    Orders { _client: client, store, token }
}

impl Orders {
    fn select(&self) -> EventQuery {
        self.store.select().read(after(&self.token))
    }
}

/// Returns the seconds of the events' times.
async fn seconds(select: EventQuery) -> Vec<i64> {
    let selected = select.send().await.unwrap();
    selected.events.iter().map(|event| event.time.as_micros() / SECOND_US).collect()
}

fn second(n: i64) -> Timestamp {
    Timestamp::from_micros(n * SECOND_US)
}

pub async fn select_by_key_returns_the_events_of_the_key() {
    let orders = orders().await;
    let selected = orders.select().key("user-1").send().await.unwrap();
    let names: Vec<_> = selected.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["at", "city", "class", "price", "note", "tags"]);
    assert_eq!(selected.columns[2].field_type, INT32);
    let [first, second_one, ..] = selected.events.as_slice() else { panic!("{selected:?}") };
    for (event, n) in selected.events.iter().zip([1, 4, 7, 10]) {
        assert_eq!((event.key().unwrap(), event.time), (KeyValue::String("user-1"), second(n)));
        assert_eq!(event.value("price"), Some(&int(n * 7 % 12 * 10)));
        assert_eq!(event.value("class"), Some(&Value::Int32((n % 4) as i32)));
        assert!(event.append_time > event.time && event.partition == first.partition);
    }
    assert_eq!(selected.events.len(), 4);
    assert_ne!(
        (first.offset, first.index_in_entry),
        (second_one.offset, second_one.index_in_entry)
    );
    assert_eq!(first.value("city"), Some(&"Oslo".into()));
    assert_eq!((first.presence("note"), first.value("note")), (Presence::Absent, None));
    assert_eq!((second_one.presence("note"), second_one.value("note")), (Presence::Null, None));
    assert!(seconds(orders.select().key("nobody")).await.is_empty());
}

pub async fn select_by_value_returns_events_with_the_value() {
    let orders = orders().await;
    assert_eq!(seconds(orders.select().equal("class", 2_i64)).await, [2, 6, 10]);
    assert_eq!(seconds(orders.select().equal("class", Value::Int32(2))).await, [2, 6, 10]);
    assert!(seconds(orders.select().equal("city", "Bern")).await.is_empty());
    let rome = orders.select().equal("city", "Rome").columns(["price"]).send().await.unwrap();
    assert_eq!(rome.events.len(), 6);
    assert_eq!((rome.columns.len(), rome.columns[0].name.as_str()), (1, "price"));
    assert_eq!(rome.events[1].value("price"), Some(&int(20)));
    assert_eq!(rome.events[1].presence("city"), Presence::Absent);
}

pub async fn select_by_range_returns_events_between_two_values() {
    let orders = orders().await;
    assert_eq!(seconds(orders.select().between("price", 20..70)).await, [2, 4, 6, 9]);
    assert_eq!(seconds(orders.select().between("price", ..20)).await, [0, 7]);
    assert_eq!(seconds(orders.select().between("price", 100..)).await, [5, 10]);
    let all = orders.select().between::<i64>("price", ..);
    assert_eq!(seconds(all).await, (0..11).collect::<Vec<_>>());
    assert!(seconds(orders.select().between("price", 41..60)).await.is_empty());
}

pub async fn ordered_select_returns_the_first_events() {
    let orders = orders().await;
    let by_price = || orders.select().order_by("price");
    assert_eq!(seconds(by_price()).await, [0, 7, 2, 9, 4, 6, 1, 8, 3, 10, 5, 11]);
    assert_eq!(seconds(by_price().descending()).await, [5, 10, 3, 8, 1, 6, 4, 9, 2, 7, 0, 11]);
    assert_eq!(seconds(by_price().descending().limit(3)).await, [5, 10, 3]);
    let of_one = by_price().key("user-1").columns(["city"]).send().await.unwrap();
    let times: Vec<_> = of_one.events.iter().map(|event| event.time).collect();
    assert_eq!(times, [7, 4, 1, 10].map(second));
    assert_eq!(of_one.events[0].presence("price"), Presence::Absent, "it was not asked for");
}

pub async fn select_by_time_returns_the_events_of_the_span() {
    let orders = orders().await;
    let span = || orders.select().start(second(3)).end(second(6));
    assert_eq!(seconds(span()).await, [3, 4, 5]);
    assert_eq!(seconds(span().descending()).await, [5, 4, 3]);
    assert_eq!(seconds(orders.select().start(second(10))).await, [10, 11]);
    assert_eq!(seconds(orders.select().end(second(2))).await, [0, 1]);
    let of_one = orders.select().key("user-1").start(second(4)).end(second(10));
    assert_eq!(seconds(of_one).await, [4, 7]);
    assert_eq!(seconds(orders.select().descending().limit(2)).await, [11, 10]);
    assert_eq!(seconds(orders.select()).await, (0..12).collect::<Vec<_>>());
}

pub async fn invalid_selects_are_refused() {
    let orders = orders().await;
    let select = || orders.select();
    let name = orders.store.definition().name.clone();
    let refusal = async |select: EventQuery, code| {
        let error = assert_refused(select.send().await, code);
        assert_eq!(error.context().store.as_deref(), Some(name.as_str()));
        error.context().field.clone()
    };
    for unknown in [
        select().columns(["price", "colour"]),
        select().equal("colour", "red"),
        select().between("colour", 1..2),
        select().order_by("colour"),
    ] {
        let column = refusal(unknown, ErrorCode::NotFound).await;
        assert_eq!(column.as_deref(), Some("colour"));
    }
    for (invalid, column) in [
        (select().equal("note", "fast"), Some("note")),
        (select().between("note", "a".."b"), Some("note")),
        (select().between("city", "A".."B"), Some("city")),
        (select().equal("city", 5), Some("city")),
        (select().equal("class", i64::MAX), Some("class")),
        (select().order_by("tags"), Some("tags")),
        (select().key(7), None),
        (select().key("user-1").equal("city", "Rome"), None),
    ] {
        assert_eq!(refusal(invalid, ErrorCode::InvalidArgument).await.as_deref(), column);
    }
    assert_eq!(over_limit(select().limit(10_001).send().await), (10_000, 10_001));
    let documents = StoreFixture::with([("n", INT64)]).await;
    let error = assert_refused(documents.store.select().send().await, ErrorCode::InvalidArgument);
    assert_eq!(error.context().store.as_deref(), Some(documents.name()));
}

pub async fn select_after_a_token_finds_its_event() {
    let orders = orders().await;
    let insert = || orders.store.insert("own").set("at", Value::Timestamp(0)).send();
    for event_count in 1..4 {
        let token = insert().await.unwrap().token;
        let select_own = || orders.store.select().key("own");
        let found = select_own().read(after(&token)).send().await.unwrap();
        assert_eq!(found.events.len(), event_count);
        let repeated = select_own().read(after(&found.token)).send().await.unwrap();
        assert_eq!(repeated.events, found.events);
    }
    insert().await.unwrap();
    let latest = orders.store.select().key("own").read(ReadOptions::latest(PATIENCE));
    assert_eq!(latest.send().await.unwrap().events.len(), 4);
}
