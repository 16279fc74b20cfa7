//! Bad input at the edge of the service, sent without the checks of a client. Proves that each
//! request ends in a typed error, and that nothing is appended.

use bytes::Bytes;
use forebay::schema::{Alteration, FieldSpec, FieldType, KeyType, StoreOptions, StoreSpec, Value};
use forebay::writes::Token;
use forebay::{Client, ClientOptions, ErrorCode, Reader, ReaderOptions};
use forebay_core::change::{Change, ClientBatch, Entry, EntryBody, FieldChange, FieldOp, Verb};
use forebay_core::id::{ClientId, FieldId, LogId, Offset, SchemaVersion, Sequence};
use forebay_core::key::Key;
use forebay_core::limits::{
    KEY_BYTES_MAX, MESSAGE_BYTES_MAX, NAME_BYTES_MAX, REQUEST_CHANGES_MAX, VALUE_BYTES_MAX,
};
use forebay_wire::entry::encode_entry;
use forebay_wire::status::error_of_status;
use forebay_wire::v1;
use forebay_wire::v1::change_stream_client::ChangeStreamClient;
use forebay_wire::v1::writer_client::WriterClient;
use std::time::Duration;
use tonic::transport::Channel;

use crate::daemon::{Daemon, LONG};

const COUNT: FieldId = FieldId(1);
const NAME: FieldId = FieldId(2);
const HOUR_MS: u32 = 3_600_000;

/// A node with one store, whose log only grows by writes.
struct World {
    client: Client,
    writer: WriterClient<Channel>,
    stream: ChangeStreamClient<Channel>,
    store_id: u64,
    daemon: Daemon,
    _data: tempfile::TempDir,
}

impl World {
    async fn start() -> Self {
        let data = tempfile::tempdir().unwrap();
        let daemon = Daemon::start(&["--data-dir", data.path().to_str().unwrap()], "127.0.0.1:0");
        let client = Client::connect(&daemon.address, ClientOptions::default()).await.unwrap();
        let mut spec = StoreSpec::documents("users", KeyType::String)
            .partitions(1)
            .field("count", FieldType::INT64)
            .field("name", FieldType::STRING);
        spec.options = StoreOptions { heartbeat_ms: HOUR_MS, ..spec.options };
        let store_id = client.create_store(&spec).await.unwrap().definition().store.0;
        let url = format!("http://{}", daemon.address);
        let channel = Channel::from_shared(url).unwrap().connect().await.unwrap();
        let writer =
            WriterClient::new(channel.clone()).max_encoding_message_size(2 * MESSAGE_BYTES_MAX);
        let stream = ChangeStreamClient::new(channel);
        Self { client, writer, stream, store_id, daemon, _data: data }
    }

    async fn end(&self) -> u64 {
        let request = v1::GetLogBoundsRequest { store_id: self.store_id, partition: 0 };
        self.stream.clone().get_log_bounds(request).await.unwrap().into_inner().end_offset
    }

    fn request(&self, changes: Vec<Change>) -> v1::WriteChangesRequest {
        let batch = ClientBatch { client: ClientId(9), changes };
        v1::WriteChangesRequest {
            store_id: self.store_id,
            schema_version: 1,
            batch: Some((&batch).into()),
            partitions: Vec::new(),
            outcome_wait_ms: 0,
            repartition_count: 0,
        }
    }

    /// Returns the error code of a refused write; fails if the write is accepted.
    async fn refusal(&self, request: v1::WriteChangesRequest) -> ErrorCode {
        let refused = self.writer.clone().write_changes(request).await;
        error_of_status(&refused.expect_err("the write was taken")).code()
    }
}

fn upsert(sequence: u64, key: &[u8], field: FieldId, value: Value) -> Change {
    let op = FieldOp::Set(Some(value));
    Change {
        sequence: Sequence(sequence),
        key: Key::plain(key).unwrap(),
        verb: Verb::Upsert,
        fields: vec![FieldChange { field, op, ttl_us: None }],
        condition: None,
        ttl_us: None,
    }
}

fn good(sequence: u64) -> Change {
    upsert(sequence, b"ada", COUNT, Value::Int64(36))
}

