//! Refused selects: each error says what to do instead.

use forebay::schema::{KeyType, ScalarType, StoreSpec, Value};
use forebay_wire::v1;
use forebay_wire::v1::select_events_request::{Between, By, Equal};
use tonic::Code;

use crate::{World, all_of, client, orders, scalar, select};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_select_is_refused() {
    let world = World::new();
    let daemon = world.start(&[]);
    let client_of = client(&daemon.address).await;
    client_of.create_store(&orders()).await.unwrap();
    let users = StoreSpec::documents("users", KeyType::String).partitions(1);
    let users = users.field("age", scalar(ScalarType::Int64));
    client_of.create_store(&users).await.unwrap();
    let equal = |column: &str, value: Value| {
        Some(By::Equal(Equal { column: column.to_owned(), value: Some((&value).into()) }))
    };
    let between = |column: &str, start: Value| {
        let start = Some((&start).into());
        Some(By::Between(Between { column: column.to_owned(), start, end: None }))
    };
    let by = |by| v1::SelectEventsRequest { by, ..all_of("orders") };
    let text = |text: &str| Value::String(text.to_owned());
    let ordered = |column: &str| v1::SelectEventsRequest {
        order_by: Some(column.to_owned()),
        ..all_of("orders")
    };
    let many = v1::SelectEventsRequest { limit: 10_001, ..all_of("orders") };
    let columns =
        v1::SelectEventsRequest { columns: vec!["colour".to_owned()], ..all_of("orders") };
    let partitions = v1::SelectEventsRequest { partitions: vec![3], ..all_of("orders") };
    for (ask, code, said) in [
        (all_of("nothing"), Code::NotFound, "no such store"),
        (all_of("users"), Code::InvalidArgument, "no stream"),
        (by(equal("note", text("a"))), Code::InvalidArgument, "no index"),
        (by(equal("colour", text("a"))), Code::NotFound, "describe the stream"),
        (by(between("city", text("a"))), Code::InvalidArgument, "range index"),
        (by(equal("price", text("a"))), Code::InvalidArgument, "int32"),
        (by(equal("weight", Value::Float64(f64::NAN))), Code::InvalidArgument, "NaN"),
        (
            by(Some(By::Equal(Equal { column: "city".to_owned(), value: None }))),
            Code::InvalidArgument,
            "value",
        ),
        (ordered("colour"), Code::NotFound, "describe the stream"),
        (many, Code::ResourceExhausted, "fewer events"),
        (columns, Code::NotFound, "describe the stream"),
        (partitions, Code::InvalidArgument, "3 partitions"),
    ] {
        let status = select(&daemon.address, &ask).await.unwrap_err();
        assert_eq!(status.code(), code, "{ask:?}: {status}");
        assert!(status.to_string().contains(said), "{ask:?}: {status}");
    }
}
