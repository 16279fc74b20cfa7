//! Opening of readers, from Python's options, by a thread that waits or for an event loop.

use std::future::Future;
use std::path::PathBuf;

use forebay::{
    CheckpointOptions, Error, PartitionFilter, PartitionId, Reader, ReaderOptions, SnapshotStore,
};
use pyo3::prelude::*;

use crate::attached::{Again, Opened};
use crate::call::{Answer, Call};
use crate::client::NativeClient;
use crate::fault::{Fault, entry};
use crate::log;
use crate::process::ProcessOwned;
use crate::schema::duration_of;

/// Options of a reader, as Python gives them.
pub(crate) struct Opening {
    pub(crate) partitions: Option<Vec<u32>>,
    pub(crate) serve_partial: bool,
    pub(crate) ready_age_max: Option<f64>,
    pub(crate) open_timeout: Option<f64>,
    pub(crate) checkpoint_dir: Option<PathBuf>,
    pub(crate) checkpoint_every: Option<f64>,
    pub(crate) memory_budget: Option<u64>,
    pub(crate) spill_bytes_max: u64,
    pub(crate) snapshots: Option<String>,
}

impl Opening {
    pub(crate) fn wanted(self, store: &str) -> Result<Wanted, Fault> {
        let mut options = ReaderOptions::new(store);
        if let Some(partitions) = self.partitions {
            let partitions = partitions.into_iter().map(PartitionId).collect();
            options.partitions = PartitionFilter::Only(partitions);
        }
        options.serve_partial = self.serve_partial;
        let or = |given: Option<f64>, unless| given.map_or(Ok(unless), duration_of);
        options.ready_age_max = or(self.ready_age_max, options.ready_age_max)?;
        options.open_timeout = or(self.open_timeout, options.open_timeout)?;
        options.checkpoint = checkpoint_options(self.checkpoint_dir, self.checkpoint_every)?;
        options.memory_budget = self.memory_budget;
        options.spill_bytes_max = self.spill_bytes_max;
        Ok(Wanted { options, snapshots: self.snapshots })
    }
}

/// The specification of a reader, valid in this process and in its forked children.
#[derive(Clone)]
pub(crate) struct Wanted {
    /// Options, without the snapshot store.
    pub(crate) options: ReaderOptions,
    /// URL of the snapshot store, which has connections and locks of one process and so must be
    /// reopened.
    snapshots: Option<String>,
}

impl Wanted {
    /// Returns all options, for this process.
    ///
    /// # Errors
    /// Errors of [`SnapshotStore::open`].
    pub(crate) fn options(&self) -> forebay::Result<ReaderOptions> {
        let snapshots = self.snapshots.as_deref().map(SnapshotStore::open).transpose()?;
        Ok(ReaderOptions { snapshots, ..self.options.clone() })
    }
}

/// Opens a reader over a client's connection, or over a new connection to an endpoint.
pub(crate) fn open(
    py: Python<'_>,
    source: &Bound<'_, PyAny>,
    wanted: &Wanted,
) -> Result<impl Future<Output = forebay::Result<Opened>> + Send + use<>, Fault> {
    log::start(py)?;
    let (client, endpoint) = match source.cast::<NativeClient>() {
        Ok(client) => (Some(client.get().client()?), client.get().endpoint().to_owned()),
        Err(_) => (None, source.extract()?),
    };
    let (again, options) = (Again::of(&endpoint, wanted), wanted.options()?);
    Ok(async move {
        let reader = match client {
            Some(client) => client.reader(options).await?,
            None => Reader::open(&endpoint, options).await?,
        };
        Ok(Opened { reader, again })
    })
}

/// A reader that an event loop has opened; `Reader` takes it as its source.
#[pyclass(frozen, module = "forebay._native")]
pub(crate) struct OpenedReader {
    opened: ProcessOwned<Opened>,
}

impl OpenedReader {
    pub(crate) fn new(opened: Opened) -> Self {
        Self { opened: ProcessOwned::new("reader", opened) }
    }

    /// Takes the reader, once.
    pub(crate) fn take(&self) -> Result<Opened, Fault> {
        let taken = self.opened.take();
        let taken =
            taken.ok_or_else(|| Error::closed("the reader was already taken; open another one"))?;
        Ok(Opened::clone(&taken))
    }
}

/// Returns the call that opens a reader, for an event loop.
#[pyfunction]
#[pyo3(signature = (
    source, store, *, partitions=None, serve_partial=false, ready_age_max=None, open_timeout=None,
    checkpoint_dir=None, checkpoint_every=None, memory_budget=None, spill_bytes_max=0,
    snapshots=None
))]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub(crate) fn open_reader(
    py: Python<'_>,
    source: &Bound<'_, PyAny>,
    store: &str,
    partitions: Option<Vec<u32>>,
    serve_partial: bool,
    ready_age_max: Option<f64>,
    open_timeout: Option<f64>,
    checkpoint_dir: Option<PathBuf>,
    checkpoint_every: Option<f64>,
    memory_budget: Option<u64>,
    spill_bytes_max: u64,
    snapshots: Option<String>,
) -> Result<Call, Fault> {
    entry(|| {
        let opening = Opening {
            partitions,
            serve_partial,
            ready_age_max,
            open_timeout,
            checkpoint_dir,
            checkpoint_every,
            memory_budget,
            spill_bytes_max,
            snapshots,
        };
        let opening = open(py, source, &opening.wanted(store)?)?;
        Ok(Call::new(async move { opening.await.map(|opened| Answer::Reader(Box::new(opened))) }))
    })
}

fn checkpoint_options(
    dir: Option<PathBuf>,
    every: Option<f64>,
) -> Result<Option<CheckpointOptions>, Fault> {
    let Some(dir) = dir else {
        let message =
            "checkpoint_every needs checkpoint_dir; name the directory of the checkpoints";
        return if every.is_none() {
            Ok(None)
        } else {
            Err(Error::invalid_argument(message).into())
        };
    };
    let mut options = CheckpointOptions::new(dir);
    options.every = every.map_or(Ok(options.every), duration_of)?;
    Ok(Some(options))
}
