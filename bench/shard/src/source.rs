//! The source of copies: a shard with 16 random bytes of key and incompressible values, all in one
//! partition, written through a writer as users do and compacted, so that each copy finds the same
//! files.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay::reads::ReadOptions;
use forebay::schema::{KeyType, StoreSpec};
use forebay::writes::StreamOptions;
use forebay::{Client, ClientOptions, ErrorCode};
use forebay_bench_micro::server::{Log, Server};
use forebay_bench_micro::{Failure, disk_baseline};
use forebay_core::id::{PartitionCount, PartitionId, PartitionRef};
use forebay_core::key_order::{DOCUMENTS, KeyOrder};
use forebay_core::limits::COPY_RANGES_MAX;
use forebay_core::partition::xxh3_64;
use forebay_core::rows_digest::RowsDigest;
use forebay_core::schema::Definition;
use forebay_shard::{Export, ExportMode, Resources, ShardDirectory, ShardWriter};
use forebay_testkit::random::SeededRng;
use forebay_wire::shard_copy::{RowsBlock, block_rows};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Name of the store.
pub const STORE: &str = "shard";
/// Bytes of a key.
pub const KEY_BYTES: usize = 16;
/// Time limit of writing the shard, and of following the writes.
const FILL_BOUND: Duration = Duration::from_secs(40 * 60);
/// Block cache of a shard that is read in this process.
const MEMORY_BYTES: usize = 64 << 20;

/// A shard, and its node, which does not run between copies.
pub struct Source {
    /// Number of documents.
    pub rows: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Digest of the documents, which a copy must have. The shard's state of the log is not part of
    /// it, because that changes while the node runs.
    documents: RowsDigest,
    definition: Definition,
    shard: PathBuf,
    /// Data of the node; `None` while the node runs.
    data: RefCell<Option<TempDir>>,
}

impl Source {
    /// Writes a shard of `bytes` bytes of keys and values.
    ///
    /// # Errors
    /// Fails if the node does not start, or refuses a write.
    pub fn make(runtime: &Runtime, bytes: u64, value_bytes: usize) -> Result<Self, String> {
        let rows = bytes / (KEY_BYTES + value_bytes) as u64;
        let server = Server::start(Log::Buffered)?;
        let filling = fill(server.address(), rows, value_bytes);
        let definition = runtime.block_on(filling).map_err(|failure| failure.to_string())?;
        let data = server.stop()?;
        let shard = open(data.path(), &definition)?;
        shard.shard().flush().map_err(|error| error.to_string())?;
        shard.shard().compact();
        let documents = digest_of(&shard, &data.path().join("frozen"))?;
        let (shard, data) = (shard.shard().path().to_owned(), RefCell::new(Some(data)));
        Ok(Self { rows, value_bytes, documents, definition, shard, data })
    }

    /// Returns the bytes of the keys and values that users wrote.
    #[must_use]
    pub fn user_bytes(&self) -> f64 {
        self.rows as f64 * (KEY_BYTES + self.value_bytes) as f64
    }

    /// Returns the folder of the shard, for reading only, and not while the node runs.
    #[must_use]
    pub fn shard(&self) -> &Path {
        &self.shard
    }

    /// Runs the node for the duration of `run`.
    ///
    /// # Errors
    /// Fails if the node does not start or end; errors of `run`.
    pub fn serving<T>(&self, run: impl FnOnce(&Server) -> Result<T, String>) -> Result<T, String> {
        let data = self.data.borrow_mut().take().ok_or("the node runs already")?;
        let server = Server::start_on(data, Log::Buffered)?;
        let result = run(&server);
        let data = server.stop()?;
        self.data.borrow_mut().replace(data);
        result
    }

    /// Drops the shard's files from the page cache.
    ///
    /// # Errors
    /// Fails if the files cannot be read.
    pub fn forget_cached(&self) -> Result<(), String> {
        disk_baseline::forget_cached(&self.shard)
    }

