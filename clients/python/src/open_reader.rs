//! Opening of readers, from Python's options, by a thread that waits or for an event loop.

use std::future::Future;
use std::path::PathBuf;

use forebay::{Error, Reader};
use pyo3::prelude::*;

use crate::call::Call;
use crate::client::NativeClient;
use crate::error::{CallError, native_call};
use crate::fork_aware_reader::{ReopenState, ReopenableReader};
use crate::log;
use crate::open_options::{OpenOptions, ReaderKeywords};
use crate::process::ProcessOwned;
use crate::python::IntoPython;

/// Opens a reader over a client's connection, or over a new connection to an endpoint.
pub(crate) fn open(
    py: Python<'_>,
    source: &Bound<'_, PyAny>,
    options: &OpenOptions,
) -> Result<impl Future<Output = forebay::Result<ReopenableReader>> + Send + use<>, CallError> {
    log::start(py)?;
    let (client, endpoint) = match source.cast::<NativeClient>() {
        Ok(client) => (Some(client.get().client()?), client.get().endpoint().to_owned()),
        Err(_) => (None, source.extract()?),
    };
    let (reopen, options) = (ReopenState::of(&endpoint, options), options.reader_options()?);
    Ok(async move {
        let reader = match client {
            Some(client) => client.reader(options).await?,
            None => Reader::open(&endpoint, options).await?,
        };
        Ok(ReopenableReader { reader, reopen })
    })
}

/// A reader that an event loop has opened; `Reader` takes it as its source.
#[pyclass(frozen, module = "forebay._native")]
pub(crate) struct OpenedReader {
    opened: ProcessOwned<ReopenableReader>,
}

impl OpenedReader {
    pub(crate) fn new(reopenable: ReopenableReader) -> Self {
        Self { opened: ProcessOwned::new("reader", reopenable) }
    }

    /// Takes the reader, once.
    pub(crate) fn take(&self) -> Result<ReopenableReader, CallError> {
        let reader = self.opened.take();
        let reader = reader
            .ok_or_else(|| Error::closed("the reader was already taken; open another one"))?;
        Ok(ReopenableReader::clone(&reader))
    }
}

impl IntoPython for OpenedReader {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        Ok(Bound::new(py, *self)?.into_any())
    }
}

/// Returns the call that opens a reader, for an event loop.
#[pyfunction]
#[pyo3(signature = (
    source, store, *, partitions=None, allow_incomplete_reads=false, ready_max_staleness=None,
    open_timeout=None, checkpoint_dir=None, checkpoint_interval=None, memory_limit=None,
    spill_limit=0, snapshots=None
))]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub(crate) fn open_reader(
    py: Python<'_>,
    source: &Bound<'_, PyAny>,
    store: &str,
    partitions: Option<Vec<u32>>,
    allow_incomplete_reads: bool,
    ready_max_staleness: Option<f64>,
    open_timeout: Option<f64>,
    checkpoint_dir: Option<PathBuf>,
    checkpoint_interval: Option<f64>,
    memory_limit: Option<u64>,
    spill_limit: u64,
    snapshots: Option<String>,
) -> Result<Call, CallError> {
    native_call(|| {
        let keywords = ReaderKeywords {
            partitions,
            allow_incomplete_reads,
            ready_max_staleness,
            open_timeout,
            checkpoint_dir,
            checkpoint_interval,
            memory_limit,
            spill_limit,
            snapshots,
        };
        let opening = open(py, source, &keywords.options(store)?)?;
        Ok(Call::new(async move { opening.await.map(OpenedReader::new) }))
    })
}
