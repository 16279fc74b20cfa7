//! The source of copies: freezes shards, retains them while they are read, and streams their
//! content.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::entropy::Entropy;
use forebay_core::id::{PartitionId, StoreId};
use forebay_core::limits::{
    COPIES_MAX, COPY_LEASE_MS, COPY_MESSAGE_BYTES_MAX, COPY_RANGES_MAX, MESSAGE_BYTES_MAX,
};
use forebay_core::{Error, ErrorCode, Result};
use forebay_shard::{Export, ExportMode, Shard};
use forebay_tasks::run_blocking;
use forebay_wire::shard_copy::RowsBlock;
use forebay_wire::status::status_of_error;
use forebay_wire::v1;
use forebay_wire::v1::shard_copies_server::{ShardCopies, ShardCopiesServer};
use futures::stream::{BoxStream, StreamExt};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use tracing::{info, warn};

use super::stream::{Compression, read_range};

/// Number of blocks that wait to be sent, for each stream.
const BLOCKS_WAITING: usize = 2;
/// Time between two sweeps of unused frozen shards.
const SWEEP_EVERY: Duration = Duration::from_secs(30);

/// Largest burst, in KiB.
const BURST_KIB: u32 = 4 << 10;

/// Lookup of the shards that may be copied.
#[tonic::async_trait]
pub trait FindShard: Send + Sync + 'static {
    /// Returns the shard of a partition of the store of this name. `storage_id` is that of a
    /// version of the documents; `None` selects the version that answers reads.
    ///
    /// # Errors
    /// `NotFound` if the store does not exist, `Unavailable` if the shard is not in this process.
    async fn find(
        &self,
        store: &str,
        storage_id: Option<StoreId>,
        partition: PartitionId,
    ) -> Result<Arc<Shard>>;
}

/// Service that lets others copy shards. Cheap to clone.
#[derive(Clone)]
pub struct CopySource(Arc<Inner>);

struct Inner {
    shards: Arc<dyn FindShard>,
    /// Folder of the frozen shards.
    dir: PathBuf,
    entropy: Arc<dyn Entropy>,
    /// The open frozen shards, by the ids of their copies; locked while a shard is frozen, opened
    /// or removed.
    frozen: tokio::sync::Mutex<BTreeMap<u64, Arc<FrozenExport>>>,
    /// The rate limit of all copies together.
    throttle: Arc<Throttle>,
}

struct FrozenExport {
    export: Export,
    used: Mutex<Instant>,
    /// The rate limit of this copy's streams, with the most recently requested bound.
    throttle: Mutex<(u64, Arc<Throttle>)>,
}

impl FrozenExport {
    fn new(export: Export) -> Arc<Self> {
        let throttle = Mutex::new((0, Arc::new(Throttle::new(0))));
        Arc::new(Self { export, used: Mutex::new(Instant::now()), throttle })
    }

    fn touch(&self) {
        *self.used.lock() = Instant::now();
    }

    fn throttle(&self, bytes_per_second: u64) -> Arc<Throttle> {
        let mut throttle = self.throttle.lock();
        if throttle.0 != bytes_per_second {
            *throttle = (bytes_per_second, Arc::new(Throttle::new(bytes_per_second)));
        }
        Arc::clone(&throttle.1)
    }

    fn is_unused(&self) -> bool {
        self.used.lock().elapsed() > Duration::from_millis(COPY_LEASE_MS)
    }
}

/// The content of a range, as a stream of messages.
type RangeStream = BoxStream<'static, Result<v1::CopyRowsResponse, Status>>;

impl CopySource {
    /// Creates the source of copies of these shards. The source freezes shards in `dir`, which is
    /// on their own disk, and limits all copies together to `bytes_per_second`; 0: no limit. A task
    /// on the current runtime removes unused frozen shards while a clone of the source lives.
    pub fn start(
        shards: Arc<dyn FindShard>,
        dir: PathBuf,
        entropy: Arc<dyn Entropy>,
        bytes_per_second: u64,
    ) -> Self {
        let throttle = Arc::new(Throttle::new(bytes_per_second));
        let inner = Arc::new(Inner { shards, dir, entropy, frozen: Default::default(), throttle });
        let swept = Arc::downgrade(&inner);
        tokio::spawn(async move {
            while let Some(inner) = swept.upgrade() {
                inner.sweep().await;
                drop(inner);
                tokio::time::sleep(SWEEP_EVERY).await;
            }
        });
        Self(inner)
    }

