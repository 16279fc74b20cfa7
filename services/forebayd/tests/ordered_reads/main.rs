//! Ordered reads over gRPC: documents by key, and scans in both directions at one position,
//! compared with a sorted model.

#[path = "../served_node/mod.rs"]
mod served_node;
mod status;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay::schema::{FieldType, KeyType, StoreSpec, Value};
use forebay::writes::Token;
use forebay::{Error, ErrorCode, Result, Store};
use forebay_core::clock::SystemClock;
use forebay_core::id::FieldId;
use forebay_log::{ChangeLog, MemoryLog};
use forebay_wire::document::document_of;
use forebay_wire::status::error_of_status;
use forebay_wire::v1;
use forebay_wire::v1::document_result::Answer;
use forebay_wire::v1::scan_documents_request::Keys;
use forebay_wire::v1::shards_client::ShardsClient;
use tonic::transport::Channel;

use crate::served_node::{ServedNode, is_caught_up};

const INT64: FieldType = FieldType::INT64;
const COUNT: FieldId = FieldId(1);
const NAME: FieldId = FieldId(2);
const WAIT_MS: u32 = 30_000;

/// A node with shards, and a client of its ordered reads.
struct World {
    served: ServedNode,
    reads: ShardsClient<Channel>,
    log: Arc<dyn ChangeLog>,
    data: tempfile::TempDir,
}

impl World {
    async fn start() -> Self {
        let log: Arc<dyn ChangeLog> = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
        let data = tempfile::tempdir().unwrap();
        let (served, reads) = Self::serve(&log, data.path()).await;
        Self { served, reads, log, data }
    }

    async fn serve(log: &Arc<dyn ChangeLog>, data: &Path) -> (ServedNode, ShardsClient<Channel>) {
        let served = ServedNode::start(log, data).await;
        let address = format!("http://{}", served.address);
        let reads = ShardsClient::connect(address).await.unwrap();
        (served, reads)
    }

    /// Ends the node and starts another over the same log and shards.
    async fn restart(&mut self, store: &Store) {
        self.served.end().await;
        (self.served, self.reads) = Self::serve(&self.log, self.data.path()).await;
        self.served.replica(store.definition().store, is_caught_up).await;
    }

    async fn create(&self, key_type: KeyType, partitions: u32) -> Store {
        let spec = StoreSpec::documents("users", key_type)
            .partitions(partitions)
            .field("count", INT64)
            .field("name", FieldType::STRING);
        self.served.client().await.create_store(&spec).await.unwrap()
    }

    async fn get(&self, request: v1::GetDocumentsRequest) -> Result<v1::GetDocumentsResponse> {
        let answer = self.reads.clone().get_documents(request).await;
        answer.map(tonic::Response::into_inner).map_err(|status| error_of_status(&status))
    }

    /// Returns the pages of a scan, joined.
    async fn scan(&self, request: v1::ScanDocumentsRequest) -> Result<ScanResult> {
        let told = |status: tonic::Status| error_of_status(&status);
        let mut pages =
            self.reads.clone().scan_documents(request).await.map_err(told)?.into_inner();
        let mut result = ScanResult::default();
        while let Some(page) = pages.message().await.map_err(told)? {
            assert!(result.token.is_empty() || result.token == page.token, "it has moved");
            result.token = page.token;
            result.cursor = page.cursor;
            result.pages += 1;
            result.documents.extend(page.documents.into_iter().map(|document| {
                let (key, document) = document_of(document).unwrap();
                let count = document.value(COUNT).cloned();
                (key.as_bytes().to_vec(), count)
            }));
        }
        Ok(result)
    }
}

#[derive(Debug, Default)]
struct ScanResult {
    documents: Vec<(Vec<u8>, Option<Value>)>,
    token: Bytes,
    cursor: Bytes,
    pages: usize,
}

impl ScanResult {
    fn keys(&self) -> Vec<Vec<u8>> {
        self.documents.iter().map(|(key, _)| key.clone()).collect()
    }
}