/// Edits the wire form of the request's first change.
fn edited(
    mut request: v1::WriteChangesRequest,
    edit: impl FnOnce(&mut v1::Change),
) -> v1::WriteChangesRequest {
    edit(&mut request.batch.as_mut().unwrap().changes[0]);
    request
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_writes_are_refused_and_nothing_is_appended() {
    use ErrorCode::{InvalidArgument, LimitExceeded, NotFound, UpgradeNeeded};
    let world = World::start().await;
    let one = |change| world.request(vec![change]);
    let long_key = vec![b'k'; KEY_BYTES_MAX + 1];
    let long_name = "n".repeat(VALUE_BYTES_MAX + 1);
    let many = (1..=REQUEST_CHANGES_MAX as u64 + 1).map(good).collect();
    let request = one(good(1));
    let before = world.end().await;
    let cases = [
        ("wrong type", one(upsert(1, b"a", COUNT, Value::Bool(true))), InvalidArgument),
        ("unknown field", one(upsert(1, b"a", FieldId(99), Value::Int64(1))), InvalidArgument),
        ("field 0", one(upsert(1, b"a", FieldId(0), Value::Int64(1))), InvalidArgument),
        ("unknown store", v1::WriteChangesRequest { store_id: 7, ..request.clone() }, NotFound),
        ("the control log", v1::WriteChangesRequest { store_id: 0, ..request.clone() }, NotFound),
        (
            "future version",
            v1::WriteChangesRequest { schema_version: 9, ..request.clone() },
            InvalidArgument,
        ),
        (
            "version 0",
            v1::WriteChangesRequest { schema_version: 0, ..request.clone() },
            InvalidArgument,
        ),
        ("no batch", v1::WriteChangesRequest { batch: None, ..request.clone() }, InvalidArgument),
        ("no change", world.request(Vec::new()), InvalidArgument),
        ("oversize key", edited(request.clone(), |c| c.key = long_key.into()), LimitExceeded),
        ("oversize value", one(upsert(1, b"a", NAME, Value::String(long_name))), LimitExceeded),
        ("oversize batch", world.request(many), LimitExceeded),
        ("no sequence", edited(request.clone(), |c| c.sequence = 0), InvalidArgument),
        ("a sequence twice", world.request(vec![good(1), good(1)]), InvalidArgument),
        ("no verb", edited(request.clone(), |c| c.verb = 0), InvalidArgument),
        ("a newer verb", edited(request.clone(), |c| c.verb = 77), UpgradeNeeded),
        (
            "a claimed partition",
            v1::WriteChangesRequest { partitions: vec![5], ..request.clone() },
            InvalidArgument,
        ),
    ];
    for (what, request, expected) in cases {
        assert_eq!(world.refusal(request).await, expected, "{what}");
    }
    let mut short_client = request.clone();
    short_client.batch.as_mut().unwrap().client_id = Bytes::from_static(b"short");
    assert_eq!(world.refusal(short_client).await, InvalidArgument);
    assert_eq!(world.end().await, before, "something was appended");
    let taken = world.writer.clone().write_changes(request).await.unwrap().into_inner();
    assert_eq!((taken.results.len(), world.end().await), (1, before + 1));
}

/// Proves that a message over the limit never reaches a handler, and that the connection's other
/// calls continue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oversize_message_is_refused_and_the_connection_continues() {
    let world = World::start().await;
    let before = world.end().await;
    let huge = edited(world.request(vec![good(1)]), |change| {
        change.key = vec![1; MESSAGE_BYTES_MAX + 1].into();
    });
    assert_eq!(world.refusal(huge).await, ErrorCode::LimitExceeded);
    assert_eq!(world.end().await, before);
    world.writer.clone().write_changes(world.request(vec![good(1)])).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn older_schema_version_is_accepted_and_names_have_a_limit() {
    let world = World::start().await;
    let add = FieldSpec::new("age", FieldType::INT32);
    world.client.alter_store("users", None, &[Alteration::AddField(add)]).await.unwrap();
    let taken = world.writer.clone().write_changes(world.request(vec![good(1)])).await.unwrap();
    assert_eq!(taken.into_inner().schema_version, 2, "the answer tells the newer version");
    let spec = |name: String| v1::StoreSpec {
        name,
        ..(&StoreSpec::documents("x", KeyType::String).partitions(1)).into()
    };
    for (name, expected) in [
        ("n".repeat(NAME_BYTES_MAX + 1), ErrorCode::LimitExceeded),
        (String::new(), ErrorCode::InvalidArgument),
        ("users".to_owned(), ErrorCode::Conflict),
    ] {
        let request = v1::CreateStoreRequest { spec: Some(spec(name)) };
        let refused = world.writer.clone().create_store(request).await.unwrap_err();
        assert_eq!(error_of_status(&refused).code(), expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_that_only_the_node_may_append_are_refused() {
    let world = World::start().await;
    let before = world.end().await;
    let entry = |body| encode_entry(&Entry::original(LogId(1), SchemaVersion(1), body)).unwrap();
    let barrier = entry(EntryBody::Barrier);
    let mut flipped = barrier.to_vec();
    flipped[9] ^= 1;
    let dead_letters = world.store_id & !(1 << 63);
    for (what, store_id, entry, expected) in [
        ("garbage", world.store_id, Bytes::from_static(b"x"), ErrorCode::InvalidArgument),
        ("a flipped bit", world.store_id, flipped.into(), ErrorCode::InvalidArgument),
        ("another log", world.store_id, barrier.clone(), ErrorCode::TokenLost),
        ("a log header", world.store_id, entry(EntryBody::LogHeader), ErrorCode::InvalidArgument),
        (
            "plain changes",
            world.store_id,
            entry(EntryBody::Changes(Vec::new())),
            ErrorCode::InvalidArgument,
        ),
        (
            "letters",
            world.store_id,
            entry(EntryBody::DeadLetters(Vec::new())),
            ErrorCode::InvalidArgument,
        ),
        ("the control log", 0, barrier.clone(), ErrorCode::NotFound),
        ("a dead-letter log", dead_letters, barrier, ErrorCode::NotFound),
    ] {
        let request = v1::AppendEntryRequest { store_id, partition: 0, entry };
        let refused = world.writer.clone().append_entry(request).await.expect_err(what);
        assert_eq!(error_of_status(&refused).code(), expected, "{what}");
    }
    assert_eq!(world.end().await, before);
    let above =
        v1::SubscribeLogRequest { store_id: world.store_id, partition: 0, from_offset: before + 1 };
    let mut stream = world.stream.clone().subscribe_log(above).await.unwrap().into_inner();
    let refused = stream.message().await.unwrap_err();
    assert_eq!(error_of_status(&refused).code(), ErrorCode::TokenLost);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_tokens_are_refused_or_time_out_without_an_answer() {
    let world = World::start().await;
    let store = world.client.store("users").await.unwrap();
    let token = store.upsert("ada").set("count", 1_i64).send().await.unwrap().token;
    let mut options = ReaderOptions::new("users");
    options.ready_max_staleness = 3 * Duration::from_millis(HOUR_MS.into());
    let reader = Reader::open(&world.daemon.address, options).await.unwrap();
    reader.await_token(&token, LONG).await.unwrap();
    let (partition, (log_id, position)) =
        token.positions.iter().map(|(at, place)| (*at, *place)).next().unwrap();
    let forged = |store, log_id, position| {
        let mut token = Token::new(store);
        token.advance(partition, log_id, position).unwrap();
        Token::decode(&token.encode()).unwrap()
    };
    let code = async |token: &Token, wait: Duration| {
        reader.await_token(token, wait).await.unwrap_err().code()
    };
    let other_log = forged(token.store, LogId(log_id.0 ^ 4), position);
    assert_eq!(code(&other_log, LONG).await, ErrorCode::TokenLost);
    let other_store = forged(forebay::schema::StoreId(token.store.0 ^ 4), log_id, position);
    assert_eq!(code(&other_store, LONG).await, ErrorCode::InvalidArgument);
    let mut future = position;
    future.offset = Offset(position.offset.0 + 1_000);
    let future = forged(token.store, log_id, future);
    assert_eq!(code(&future, Duration::from_millis(200)).await, ErrorCode::DeadlineExceeded);
    let bytes = token.encode().to_vec();
    for at in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[at / 8] ^= 1 << (at % 8);
        let refused = Token::decode(&flipped).expect_err("a flipped bit was not seen");
        assert_eq!(refused.code(), ErrorCode::InvalidArgument, "bit {at}");
    }
    // The reader that received all of these requests still answers.
    let next = store.upsert("ada").set("count", 2_i64).send().await.unwrap().token;
    reader.await_token(&next, LONG).await.unwrap();
}
