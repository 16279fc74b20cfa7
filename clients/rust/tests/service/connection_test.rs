//! A connection ends with its last user: a process that connects again and again exhausts no
//! resource.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use forebay::reads::ReadOptions;
use forebay::{Client, ClientOptions};

use crate::world::{PATIENCE, World, counters};

/// State of an established connection in `/proc/net/tcp`.
const ESTABLISHED: &str = "01";

/// Returns the number of this machine's connections to an address.
fn connections_to(address: SocketAddr) -> usize {
    let SocketAddr::V4(address) = address else { panic!("{address} is no loopback address") };
    let host = u32::from_le_bytes(address.ip().octets());
    let remote = format!("{host:08X}:{:04X}", address.port());
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let is_one = |line: &&str| {
        let mut words = line.split_whitespace().skip(2);
        words.next() == Some(&remote) && words.next() == Some(ESTABLISHED)
    };
    table.lines().filter(is_one).count()
}

#[tokio::test]
async fn connection_ends_with_its_client_stores_and_readers() {
    let world = World::start().await;
    let address = world.endpoint().parse().unwrap();
    let store = counters(&world.client().await, 2).await;
    assert_eq!(connections_to(address), 1);
    for _ in 0..5 {
        let options = ClientOptions::default();
        let client = Client::connect(&world.endpoint(), options).await.unwrap();
        let own_store = client.store("counters").await.unwrap();
        let write = own_store.upsert("u1").set("n", 1_i64).send().await.unwrap();
        let after = ReadOptions::after(write.token, PATIENCE);
        assert!(own_store.ordered().unwrap().get(&after, "u1").await.unwrap().is_some());
        let reader = world.reader("counters").await;
        reader.close(PATIENCE).await.unwrap();
        // A handle alone keeps its connection open.
        drop(client);
        own_store.upsert("u1").set("n", 2_i64).send().await.unwrap();
    }
    let connections_ended = async {
        while connections_to(address) > 1 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let outcome = tokio::time::timeout(PATIENCE, connections_ended).await;
    assert!(outcome.is_ok(), "{} connections are left", connections_to(address));
    store.upsert("u1").set("n", 3_i64).send().await.unwrap();
}
