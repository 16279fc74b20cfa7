//! Start and end of `forebayd dev --change-log kafka`: wrong brokers, wrong topics, SIGTERM.

use forebay::{Client, ClientOptions, Reader, ReaderOptions};

use crate::daemon::{LONG, count_of, counts, read_error};
use crate::world::World;

#[test]
fn unreachable_broker_ends_the_start_with_the_fix() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    drop(taken);
    let error = read_error(&[
        "dev",
        "--listen",
        "127.0.0.1:0",
        "--change-log",
        "kafka",
        "--brokers",
        &address,
    ]);
    assert!(error.contains("Unavailable") && error.contains("check that"), "{error}");
}

#[test]
fn kafka_without_brokers_is_refused_with_the_fix() {
    let error = read_error(&["dev", "--listen", "127.0.0.1:0", "--change-log", "kafka"]);
    assert!(error.contains("InvalidArgument") && error.contains("set --brokers"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compacted_topic_is_refused_with_the_setting_named() {
    let world = World::new("compacted");
    world.make_topic("compacted.control", 1, &[("cleanup.policy", "compact")]).await;
    let mut arguments = vec!["dev", "--listen", "127.0.0.1:0"];
    arguments.extend(world.arguments());
    let error = read_error(&arguments);
    assert!(error.contains("Unsupported") && error.contains("cleanup.policy"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_drains_and_the_next_start_recovers_everything() {
    let world = World::new("sigterm");
    let daemon = world.forebayd("127.0.0.1:0");
    let client = Client::connect(&daemon.address, ClientOptions::default()).await.unwrap();
    let store = client.create_store(&counts()).await.unwrap();
    let reader = Reader::open(&daemon.address, ReaderOptions::new("counts")).await.unwrap();
    reader.await_ready(LONG).await.unwrap();
    let token = store.upsert(1_i64).increment("count", 1).send().await.unwrap().token;
    let address = daemon.address.clone();
    let status = tokio::task::spawn_blocking(move || daemon.terminate());
    let status = tokio::time::timeout(LONG, status).await.unwrap().unwrap();
    assert!(status.success(), "{status}");
    let _daemon = world.forebayd(&address);
    reader.await_token(&token, LONG).await.unwrap();
    assert_eq!(count_of(&reader, 1), Some(1));
}