fn after(token: &Token) -> Option<v1::ReadOptions> {
    let wait = v1::read_options::Wait::AfterToken(token.encode());
    Some(v1::ReadOptions { wait: Some(wait), wait_ms: WAIT_MS, age_ms_max: None })
}

fn get(keys: &[&[u8]], read: Option<v1::ReadOptions>) -> v1::GetDocumentsRequest {
    let keys = keys.iter().map(|key| Bytes::copy_from_slice(key)).collect();
    v1::GetDocumentsRequest { store: "users".into(), keys, fields: Vec::new(), read }
}

fn scan(read: Option<v1::ReadOptions>) -> v1::ScanDocumentsRequest {
    v1::ScanDocumentsRequest { store: "users".into(), read, ..v1::ScanDocumentsRequest::default() }
}

fn range(from: Option<(&[u8], bool)>, to: Option<(&[u8], bool)>) -> Option<Keys> {
    let bound = |(key, is_included): (&[u8], bool)| v1::Bound {
        key: Bytes::copy_from_slice(key),
        is_included,
    };
    Some(Keys::Range(v1::KeyRange { start: from.map(bound), end: to.map(bound) }))
}

async fn put(store: &Store, key: &str, count: i64) -> Token {
    store.upsert(key).set("count", count).set("name", key).send().await.unwrap().token
}

