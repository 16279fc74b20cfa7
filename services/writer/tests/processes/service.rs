//! The services as separate processes.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use forebay::schema::{FieldType, KeyType, StoreSpec};
use forebay::{Client, ClientOptions};
use forebay_testkit::brokers::Brokers;
use forebay_testkit::tree;
use tempfile::TempDir;

pub const WRITER: &str = env!("CARGO_BIN_EXE_forebay-writer");
pub const LONG: Duration = Duration::from_secs(60);

static BROKERS: OnceLock<Brokers> = OnceLock::new();

pub fn brokers() -> String {
    BROKERS.get_or_init(|| Brokers::start(1).unwrap()).bootstrap()
}

/// Returns the path of the replicator, which Cargo builds with the tests of its own package.
pub fn replicator() -> PathBuf {
    tree::built("forebay-replicator").unwrap()
}

/// A running service; dropped services are killed.
pub struct Service {
    child: Child,
    pub address: String,
    /// The folder of the service's shards; `None` for a writer.
    data: Option<TempDir>,
}

impl Service {
    pub fn start(program: PathBuf, arguments: &[&str]) -> Self {
        let mut child = Command::new(&program)
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let address = first.trim().split_once(" ready http://").map(|(_, address)| address);
        let address = address.unwrap_or_else(|| panic!("no greeting, but {first:?}")).to_owned();
        Self { child, address, data: None }
    }

    pub fn replicator(prefix: &str, listen: &str) -> Self {
        Self::replicator_in(tempfile::tempdir().unwrap(), prefix, listen)
    }

    /// Starts a replicator with additional settings.
    pub fn replicator_with(prefix: &str, more_arguments: &[&str]) -> Self {
        Self::replicator_of(tempfile::tempdir().unwrap(), prefix, "127.0.0.1:0", more_arguments)
    }

    /// Starts a replicator over these shards.
    pub fn replicator_in(data: TempDir, prefix: &str, listen: &str) -> Self {
        Self::replicator_of(data, prefix, listen, &[])
    }

    fn replicator_of(data: TempDir, prefix: &str, listen: &str, more_arguments: &[&str]) -> Self {
        let own_arguments = ["--listen", listen, "--data-dir", data.path().to_str().unwrap()];
        let brokers = brokers();
        let arguments = [&own_arguments[..], more_arguments, &on_kafka(prefix, &brokers)].concat();
        let mut started = Self::start(replicator(), &arguments);
        started.data = Some(data);
        started
    }

    /// Starts a features service over this data folder.
    pub fn features(prefix: &str, data: &Path) -> Self {
        let own_arguments = ["--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()];
        let brokers = brokers();
        let program = tree::built("forebay-features").unwrap();
        Self::start(program, &[&own_arguments[..], &on_kafka(prefix, &brokers)].concat())
    }

    pub fn writer(prefix: &str, listen: &str, replicator: &Self) -> Self {
        let own_arguments = ["--listen", listen, "--replicator", &replicator.address];
        Self::start(WRITER.into(), &[&own_arguments[..], &on_kafka(prefix, &brokers())].concat())
    }

    /// Kills a replicator and restarts it over its shards, at the same address.
    pub fn killed_and_back(mut self, prefix: &str) -> Self {
        let data = self.data.take().unwrap();
        let address = self.kill();
        Self::replicator_in(data, prefix, &address)
    }

    /// Kills the service as `kill -9` does; returns its address.
    pub fn kill(mut self) -> String {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.address.clone()
    }

    pub fn terminate(mut self) -> ExitStatus {
        self.signal("-TERM");
        self.child.wait().unwrap()
    }

    /// Stops the process with SIGSTOP: it answers nothing until it is thawed.
    pub fn freeze(&self) {
        self.signal("-STOP");
    }

    pub fn thaw(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn on_kafka<'a>(prefix: &'a str, brokers: &'a str) -> [&'a str; 5] {
    ["--dev", "--topic-prefix", prefix, "--brokers", brokers]
}

pub async fn client(address: &str) -> Client {
    let options = ClientOptions::default().deadline(LONG);
    Client::connect(address, options).await.unwrap()
}

pub fn spec() -> StoreSpec {
    StoreSpec::documents("counts", KeyType::Int64).partitions(2).field("count", FieldType::INT64)
}