    /// Returns the service for a server, with Forebay's message limits.
    pub fn into_server(self) -> ShardCopiesServer<Self> {
        ShardCopiesServer::new(self)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(COPY_MESSAGE_BYTES_MAX)
    }
}

impl Inner {
    fn path(&self, id: u64) -> PathBuf {
        self.dir.join(format!("{id:016x}"))
    }

    async fn begin(&self, request: v1::BeginCopyRequest) -> Result<v1::CopyPlan> {
        let mut frozen = self.frozen.lock().await;
        match self.find(&mut frozen, request.copy_id).await {
            Ok(found) => return Ok(found.export.plan().clone()),
            Err(error) if error.code() == ErrorCode::NotFound => {}
            Err(error) => return Err(error),
        }
        if frozen.len() >= COPIES_MAX {
            let advice = "too many copies run at once; end one, or wait until one has ended";
            let (limit, actual) = (COPIES_MAX as u64, frozen.len() as u64 + 1);
            return Err(Error::limit_exceeded(advice, limit, actual));
        }
        let mode = mode_of(&request)?;
        let (storage_id, partition) =
            (request.storage_id.map(StoreId), PartitionId(request.partition));
        let shard = self.shards.find(&request.store, storage_id, partition).await?;
        let id = self.entropy.next_u64()?.max(1);
        let path = self.path(id);
        let store = request.store;
        let freezing = move || Export::create(&shard, &store, &path, id, mode);
        let export = run_blocking(freezing).await?;
        let plan = export.plan().clone();
        frozen.insert(id, FrozenExport::new(export));
        Ok(plan)
    }

    /// Returns the frozen shard of a copy, even if an earlier process has frozen it.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    async fn find(
        &self,
        frozen: &mut BTreeMap<u64, Arc<FrozenExport>>,
        id: u64,
    ) -> Result<Arc<FrozenExport>> {
        if let Some(found) = frozen.get(&id) {
            found.touch();
            return Ok(Arc::clone(found));
        }
        let path = self.path(id);
        let found = FrozenExport::new(run_blocking(move || Export::open(&path)).await?);
        frozen.insert(id, Arc::clone(&found));
        Ok(found)
    }

    async fn end(&self, frozen: &mut BTreeMap<u64, Arc<FrozenExport>>, id: u64) -> Result<()> {
        frozen.remove(&id);
        let path = self.path(id);
        run_blocking(move || Export::remove(&path)).await
    }

    /// Removes frozen shards that nobody has read for long, including those of earlier processes.
    async fn sweep(&self) {
        let mut frozen = self.frozen.lock().await;
        let Ok(names) = std::fs::read_dir(&self.dir) else { return };
        for path in names.flatten().map(|name| name.path()) {
            let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
            let Ok(id) = u64::from_str_radix(name, 16) else {
                // The lock excludes a freeze in progress, so a killed process has left this folder.
                drop(run_blocking(move || Export::remove(&path)).await);
                continue;
            };
            let is_unused = match frozen.get(&id) {
                Some(found) => found.is_unused(),
                // The shard is retained from now on, so that its copy can be resumed.
                None => self.find(&mut frozen, id).await.is_err(),
            };
            if !is_unused {
                continue;
            }
            info!(id, "frozen shard without a reader released");
            if let Err(error) = self.end(&mut frozen, id).await {
                warn!(id, %error, "frozen shard not released");
            }
        }
    }

    async fn rows_of(&self, request: v1::GetRowsRequest) -> Result<v1::GetRowsResponse> {
        let frozen = self.find(&mut *self.frozen.lock().await, request.copy_id).await?;
        let answer = run_blocking(move || read_rows_of(&frozen, &request.keys)).await?;
        let raw_bytes = answer.rows.as_ref().map_or(0, |rows| rows.raw_bytes as usize);
        self.throttle.wait_for(raw_bytes).await;
        Ok(answer)
    }

    async fn rows(&self, request: v1::CopyRowsRequest) -> Result<RangeStream> {
        let frozen = self.find(&mut *self.frozen.lock().await, request.copy_id).await?;
        let throttles = [Arc::clone(&self.throttle), frozen.throttle(request.bytes_per_second)];
        let (sender, receiver) = mpsc::channel(BLOCKS_WAITING);
        tokio::task::spawn_blocking(move || {
            let read = read_range(&frozen.export, &request, &sender, || frozen.touch());
            if let Err(error) = read {
                // If the receiver has gone, nobody needs the error.
                drop(sender.blocking_send(Err(status_of_error(&error))));
            }
        });
        let throttled = ReceiverStream::new(receiver).then(move |block| {
            let throttles = throttles.clone();
            async move {
                if let Ok(v1::CopyBlock { raw_bytes, .. }) = &block {
                    for throttle in &throttles {
                        throttle.wait_for(*raw_bytes as usize).await;
                    }
                }
                block.map(|block| v1::CopyRowsResponse { block: Some(block) })
            }
        });
        Ok(throttled.boxed())
    }
}

