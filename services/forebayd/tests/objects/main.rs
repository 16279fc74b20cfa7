//! Nodes and readers as processes, on a real object store: over a bad connection, with wrong
//! listings, with readers that are killed while they fetch, and with starts during an outage.

mod bad_way;
#[path = "../daemon/mod.rs"]
mod daemon;
mod killed_readers;
mod start;
#[path = "../users/mod.rs"]
mod users;
mod wrong_lists;

use std::path::PathBuf;
use std::sync::OnceLock;

use forebay::reads::SnapshotStore;
use forebay::{Client, ClientOptions, Store};
use forebay_testkit::object_proxy::ObjectProxy;
use forebay_testkit::object_servers::{ObjectServer, ObjectServerKind};

use crate::daemon::Daemon;

/// The server of all tests; each test has its own bucket and its own connection.
fn server() -> &'static ObjectServer {
    static SERVER: OnceLock<ObjectServer> = OnceLock::new();
    SERVER.get_or_init(|| ObjectServer::start(ObjectServerKind::S3).unwrap())
}

/// Folder of a node, and the folders in an object store that the node reaches through a proxy.
struct World {
    way: ObjectProxy,
    snapshots: String,
    backups: String,
    folder: tempfile::TempDir,
}

impl World {
    fn new(bucket: &str) -> Self {
        let snapshots = server().make_bucket(bucket).unwrap();
        let backups = format!("s3://{bucket}/backups");
        let way = ObjectProxy::start(server()).unwrap();
        Self { way, snapshots, backups, folder: tempfile::tempdir().unwrap() }
    }

    /// Starts the node as a process that builds a snapshot each second.
    fn start(&self, listen: &str) -> Daemon {
        let every = ["--snapshots", &self.snapshots, "--snapshot-interval", "1s"];
        self.start_with(&[&every[..], &["--backups", &self.backups]].concat(), listen)
    }

    /// Starts the node with these additional arguments.
    fn start_with(&self, more: &[&str], listen: &str) -> Daemon {
        let data = self.data();
        let own = ["--data-dir", data.to_str().unwrap(), "--durability", "buffered"];
        Daemon::start_with(&[&own[..], more].concat(), &self.way.options(), listen)
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Returns the snapshots through the node's proxy.
    fn by_the_way(&self) -> SnapshotStore {
        SnapshotStore::open_with(&self.snapshots, self.way.options()).unwrap()
    }

    /// Returns the snapshots without the proxy.
    fn straight(&self) -> SnapshotStore {
        SnapshotStore::open_with(&self.snapshots, server().options()).unwrap()
    }
}

async fn client(address: &str) -> Client {
    Client::connect(address, ClientOptions::default()).await.unwrap()
}

/// Reads all chunks of all published snapshots.
async fn assert_all_is_whole(snapshots: &SnapshotStore, store: &Store) {
    for at in users::partitions(store) {
        let of = snapshots.partition(at);
        for listed in of.list().await.unwrap().into_iter().filter(|listed| listed.counts()) {
            for chunk in of.read(listed.name).await.unwrap().chunks() {
                of.chunk(*chunk).await.unwrap();
            }
        }
    }
}