    /// Opens a copy of the shard as a following node does, and reads a document.
    ///
    /// # Errors
    /// Fails if there is no copy, or it lacks the document.
    pub fn read_copy(&self, data: &Path) -> Result<(), String> {
        let copy = open(data, &self.definition)?;
        match copy.shard().row(&key(0)).map_err(|error| error.to_string())? {
            Some(row) if row.len() >= self.value_bytes => Ok(()),
            _ => Err("a copy without the first document".to_owned()),
        }
    }

    /// Compares the documents of a copy.
    ///
    /// # Errors
    /// Fails if the documents differ.
    pub fn check_copy(&self, data: &Path) -> Result<(), String> {
        let copy = open(data, &self.definition)?;
        match digest_of(&copy, &data.join("frozen"))? {
            documents if documents == self.documents => Ok(()),
            other => Err(format!("a copy of {other:?} where {:?} were", self.documents)),
        }
    }
}

async fn fill(address: &str, rows: u64, value_bytes: usize) -> Result<Definition, Failure> {
    let client = Client::connect(address, ClientOptions::default()).await?;
    let spec = StoreSpec::key_value(STORE, KeyType::Bytes).partitions(1);
    let store = client.create_store(&spec).await?;
    let mut stream = store.write_stream(StreamOptions::default())?.deadline(FILL_BOUND);
    let mut dice = SeededRng::new(rows);
    for number in 0..rows {
        let value = dice.noise(value_bytes);
        stream.send(store.put(&key(number)[..]).set("value", value)).await?;
    }
    let summary = stream.close().await?;
    if summary.failed > 0 {
        let (failed_writes, first) = (summary.failed, summary.first_error);
        return Err(format!("{failed_writes} of {rows} writes failed: {first:?}").into());
    }
    // The writer may be far ahead of the shard, and a single call waits no longer than its
    // deadline.
    let (read, ordered_reads) = (ReadOptions::after(summary.token, FILL_BOUND), store.ordered()?);
    let first = async {
        loop {
            match ordered_reads.get(&read, &key(0)[..]).await {
                Err(error) if error.code() == ErrorCode::DeadlineExceeded => {}
                found => return found,
            }
        }
    };
    match tokio::time::timeout(FILL_BOUND, first).await?? {
        Some(_) => Ok(store.definition().as_ref().clone()),
        None => Err("the shard lacks its first document".into()),
    }
}

/// Returns the key of a document: random, and different for each.
fn key(number: u64) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[8..].copy_from_slice(&number.to_le_bytes());
    let random = xxh3_64(&key);
    key[..8].copy_from_slice(&random.to_le_bytes());
    key
}

/// Returns the digest of a shard's documents, from an export in the folder `place`.
fn digest_of(shard: &ShardWriter, place: &Path) -> Result<RowsDigest, String> {
    let mode = ExportMode::Rows { ranges_max: COPY_RANGES_MAX };
    let digest = || {
        let export = Export::create(shard.shard(), STORE, place, 1, mode)?;
        let (mut documents, mut block) = (RowsDigest::default(), RowsBlock::default());
        for range in 0..export.plan().ranges.len() {
            let mut rows = export.rows(range, None)?;
            let mut is_range_end = false;
            while !is_range_end {
                block.clear();
                is_range_end = rows.next(&mut block)?.is_some_and(|end| end.is_range_end);
                for row in block_rows(block.bytes()) {
                    let (key, value) = row?;
                    if key.first() == Some(&DOCUMENTS) {
                        documents.add(key, value);
                    }
                }
            }
        }
        Export::remove(place)?;
        Ok(documents)
    };
    digest().map_err(|error: forebay::Error| error.to_string())
}

/// Opens the one shard of a node that does not run.
fn open(data: &Path, definition: &Definition) -> Result<ShardWriter, String> {
    let error_text = |error: forebay::Error| error.to_string();
    let resources = Resources::new(MEMORY_BYTES).map_err(error_text)?;
    let directory = ShardDirectory::new(data.join("shards"), resources);
    let at = PartitionRef { store: definition.store, partition: PartitionId(0) };
    let found =
        directory.resume(at, PartitionCount(1), KeyOrder::of(definition)).map_err(error_text)?;
    found.map(|(writer, _)| writer).ok_or_else(|| format!("no shard in {}", data.display()))
}
