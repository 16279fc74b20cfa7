//! A store's topic is deleted by somebody else. Calls end with typed errors, local data turns
//! stale, and the node's next start recreates the topic. Afterwards nothing wrong is served, and
//! old tokens answer `TokenLost`. The control log is a separate topic and stays.

use std::time::Duration;

use forebay::writes::Token;
use forebay::{Client, ClientOptions, ErrorCode, Reader, ReaderOptions, Store};

use crate::daemon::{LONG, count_of, counts};
use crate::world::{HEARTBEATS_TWO, World, eventually};

const OLD: i64 = 1;
const NEW: i64 = 2;

/// A reader that holds a document, and the document's token.
struct DocumentHolder {
    store: Store,
    reader: Reader,
    token: Token,
}

async fn open_holder(address: &str) -> DocumentHolder {
    let client = Client::connect(address, ClientOptions::default()).await.unwrap();
    let store = client.create_store(&counts()).await.unwrap();
    let reader = Reader::open(address, ReaderOptions::new("counts")).await.unwrap();
    reader.await_ready(LONG).await.unwrap();
    let mut token = None;
    for _ in 0..5 {
        token = Some(store.upsert(OLD).increment("count", 1).send().await.unwrap().token);
    }
    let token = token.unwrap();
    reader.await_token(&token, LONG).await.unwrap();
    DocumentHolder { store, reader, token }
}

/// Writes once, with as many attempts as needed; asserts that each failed attempt ends with a typed
/// error.
async fn written_once(store: &Store, key: i64) -> Token {
    let write = store.upsert(key).increment("count", 1).deadline(Duration::from_secs(5));
    let mut sent = write.send().await.map(|outcome| outcome.token);
    let retries = async {
        loop {
            let error = match sent {
                Ok(token) => return token,
                Err(error) => error,
            };
            let typed = [
                ErrorCode::UnknownOutcome,
                ErrorCode::Unavailable,
                ErrorCode::NotFound,
                ErrorCode::TokenLost,
            ];
            assert!(typed.contains(&error.code()), "{}", error.error());
            tokio::time::sleep(Duration::from_millis(200)).await;
            sent = match error.into_pending() {
                Some(pending) => retried(pending).await,
                None => {
                    let write = store.upsert(key).increment("count", 1);
                    write.send().await.map(|outcome| outcome.token)
                }
            };
        }
    };
    tokio::time::timeout(LONG, retries).await.unwrap()
}

async fn retried(
    pending: forebay::writes::PendingWrite,
) -> Result<Token, forebay::writes::WriteError> {
    let outcome = pending.retry().await?;
    let token = outcome.token.clone();
    outcome.require_complete()?;
    Ok(token)
}

/// Asserts the state after the topic was recreated: its former content is gone, and this is
/// reported.
async fn check_after(holder: &DocumentHolder) {
    for key in [OLD, NEW] {
        let token = written_once(&holder.store, key).await;
        holder.reader.await_token(&token, LONG).await.unwrap();
        assert_eq!(count_of(&holder.reader, key), Some(1), "key {key}");
    }
    let lost = holder.reader.await_token(&holder.token, LONG).await.unwrap_err();
    assert_eq!(lost.code(), ErrorCode::TokenLost, "{lost}");
    eventually("a fresh answer", || {
        let read = holder.reader.read_local(Some(HEARTBEATS_TWO), |view| view.get_document(NEW));
        read.is_ok_and(|document| document.is_some())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topic_recreated_under_a_running_node_is_another_log() {
    let world = World::new("remade");
    let daemon = world.forebayd("127.0.0.1:0");
    let holder = open_holder(&daemon.address).await;
    let topic = world.topic(holder.store.definition().store);
    world.delete_topic(&topic).await;
    world.make_topic(&topic, counts().partitions, &[]).await;
    check_after(&holder).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_topic_fails_calls_and_is_recreated_at_the_next_start() {
    let world = World::new("deleted");
    let daemon = world.forebayd("127.0.0.1:0");
    let holder = open_holder(&daemon.address).await;
    world.delete_topic(&world.topic(holder.store.definition().store)).await;
    // Local data is served with its age, and refused once the age exceeds the bound.
    eventually("a stale reader", || {
        let read = holder.reader.read_local(Some(HEARTBEATS_TWO), |view| view.get_document(OLD));
        read.is_err_and(|error| error.code() == ErrorCode::Stale)
    })
    .await;
    assert_eq!(count_of(&holder.reader, OLD), Some(5));
    // For some seconds the error is retryable, because the broker might just have started.
    let write = holder.store.upsert(OLD).increment("count", 1).deadline(LONG);
    let error = write.send().await.unwrap_err();
    assert!(error.error().to_string().contains("there is no log"), "{}", error.error());
    let address = daemon.kill();
    let _daemon = world.forebayd(&address);
    check_after(&holder).await;
}
