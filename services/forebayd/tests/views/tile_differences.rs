//! Proves that `view verify` finds and names tiles that differ from a replay of their log.

use std::path::Path;
use std::process::Command;

use forebay::schema::Value;
use forebay_core::clock::{Clock, SystemClock};
use forebay_core::fold::FoldEffects;
use forebay_core::id::{PartitionCount, PartitionId, PartitionRef};
use forebay_core::key::{Key, KeyType};
use forebay_core::key_order::{Direction, KeyOrder};
use forebay_shard::{Resources, Shard, ShardDirectory};

use crate::daemon::FOREBAYD;
use crate::{ViewClients, World, client, number, orders};

const USERS: i64 = 12;
const PARTITIONS: u32 = 4;
const VIEW: &str = "apiVersion: forebay/v1\nkind: FeatureView\nname: by_user\n\
                    source: orders\nentity: [key]\nallowed_lateness: 4h\n\
                    features: {orders: {count: '*'}, spent: {sum: price}}\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_with_differing_tiles_are_named() {
    let world = World::new();
    let daemon = world.start("127.0.0.1:0");
    let store = orders(&client(&daemon.address).await).await;
    let clients = ViewClients::at(&daemon.address);
    clients.apply(VIEW).await;
    // Each user has a different number of orders.
    let now = SystemClock.now().as_micros();
    let mut batch = store.batch();
    for user in 0..USERS {
        for _ in 0..=user {
            let event = store.insert(name(user).as_str()).set("at", Value::Timestamp(now));
            batch.add(event.set("price", 10 * user)).unwrap();
        }
    }
    batch.send().await.unwrap().require_complete().unwrap();
    await_orders(&clients, |user| user + 1).await;
    assert!(compared(&daemon.address).is_ok());
    daemon.terminate();

    let (one, other) = exchange_two_tiles(world.data());
    let daemon = world.start("127.0.0.1:0");
    let of_whom = |user| {
        if user == one {
            other
        } else if user == other {
            one
        } else {
            user
        }
    };
    await_orders(&ViewClients::at(&daemon.address), |user| of_whom(user) + 1).await;
    let said = compared(&daemon.address).unwrap_err();
    let (first, named) = said.split_once('\n').unwrap();
    assert_eq!(first, "12 groups, 24 values: 4 differ", "{said}");
    for (user, has) in [(one, other), (other, one)] {
        let of_user = |line: &&str| line.contains(&format!("\"{}\"", name(user)));
        let lines: Vec<_> = named.lines().filter(of_user).collect();
        let (orders, spent) = (format!("orders: {:?}", value(has + 1)), "spent: ");
        let [of_orders, of_spent] = lines[..] else { panic!("{said}") };
        assert!(of_orders.contains(&orders) && of_spent.contains(spent), "{said}");
        assert!(of_orders.ends_with(&format!("not {:?}", value(user + 1))), "{said}");
    }
    daemon.terminate();
}

fn name(user: i64) -> String {
    format!("user-{user:02}")
}

fn value(number: i64) -> Option<Value> {
    Some(Value::Int64(number))
}

/// Waits until each user has the expected number of orders.
async fn await_orders(clients: &ViewClients, of: impl Fn(i64) -> i64) {
    for user in 0..USERS {
        let has = |answer: &_| number(answer, "orders") == Some(of(user));
        clients.values_once("by_user", &[name(user).into()], has).await;
    }
}

/// Returns the output of `view verify`, as an error if it fails.
fn compared(address: &str) -> Result<String, String> {
    let verify = ["view", "verify", "by_user", "--node", address];
    let output = Command::new(FOREBAYD).args(verify).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    if output.status.success() { Ok(said) } else { Err(said) }
}

/// Exchanges the tiles of two groups of a partition on disk; returns the users of the groups.
fn exchange_two_tiles(data: &Path) -> (i64, i64) {
    let folder = data.join("features/tiles");
    let directory = ShardDirectory::new(folder, Resources::new(64 << 20).unwrap());
    let view = *directory.stores().unwrap().first().unwrap();
    let order = KeyOrder { primary: KeyType::Bytes, partition: None };
    for partition in (0..PARTITIONS).map(PartitionId) {
        let at = PartitionRef { store: view, partition };
        let restored = directory.resume(at, PartitionCount(PARTITIONS), order).unwrap();
        let (mut writer, restored) = restored.unwrap();
        let tiles = tiles(writer.shard(), order);
        let [(one, of_one), (other, of_other), ..] = &tiles[..] else { continue };
        let writes =
            vec![(one.clone(), Some(of_other.clone())), (other.clone(), Some(of_one.clone()))];
        let effects = FoldEffects { writes, ..FoldEffects::default() };
        writer.apply(&effects, &restored.state, restored.follow_state).unwrap();
        writer.shard().flush().unwrap();
        return (user_of(one), user_of(other));
    }
    panic!("no partition has two groups");
}

fn tiles(shard: &Shard, order: KeyOrder) -> Vec<(Key, Vec<u8>)> {
    let view = shard.view().unwrap();
    let mut rows = view.scan(&order.all(), Direction::Forward);
    let mut tiles = Vec::new();
    while let Some((key, row)) = rows.next().unwrap() {
        if key.as_bytes().starts_with(b"t") {
            tiles.push((key, row.to_vec()));
        }
    }
    tiles
}

/// Returns the user of a tile's key.
fn user_of(key: &Key) -> i64 {
    let is_in = |user: &i64| {
        let name = name(*user);
        key.as_bytes().windows(name.len()).any(|bytes| bytes == name.as_bytes())
    };
    (0..USERS).find(is_in).unwrap()
}