fn code(answer: Option<&Answer>) -> ErrorCode {
    let Some(Answer::Error(error)) = answer else { panic!("{answer:?}") };
    Error::from(error.clone()).code()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn get_answers_every_key_with_its_acknowledged_state() {
    let world = World::start().await;
    let store = world.create(KeyType::String, 4).await;
    let mut all = Token::new(store.definition().store);
    for (key, count) in [("ada", 1), ("bob", 2), ("", 3)] {
        all.merge(&put(&store, key, count).await).unwrap();
    }
    all.merge(&store.delete("bob").send().await.unwrap().token).unwrap();
    let keys: [&[u8]; 5] = [b"bob", b"ada", b"", b"nobody", b"ada"];
    let answer = world.get(get(&keys, after(&all))).await.unwrap();
    let found = |place: usize| match answer.found[place].answer.clone() {
        Some(Answer::Document(document)) => Some(document_of(document).unwrap()),
        Some(Answer::Absent(_)) => None,
        other => panic!("{other:?}"),
    };
    let count = |place| found(place).map(|(_, document)| document.value(COUNT).cloned());
    assert_eq!([count(0), count(3)], [None, None]);
    assert_eq!(count(1), Some(Some(Value::Int64(1))));
    assert_eq!(count(2), Some(Some(Value::Int64(3))));
    assert_eq!(found(1), found(4));
    assert_eq!(found(1).unwrap().0.as_bytes(), b"ada");
    let read = Token::decode(&answer.token).unwrap();
    assert!(all.positions.iter().all(|(at, written)| read.positions[at] >= *written));
    assert_eq!(answer.schema_version, 1);

    let some = v1::GetDocumentsRequest { fields: vec![NAME.0], ..get(&[b"ada"], None) };
    let answer = world.get(some).await.unwrap();
    let Some(Answer::Document(document)) = answer.found[0].answer.clone() else { panic!() };
    let (_, document) = document_of(document).unwrap();
    assert_eq!(document.value(NAME), Some(&Value::String("ada".into())));
    assert_eq!(document.cell(COUNT), None);

    let elsewhere = v1::GetDocumentsRequest { store: "nobody".into(), ..get(&[], None) };
    assert_eq!(world.get(elsewhere).await.unwrap_err().code(), ErrorCode::NotFound);
    let mut broken = after(&all).unwrap();
    broken.wait = Some(v1::read_options::Wait::AfterToken(Bytes::from_static(b"no token")));
    let error = world.get(get(&[b"ada"], Some(broken))).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_keys_are_refused_one_by_one() {
    let world = World::start().await;
    let store = world.create(KeyType::Int64, 2).await;
    let token = store.upsert(7_i64).set("count", 7_i64).send().await.unwrap().token;
    let seven = 7_i64.to_le_bytes();
    let answer = world.get(get(&[b"short", &seven], after(&token))).await.unwrap();
    assert_eq!(code(answer.found[0].answer.as_ref()), ErrorCode::InvalidArgument);
    assert!(matches!(answer.found[1].answer, Some(Answer::Document(_))));
    let prefixed =
        v1::ScanDocumentsRequest { keys: Some(Keys::Prefix(vec![1].into())), ..scan(None) };
    for (request, wanted) in [
        (prefixed, ErrorCode::InvalidArgument),
        (v1::ScanDocumentsRequest { partition: 2, ..scan(None) }, ErrorCode::InvalidArgument),
        (
            v1::ScanDocumentsRequest { keys: range(Some((b"x", true)), None), ..scan(None) },
            ErrorCode::InvalidArgument,
        ),
        (
            v1::ScanDocumentsRequest { cursor: b"none".as_slice().into(), ..scan(None) },
            ErrorCode::InvalidArgument,
        ),
        (v1::ScanDocumentsRequest { store: "nobody".into(), ..scan(None) }, ErrorCode::NotFound),
    ] {
        let error = world.scan(request).await.unwrap_err();
        assert_eq!(error.code(), wanted, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scan_is_in_key_order_in_both_directions() {
    let world = World::start().await;
    let store = world.create(KeyType::Int64, 1).await;
    let (mut model, mut batch) = (BTreeMap::new(), store.batch());
    for number in -1_500_i64..1_500 {
        let key = number.wrapping_mul(0x2545_f491_4f6c_dd1d);
        batch.add(store.upsert(key).set("count", number)).unwrap();
        model.insert(key, number);
    }
    let token = batch.send().await.unwrap().token;
    let read = after(&token);
    let sorted = |from: i64, to: i64| -> Vec<_> {
        let within = model.range(from..to);
        let told =
            |(key, count): (&i64, &i64)| (key.to_le_bytes().to_vec(), Some(Value::Int64(*count)));
        within.map(told).collect()
    };
    let all = world.scan(scan(read.clone())).await.unwrap();
    assert_eq!(all.documents.len(), model.len());
    assert_eq!(all.documents[..model.len() - 1], sorted(i64::MIN, i64::MAX)[..model.len() - 1]);
    assert!(all.cursor.is_empty());
    for (from, to) in [(-(1 << 60), 1 << 61), (0, i64::MAX), (5, 5)] {
        let ends = [from, to].map(i64::to_le_bytes);
        let keys = range(Some((&ends[0], true)), Some((&ends[1], false)));
        let request = v1::ScanDocumentsRequest { keys, ..scan(read.clone()) };
        let forward = world.scan(request.clone()).await.unwrap();
        assert_eq!(forward.documents, sorted(from, to));
        let mut backward =
            world.scan(v1::ScanDocumentsRequest { is_reverse: true, ..request }).await.unwrap();
        backward.documents.reverse();
        assert_eq!(backward.documents, forward.documents);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scan_continues_at_its_position_while_the_store_changes() {
    let mut world = World::start().await;
    let store = world.create(KeyType::String, 1).await;
    for number in 0..20 {
        put(&store, &format!("a{number:02}"), number).await;
    }
    let token = put(&store, "b", 0).await;
    let keys = Some(Keys::Prefix(Bytes::from_static(b"a")));
    let request = v1::ScanDocumentsRequest { keys, documents_max: 5, ..scan(after(&token)) };
    let first = world.scan(request.clone()).await.unwrap();
    assert_eq!(first.keys(), (0..5).map(|n| format!("a{n:02}").into_bytes()).collect::<Vec<_>>());
    store.delete("a07").send().await.unwrap();
    put(&store, "a05x", 1).await;
    let changed = put(&store, "a06", -1).await;

    let rest = v1::ScanDocumentsRequest {
        documents_max: 0,
        cursor: first.cursor.clone(),
        ..request.clone()
    };
    let second = world.scan(rest.clone()).await.unwrap();
    assert_eq!(second.token, first.token);
    assert_eq!(second.keys(), (5..20).map(|n| format!("a{n:02}").into_bytes()).collect::<Vec<_>>());
    assert_eq!(second.documents[1].1, Some(Value::Int64(6)));
    assert!(second.cursor.is_empty());
    // A scan that was read to its end has no retained view.
    assert_eq!(world.scan(rest).await.unwrap_err().code(), ErrorCode::TokenLost);

    let first = world.scan(request.clone()).await.unwrap();
    let other = v1::ScanDocumentsRequest {
        is_reverse: true,
        cursor: first.cursor.clone(),
        ..request.clone()
    };
    assert_eq!(world.scan(other).await.unwrap_err().code(), ErrorCode::InvalidArgument);
    world.restart(&store).await;
    let rest = v1::ScanDocumentsRequest { documents_max: 0, cursor: first.cursor, ..request };
    assert_eq!(world.scan(rest.clone()).await.unwrap_err().code(), ErrorCode::TokenLost);
    let moved =
        v1::ScanDocumentsRequest { allow_snapshot_change: true, read: after(&changed), ..rest };
    let moved = world.scan(moved).await.unwrap();
    let names: Vec<_> =
        moved.keys().iter().map(|k| String::from_utf8_lossy(k).into_owned()).collect();
    assert_eq!(names[..4], ["a05", "a05x", "a06", "a08"]);
    assert_eq!(moved.documents[2].1, Some(Value::Int64(-1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_scan_is_paged_and_skips_expired_documents() {
    let world = World::start().await;
    let store = world.create(KeyType::Int64, 1).await;
    let name = "n".repeat(1_000);
    let (documents, mut token) = (4_000_i64, None);
    for first in (0..documents).step_by(1_000) {
        let mut batch = store.batch();
        for key in first..first + 1_000 {
            batch.add(store.upsert(key).set("count", key).set("name", name.as_str())).unwrap();
        }
        token = Some(batch.send().await.unwrap().token);
    }
    let ttl = Duration::from_millis(1);
    let gone = store.upsert(17_i64).set("count", 0_i64).ttl(ttl).send().await.unwrap();
    token.as_mut().unwrap().merge(&gone.token).unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let all = world.scan(scan(after(&token.unwrap()))).await.unwrap();
    let wanted: Vec<_> = (0..documents).filter(|key| *key != 17).collect();
    let keys = all.keys().into_iter().map(|key| i64::from_le_bytes(key.try_into().unwrap()));
    assert_eq!(keys.collect::<Vec<_>>(), wanted);
    assert!(all.pages > 2, "{} pages", all.pages);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_value_store_is_ordered_over_arbitrary_bytes() {
    let world = World::start().await;
    let spec = StoreSpec::key_value("users", KeyType::Bytes).partitions(1);
    let store = world.served.client().await.create_store(&spec).await.unwrap();
    let keys: [&[u8]; 6] = [b"", b"\0", b"\0\0", b"\x01", b"\xff", b"\xff\xff"];
    for key in keys.iter().rev() {
        store.put_value(*key, key.to_vec()).send().await.unwrap();
    }
    let token = store.delete(&b"\x01"[..]).send().await.unwrap().token;
    let all = world.scan(scan(after(&token))).await.unwrap();
    let left = keys.iter().filter(|key| **key != b"\x01").map(|key| key.to_vec());
    assert_eq!(all.keys(), left.collect::<Vec<_>>());
    let request = v1::ScanDocumentsRequest {
        keys: range(Some((b"\0", false)), Some((b"\xff", true))),
        is_reverse: true,
        documents_max: 2,
        ..scan(None)
    };
    let two = world.scan(request).await.unwrap();
    assert_eq!(two.keys(), [b"\xff".to_vec(), b"\0\0".to_vec()]);
    assert!(!two.cursor.is_empty(), "there may be more");
}