/// Reads the rows of some keys.
fn read_rows_of(frozen: &FrozenExport, keys: &[Bytes]) -> Result<v1::GetRowsResponse> {
    let mut block = RowsBlock::default();
    let answered = frozen.export.rows_of(keys, &mut block)?;
    frozen.touch();
    let raw_bytes = block.bytes().len() as u32;
    let packed = Compression::default().pack(block.into_bytes());
    let rows =
        v1::CopyBlock { crc32c: crc32c::crc32c(&packed), block: packed, raw_bytes, part_end: None };
    Ok(v1::GetRowsResponse { keys: answered as u32, rows: Some(rows) })
}

/// # Errors
/// `Unsupported` for a mode that this build does not know.
fn mode_of(request: &v1::BeginCopyRequest) -> Result<ExportMode> {
    match v1::CopyMode::try_from(request.mode) {
        Ok(v1::CopyMode::Unspecified | v1::CopyMode::Rows) => {
            Ok(ExportMode::Rows { ranges_max: COPY_RANGES_MAX })
        }
        Ok(v1::CopyMode::Files) => Ok(ExportMode::Files),
        Err(_) => Err(Error::unsupported(
            "the source does not know this mode of a copy; upgrade the source",
        )),
    }
}

#[tonic::async_trait]
impl ShardCopies for CopySource {
    type CopyRowsStream = RangeStream;

    async fn begin_copy(
        &self,
        request: Request<v1::BeginCopyRequest>,
    ) -> Result<Response<v1::BeginCopyResponse>, Status> {
        let begun = self.0.begin(request.into_inner()).await;
        let begun = begun.map(|plan| Response::new(v1::BeginCopyResponse { plan: Some(plan) }));
        begun.map_err(|error| status_of_error(&error))
    }

    async fn copy_rows(
        &self,
        request: Request<v1::CopyRowsRequest>,
    ) -> Result<Response<Self::CopyRowsStream>, Status> {
        let rows = self.0.rows(request.into_inner()).await;
        rows.map(Response::new).map_err(|error| status_of_error(&error))
    }

    async fn get_rows(
        &self,
        request: Request<v1::GetRowsRequest>,
    ) -> Result<Response<v1::GetRowsResponse>, Status> {
        let rows = self.0.rows_of(request.into_inner()).await;
        rows.map(Response::new).map_err(|error| status_of_error(&error))
    }

    async fn end_copy(
        &self,
        request: Request<v1::EndCopyRequest>,
    ) -> Result<Response<v1::EndCopyResponse>, Status> {
        let mut frozen = self.0.frozen.lock().await;
        let ended = self.0.end(&mut frozen, request.into_inner().copy_id).await;
        let ended = ended.map(|()| Response::new(v1::EndCopyResponse {}));
        ended.map_err(|error| status_of_error(&error))
    }
}

/// Limiter of bytes per second; `None` has no limit.
struct Throttle(Option<DefaultDirectRateLimiter>);

impl Throttle {
    /// Creates a limiter with this bound; 0: no limit. The limiter counts in KiB.
    fn new(bytes_per_second: u64) -> Self {
        let kib = u32::try_from(bytes_per_second.div_ceil(1_024)).unwrap_or(u32::MAX);
        let burst = NonZeroU32::MIN.saturating_add(BURST_KIB - 1);
        let quota = NonZeroU32::new(kib).map(|kib| Quota::per_second(kib).allow_burst(burst));
        Self(quota.map(RateLimiter::direct))
    }

    /// Waits until this many bytes may be sent.
    async fn wait_for(&self, bytes: usize) {
        let Some(limiter) = &self.0 else { return };
        let mut remaining_kib = u32::try_from(bytes.div_ceil(1_024)).unwrap_or(u32::MAX);
        while let Some(kib) = NonZeroU32::new(remaining_kib.min(BURST_KIB)) {
            // The request never exceeds the burst, so the limiter never refuses it.
            let _ = limiter.until_n_ready(kib).await;
            remaining_kib -= kib.get();
        }
    }
}
