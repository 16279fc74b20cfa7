//! The embedded reader over a connection: the reader follows the change stream, and appends
//! barriers through the writer.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use forebay_core::Result;
use forebay_core::row::Document;
use forebay_entries::CatalogFollower;
use forebay_index::DocumentKey;
use forebay_log::disk::RealDisk;
use forebay_log::{ChangeLog, RemoteLog};
use forebay_reader::{LogBarriers, ReadOptions, ReaderOptions, ReaderParts};
use futures::future::BoxFuture;
use tonic::transport::Channel;

use crate::connection::connect;
use crate::options::{ClientOptions, ClientParts};

/// A full copy of a store in this process: reads are local, and cost two memory accesses.
///
/// The reader derefs to [`forebay_reader::Reader`], which does the work; this type adds how a
/// reader is opened, and the reads of whole documents. A reader is cheap to clone and safe to share
/// between threads; dropping the last clone closes it.
///
/// ```no_run
/// use std::time::Duration;
/// use forebay::{Reader, ReaderOptions};
/// # async fn example() -> forebay::Result<()> {
/// let users = Reader::open("127.0.0.1:7070", ReaderOptions::new("users")).await?;
/// users.await_ready(Duration::from_secs(30)).await?;
/// let age = users.field("age")?;
/// println!("{:?}", users.get_scalar::<i64>(&age, "u1")?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Reader {
    replica: forebay_reader::Reader,
    is_in_memory: bool,
}

impl Reader {
    /// Connects to a node, for example `forebayd dev`, and starts to follow a store. Returns before
    /// anything is read: wait with [`forebay_reader::Reader::await_ready`].
    ///
    /// Readers of several stores share a connection if one [`Client`](crate::Client) opens them.
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid address, and the errors of
    /// [`forebay_reader::Reader::open`].
    pub async fn open(endpoint: &str, options: ReaderOptions) -> Result<Self> {
        let parts = ClientParts::default();
        let connection = ClientOptions::default().deadline(options.open_timeout);
        let endpoint = endpoint.to_owned();
        // The connection is established while local files are opened.
        let parts = Box::pin(async move {
            let injected = parts;
            let channel = connect(&endpoint, &connection, injected.entropy.as_ref()).await?;
            Ok(SharedSubscriptions::start(channel, &injected).reader_parts(&injected))
        });
        open(options, parts).await
    }

    pub(crate) fn over_memory(replica: forebay_reader::Reader) -> Self {
        Self { replica, is_in_memory: true }
    }

    /// Returns whether this is an in-memory reader. An in-memory reader needs no threads of a
    /// runtime, and its waits run on any runtime that has a timer.
    pub fn is_in_memory(&self) -> bool {
        self.is_in_memory
    }

    /// Returns the whole document, after the wait that `read` requests.
    ///
    /// # Errors
    /// Errors of [`forebay_reader::Reader::read`].
    pub async fn get_document_with<'k>(
        &self,
        read: &ReadOptions,
        key: impl Into<DocumentKey<'k>>,
    ) -> Result<Option<Document>> {
        let key = key.into();
        let partition = self.partition_of(key)?;
        self.read(read, &[partition], |view| view.get_document(key)).await
    }
}

impl Deref for Reader {
    type Target = forebay_reader::Reader;

    fn deref(&self) -> &Self::Target {
        &self.replica
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("store", &self.store()).finish_non_exhaustive()
    }
}

/// The subscriptions that the readers of one connection share: to the change stream and to the
/// catalog.
pub(crate) struct SharedSubscriptions {
    log: Arc<dyn ChangeLog>,
    catalog: Arc<CatalogFollower>,
    channel: Channel,
}

impl SharedSubscriptions {
    /// Starts to follow the control log, on the current runtime.
    pub(crate) fn start(channel: Channel, parts: &ClientParts) -> Self {
        let log: Arc<dyn ChangeLog> = Arc::new(RemoteLog::new(channel.clone()));
        let entropy = Arc::clone(&parts.entropy);
        let catalog = Arc::new(CatalogFollower::start(Arc::clone(&log), entropy));
        Self { log, catalog, channel }
    }

    /// Returns the parts of a reader.
    pub(crate) fn reader_parts(&self, parts: &ClientParts) -> ReaderParts {
        ReaderParts {
            log: Arc::clone(&self.log),
            catalog: Arc::clone(&self.catalog),
            clock: Arc::clone(&parts.clock),
            entropy: Arc::clone(&parts.entropy),
            barriers: Arc::new(LogBarriers(Arc::clone(&self.log))),
            disk: Some(Arc::new(RealDisk)),
            replicator: Some(self.channel.clone()),
        }
    }
}

/// Opens a reader whose parts may not be available yet.
pub(crate) async fn open(
    options: ReaderOptions,
    parts: BoxFuture<'static, Result<ReaderParts>>,
) -> Result<Reader> {
    let replica = forebay_reader::Reader::open_with(options, Some(Arc::new(RealDisk)), parts);
    Ok(Reader { replica: replica.await?, is_in_memory: false })
}
