//! The objects behind the ids of callers: clients, stores, readers, plans, scans and streams.
//!
//! The types have no entry points: each kind of object has its own file of those.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay::reads::{DocumentKey, GatherColumns, GatherPlan, Scan, View};
use forebay::testing::InMemoryReader;
use forebay::writes::WriteStream;
use forebay::{Client, ClientOptions, Error, Reader, Result, Store};
use forebay_core::limits::CLIENT_STREAM_CHANGES_MAX;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::field::FieldTable;
use crate::input::ReadArguments;
use crate::process::{wait, wait_here};

/// A client; after its close, its stores return `Closed` too.
pub(crate) struct OpenClient {
    pub(crate) client: Client,
    pub(crate) is_closed: Arc<AtomicBool>,
    pub(crate) deadline: Duration,
    pub(crate) in_flight: Arc<InFlightChanges>,
}

impl OpenClient {
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }
}

/// A store of a client.
pub(crate) struct OpenStore {
    store: Store,
    client_closed: Arc<AtomicBool>,
    deadline: Duration,
    in_flight: Arc<InFlightChanges>,
}

impl OpenStore {
    /// Creates the object of a client's store.
    pub(crate) fn new(client: &OpenClient, store: Store) -> Self {
        Self {
            store,
            client_closed: Arc::clone(&client.is_closed),
            deadline: client.deadline,
            in_flight: Arc::clone(&client.in_flight),
        }
    }

    /// Creates the object of an in-memory reader's store, which has no client.
    pub(crate) fn in_memory(store: Store) -> Self {
        let deadline = ClientOptions::default().deadline;
        Self { store, client_closed: Arc::default(), deadline, in_flight: Arc::default() }
    }

    /// # Errors
    /// `Closed` if the store's client was closed.
    pub(crate) fn store(&self) -> Result<&Store> {
        if self.client_closed.load(Ordering::Acquire) {
            return Err(Error::closed("the store's client was closed; connect another one"));
        }
        Ok(&self.store)
    }

    pub(crate) fn client_closed(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.client_closed)
    }

    /// Returns the default deadline of the client's calls.
    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Returns the limit of the client's changes without a waiting caller.
    pub(crate) fn in_flight(&self) -> &InFlightChanges {
        &self.in_flight
    }
}

/// The limit of a client's changes that are in flight without a waiting caller.
pub(crate) struct InFlightChanges(Arc<Semaphore>);

impl Default for InFlightChanges {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(CLIENT_STREAM_CHANGES_MAX)))
    }
}

impl InFlightChanges {
    /// # Errors
    /// `LimitExceeded` if too many changes are in flight.
    pub(crate) fn room(&self, changes: u64) -> Result<OwnedSemaphorePermit> {
        let permits = u32::try_from(changes.max(1)).unwrap_or(u32::MAX);
        Arc::clone(&self.0).try_acquire_many_owned(permits).map_err(|_| {
            let in_flight = CLIENT_STREAM_CHANGES_MAX - self.0.available_permits();
            let message =
                "too many changes are in flight; wait for some of them, or write to a stream";
            let actual = (in_flight as u64).saturating_add(changes);
            Error::limit_exceeded(message, CLIENT_STREAM_CHANGES_MAX as u64, actual)
        })
    }
}

/// A reader and the fields that its callers have resolved.
pub(crate) struct OpenReader {
    pub(crate) reader: Reader,
    pub(crate) fields: FieldTable,
    /// Whether a close writes a last checkpoint of each partition.
    keeps_checkpoints: bool,
    /// Test controls of an in-memory reader.
    memory: Option<InMemoryReader>,
}

/// Longest wait of a close for the last checkpoints.
const CLOSE_WAIT: Duration = Duration::from_secs(10);

impl OpenReader {
    /// Creates the object of a reader that follows a log.
    pub(crate) fn following(reader: Reader, keeps_checkpoints: bool) -> Self {
        Self { reader, fields: FieldTable::new(), keeps_checkpoints, memory: None }
    }

    pub(crate) fn in_memory(memory: InMemoryReader) -> Self {
        let mut open = Self::following(Reader::clone(&memory), false);
        open.memory = Some(memory);
        open
    }

