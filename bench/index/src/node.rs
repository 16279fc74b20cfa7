//! A node with a filled store, for readers over files: `forebayd dev` in a separate process, and
//! the directory that all readers of a section share.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use forebay::reads::CheckpointOptions;
use forebay::schema::{KeyType, StoreId, StoreSpec};
use forebay::writes::StreamOptions;
use forebay::{Client, ClientOptions, ReaderOptions};
use forebay_core::id::PartitionId;
use forebay_index::SharedCopyDirectory;
use forebay_testkit::tree;
use tokio::runtime::{Builder, Runtime};

use crate::data::{Data, Keys, PARTITIONS, document_key};

/// Name of the store.
pub const STORE: &str = "read";
/// Variables with which a worker receives the node's address, and the readers' directory.
const ADDRESS: &str = "FOREBAY_NODE";
const DIRECTORY: &str = "FOREBAY_COPY";
/// Longest time to fill the store, or to follow it to its end.
pub const FILL_BOUND: Duration = Duration::from_secs(20 * 60);

/// A running node; dropping it kills the process and removes the readers' shared copies.
pub struct Node {
    process: Child,
    /// Output of the process, kept open so that the node can always write.
    _stdout: BufReader<ChildStdout>,
    place: Place,
    store: Option<StoreId>,
}

/// Address of the node, and the directory that its readers share.
#[derive(Clone, Debug)]
pub struct Place {
    /// Address of the node.
    pub address: String,
    /// Directory of the readers.
    pub directory: PathBuf,
}

impl Node {
    /// Starts a node in a folder, and fills its store.
    ///
    /// # Errors
    /// Fails if there is no `forebayd` next to this program, the node does not start, or a write is
    /// refused.
    pub fn start(folder: &Path, data: &Data) -> Result<Self, String> {
        let program = tree::built("forebayd")?;
        let mut command = Command::new(&program);
        command.args(["dev", "--listen", "127.0.0.1:0", "--durability", "buffered"]);
        command.arg("--data-dir").arg(folder.join("node")).env("FOREBAY_LOG_FILTER", "warn");
        let spawn_result = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut process =
            spawn_result.map_err(|error| format!("start {}: {error}", program.display()))?;
        let stdout = process.stdout.take().ok_or("forebayd has no standard output")?;
        let (mut stdout, mut greeting) = (BufReader::new(stdout), String::new());
        let _read = stdout.read_line(&mut greeting);
        let address = greeting.trim().strip_prefix("forebayd ready http://").unwrap_or("");
        let place = Place { address: address.to_owned(), directory: folder.join("copy") };
        let mut node = Self { process, _stdout: stdout, place, store: None };
        if node.place.address.is_empty() {
            return Err(format!("forebayd did not get ready; it printed {greeting:?}"));
        }
        node.store = Some(node.place.fill(data)?);
        Ok(node)
    }

    /// Passes the node's address and directory to a worker.
    pub fn tell(&self, command: &mut Command) {
        command.env(ADDRESS, &self.place.address).env(DIRECTORY, &self.place.directory);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if let Some(store) = self.store {
            self.place.forget_copies(store);
        }
    }
}

impl Place {
    /// Returns the address and directory that this worker received.
    ///
    /// # Errors
    /// Fails if the worker received none.
    pub fn told() -> Result<Self, String> {
        let word = |name: &str| env::var(name).map_err(|_| format!("{name} is not set"));
        Ok(Self { address: word(ADDRESS)?, directory: word(DIRECTORY)?.into() })
    }

    /// Returns the options of a reader that shares the directory, as by default.
    #[must_use]
    pub fn reader(&self) -> ReaderOptions {
        let checkpoint = Some(CheckpointOptions::new(&self.directory));
        ReaderOptions::new(STORE).checkpoint(checkpoint)
    }

    /// Removes the copies that readers share, as a restart of the machine does; checkpoints stay.
    pub fn forget_copies(&self, store: StoreId) {
        let partitions = (0..PARTITIONS).map(PartitionId);
        SharedCopyDirectory::new(&self.directory).remove(store, partitions);
    }

    /// Returns the current checkpoints.
    ///
    /// # Errors
    /// Fails if the directory cannot be read.
    pub fn checkpoints(&self) -> Result<Vec<PathBuf>, String> {
        let problem = |error| format!("list {}: {error}", self.directory.display());
        let entries = fs::read_dir(&self.directory).map_err(problem)?;
        let paths = entries.map(|entry| entry.map(|entry| entry.path()));
        let paths = paths.collect::<std::io::Result<Vec<_>>>().map_err(problem)?;
        let is_one =
            |path: &PathBuf| path.extension().is_some_and(|extension| extension == "checkpoint");
        Ok(paths.into_iter().filter(is_one).collect())
    }

    fn fill(&self, data: &Data) -> Result<StoreId, String> {
        runtime()?.block_on(self.try_fill(data)).map_err(|error| error.to_string())
    }

    async fn try_fill(&self, data: &Data) -> forebay::Result<StoreId> {
        let key_type = if data.keys == Keys::Int64 { KeyType::Int64 } else { KeyType::Bytes };
        let client = Client::connect(&self.address, ClientOptions::default()).await?;
        let spec = StoreSpec::key_value(STORE, key_type).partitions(PARTITIONS);
        let store = client.create_store(&spec).await?;
        let mut stream = store.write_stream(StreamOptions::default())?.deadline(FILL_BOUND);
        let mut value = Vec::new();
        for number in 0..data.entries {
            data.value(number, &mut value);
            let key = data.key(number);
            let write = store.put(document_key(data, &key)).set("value", value.as_slice());
            stream.send(write).await?;
        }
        stream.close().await?;
        Ok(store.definition().store)
    }
}

/// Creates a runtime for reads or writes over the network.
///
/// # Errors
/// Fails if the runtime cannot be created.
pub fn runtime() -> Result<Runtime, String> {
    let runtime_result = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime_result.map_err(|error| format!("make a runtime: {error}"))
}