    /// # Errors
    /// `InvalidArgument` for a reader that follows a log.
    pub(crate) fn memory(&self) -> Result<&InMemoryReader> {
        self.memory.as_ref().ok_or_else(|| {
            let message =
                "only a reader in memory supports this call; open one with fb_test_reader_open";
            Error::invalid_argument(message).with_store(self.reader.store())
        })
    }

    /// Waits for an event of this reader: an in-memory reader on the caller's thread, another
    /// reader on the runtime.
    pub(crate) fn wait<T>(&self, future: impl Future<Output = T>) -> Result<T> {
        if self.reader.is_in_memory() { wait_here(future) } else { wait(future) }
    }

    /// # Errors
    /// `DeadlineExceeded` if the last checkpoints are not written in time; the reader is closed
    /// even so.
    pub(crate) fn close(&self) -> Result<()> {
        if self.keeps_checkpoints {
            return wait(self.reader.close(CLOSE_WAIT))?;
        }
        self.reader.begin_close();
        Ok(())
    }

    /// Reads one document, after the wait of `options`.
    pub(crate) fn read<T>(
        &self,
        options: &ReadArguments,
        key: DocumentKey<'_>,
        visit: impl FnOnce(&View<'_>) -> Result<T>,
    ) -> Result<T> {
        if options.waits {
            let partition = self.reader.partition_of(key)?;
            self.wait(self.reader.wait(&options.read, &[partition]))??;
        }
        self.read_here(options, visit)
    }

    /// Reads what is applied in this process, after the wait of `options`.
    pub(crate) fn read_here<T>(
        &self,
        options: &ReadArguments,
        visit: impl FnOnce(&View<'_>) -> Result<T>,
    ) -> Result<T> {
        match options.in_memory {
            false => self.reader.read_local(options.max_staleness, visit),
            true => self.reader.read_in_memory(visit),
        }
    }
}

/// A gather plan, for a matrix of one of three types.
pub(crate) enum OpenPlan {
    F32(GatherPlan<f32>),
    F64(GatherPlan<f64>),
    I64(GatherPlan<i64>),
}

impl OpenPlan {
    pub(crate) fn width(&self) -> usize {
        match self {
            Self::F32(plan) => plan.width(),
            Self::F64(plan) => plan.width(),
            Self::I64(plan) => plan.width(),
        }
    }

    pub(crate) fn columns(&self) -> Vec<GatherColumns> {
        match self {
            Self::F32(plan) => plan.columns().collect(),
            Self::F64(plan) => plan.columns().collect(),
            Self::I64(plan) => plan.columns().collect(),
        }
    }
}

/// A scan and the reader that it scans.
pub(crate) struct OpenScan {
    pub(crate) reader: u64,
    pub(crate) scan: Scan,
}

/// A stream of writes, until its client is closed.
pub(crate) struct OpenStream {
    pub(crate) stream: Mutex<WriteStream>,
    pub(crate) client_closed: Arc<AtomicBool>,
    /// Permits of changes whose outcome the caller has not received yet, resolved or not.
    pub(crate) undelivered: Arc<Semaphore>,
    pub(crate) deadline: Duration,
}

impl OpenStream {
    pub(crate) fn stream(&self) -> Result<&Mutex<WriteStream>> {
        if self.client_closed.load(Ordering::Acquire) {
            return Err(Error::closed("the stream's client was closed; connect another one"));
        }
        Ok(&self.stream)
    }

    pub(crate) async fn room(&self) -> Result<OwnedSemaphorePermit> {
        let room = Arc::clone(&self.undelivered).acquire_owned();
        let room = tokio::time::timeout(self.deadline, room).await.map_err(|_| {
            Error::unavailable(
                "the stream is full; let the callbacks return, or fetch from the inbox",
            )
        })?;
        room.map_err(|_| Error::internal("the stream was closed; open another stream"))
    }
}

#[cfg(test)]
mod tests {
    use forebay::ErrorCode;

    use super::*;

    #[test]
    fn client_bounds_its_changes_in_flight() {
        let flight = InFlightChanges::default();
        let permit = flight.room(CLIENT_STREAM_CHANGES_MAX as u64).unwrap();
        let error = flight.room(2).unwrap_err();
        assert_eq!(error.code(), ErrorCode::LimitExceeded);
        assert_eq!(error.context().actual, Some(CLIENT_STREAM_CHANGES_MAX as u64 + 2));
        drop(permit);
        assert!(flight.room(2).is_ok());
    }
}
