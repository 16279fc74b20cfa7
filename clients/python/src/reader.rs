//! The embedded reader: gets, batches and waits.
//!
//! A local get holds the interpreter, because the read takes less time than releasing the
//! interpreter; so do some thousand gets of one batch. Batches of documents, gathers, scans and
//! waits release the interpreter.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use forebay::Reader;
use forebay::reads::{CopyOut, FieldRead};
use forebay::schema::{Definition, StoreId};
use forebay_wire::token::Token;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::buffer::OutArray;
use crate::error::{CallError, native_call};
use crate::field_handle::NativeFieldHandle;
use crate::fork_aware_reader::{ForkAwareReader, ReopenableReader};
use crate::gather::{Arrays, Plan, gather, make_plan, presence_code};
use crate::key::{KeyObjects, key_of};
use crate::memory::NativeMemory;
use crate::open_options::ReaderKeywords;
use crate::open_reader::{OpenedReader, open};
use crate::process::{self, ObjectGuard};
use crate::python::{IntoPython, class};
use crate::read_options::{DefaultValue, LocalRead, ReadArguments, wait_for};
use crate::reader_calls::{NativeReaderCalls, SharedReader, await_ready, await_token, verify};
use crate::results::{
    BatchRead, PackedBuffers, check_statuses, copy_field, document_object, read_documents,
    read_field, read_packed, read_values,
};
use crate::scan::{NativeScan, ScannedDocument};
use crate::schema::{definition_object, duration_of};
use crate::status::{metrics_object, status_object};

/// A full copy of a store in this process.
#[pyclass(frozen, subclass, name = "Reader", module = "forebay._native")]
pub(crate) struct NativeReader {
    inner: Arc<ForkAwareReader>,
    store: StoreId,
    name: String,
}

#[pymethods]
impl NativeReader {
    #[new]
    #[pyo3(signature = (
        source, store, *, partitions=None, allow_incomplete_reads=false, ready_max_staleness=None,
        open_timeout=None, checkpoint_dir=None, checkpoint_interval=None, memory_limit=None,
        spill_limit=0, snapshots=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
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
    ) -> Result<Self, CallError> {
        native_call(|| {
            if let Ok(memory) = source.cast::<NativeMemory>() {
                return Ok(Self::over(ReopenableReader {
                    reader: memory.get().reader()?,
                    reopen: None,
                }));
            }
            if let Ok(opened_reader) = source.cast::<OpenedReader>() {
                return Ok(Self::over(opened_reader.get().take()?));
            }
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
            Ok(Self::over(process::wait(py, opening)??))
        })
    }

    /// Name of the reader's store.
    #[getter]
    fn store(&self) -> &str {
        &self.name
    }

    /// Returns a field of a document: its value, None for null, and `default` (`ABSENT` unless
    /// given) if the document does not exist or does not have the field. `field` is a name or,
    /// faster, a handle. See the class for the keywords.
    #[pyo3(signature = (
        key, field, default=DefaultValue(None), *, after=None, latest=false, max_staleness=None,
        timeout=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        field: &Bound<'py, PyAny>,
        default: DefaultValue<'py>,
        after: Option<&[u8]>,
        latest: bool,
        max_staleness: Option<f64>,
        timeout: Option<f64>,
    ) -> Result<Bound<'py, PyAny>, CallError> {
        native_call(|| {
            let read = self.read(py, after, latest, max_staleness, timeout)?;
            let key = key_of(key)?;
            read.wait_for_key(py, key)?;
            let field = read.field(field)?;
            let found = read.reader.read_local(read.options.max_staleness, |view| {
                read_field(py, view, &field.get().handle, key)
            })?;
            match found {
                FieldRead::Absent => Ok(default.object(py)?),
                FieldRead::Null => Ok(py.None().into_bound(py)),
                FieldRead::Value(value) => value.into_object(py),
            }
        })
    }

    /// Copies a string (as UTF-8) or bytes field to the start of a writable buffer and returns its
    /// length in bytes; None for null, `ABSENT` for absent. A length above the buffer's is the size
    /// that the value needs: nothing was copied.
    #[pyo3(signature = (
        key, field, buffer, *, after=None, latest=false, max_staleness=None, timeout=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn get_into<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        field: &Bound<'py, PyAny>,
        buffer: &Bound<'py, PyAny>,
        after: Option<&[u8]>,
        latest: bool,
        max_staleness: Option<f64>,
        timeout: Option<f64>,
    ) -> Result<Bound<'py, PyAny>, CallError> {
        native_call(|| {
            let read = self.read(py, after, latest, max_staleness, timeout)?;
            let key = key_of(key)?;
            let mut out = OutArray::check_bytes(buffer)?;
            read.wait_for_key(py, key)?;
            let field = read.field(field)?;
            let copied = read.reader.read_local(read.options.max_staleness, |view| {
                // SAFETY: only this read uses the slice: the interpreter is held and no code of it
                // runs before the slice ends.
                #[allow(unsafe_code)]
                let out = unsafe { out.as_mut_slice() };
                copy_field(view, &field.get().handle, key, out)
            })?;
            match copied {
                CopyOut::Absent => Ok(DefaultValue(None).object(py)?),
                CopyOut::Null => Ok(py.None().into_bound(py)),
                CopyOut::Length(bytes) | CopyOut::SizeNeeded(bytes) => {
                    Ok(bytes.into_pyobject(py)?.into_any())
                }
            }
        })
    }

    /// Returns whether a field of a document is absent, null or a value.
    #[pyo3(signature = (key, field, *, after=None, latest=false, max_staleness=None, timeout=None))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn presence<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        field: &Bound<'py, PyAny>,
        after: Option<&[u8]>,
        latest: bool,
        max_staleness: Option<f64>,
        timeout: Option<f64>,
    ) -> Result<Bound<'py, PyAny>, CallError> {
        native_call(|| {
            let read = self.read(py, after, latest, max_staleness, timeout)?;
            let key = key_of(key)?;
            read.wait_for_key(py, key)?;
            let field = read.field(field)?;
            let found = read.reader.read_local(read.options.max_staleness, |view| {
                view.presence(&field.get().handle, key)
            })?;
            Ok(class(py, "forebay._model", "Presence")?.call1((presence_code(found),))?)
        })
    }

    /// Returns a whole document as a dict, or None if it does not exist. Copies every field: read
    /// single fields by `get`.
    #[pyo3(signature = (key, *, after=None, latest=false, max_staleness=None, timeout=None))]
    fn get_document<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        after: Option<&[u8]>,
        latest: bool,
        max_staleness: Option<f64>,
        timeout: Option<f64>,
    ) -> Result<Option<Bound<'py, PyAny>>, CallError> {
        native_call(|| {
            let read = self.read(py, after, latest, max_staleness, timeout)?;
            let key = key_of(key)?;
            read.wait_for_key(py, key)?;
            let max_staleness = read.options.max_staleness;
            let document = read.reader.read_local(max_staleness, |view| view.get_document(key))?;
            document.map(|document| document_object(py, &read.reader, &document)).transpose()
        })
    }

    /// Returns one field of many documents, in the order of the keys. `statuses`, an array of
    /// uint8, takes a `KeyStatus` per key; without `statuses`, a key whose partition does not
    /// answer raises an error.
    #[pyo3(signature = (
        keys, field, default=DefaultValue(None), *, statuses=None, after=None, latest=false,
        max_staleness=None, timeout=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        field: &Bound<'py, PyAny>,
        default: DefaultValue<'py>,
        statuses: Option<&Bound<'py, PyAny>>,
        after: Option<&[u8]>,
        latest: bool,
        max_staleness: Option<f64>,
        timeout: Option<f64>,
    ) -> Result<Bound<'py, PyList>, CallError> {
        native_call(|| {
            let read = self.read(py, after, latest, max_staleness, timeout)?;
            let keys = KeyObjects::of(keys)?;
            let keys = keys.keys()?;
            let mut statuses = check_statuses(statuses, &keys)?;
            read.wait_for_keys(py, &keys)?;
            let field = read.field(field)?;
            let default = default.object(py)?;
            let (max_staleness, handle) = (read.options.max_staleness, &field.get().handle);
            let batch = BatchRead { keys: &keys, max_staleness, statuses: statuses.is_some() };
            let (objects, codes) = read_values(py, &read.reader, &batch, handle, &default)?;
            let objects = PyList::new(py, objects)?;
            statuses.iter_mut().for_each(|statuses| statuses.fill(codes.iter().copied()));
            Ok(objects)
        })
    }

    /// Reads a string or bytes field of many documents as four buffers; `Reader.get_packed` is the
    /// convenient form.
    #[pyo3(signature = (
        keys, field, *, after=None, latest=false, max_staleness=None, timeout=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn packed<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        field: &Bound<'py, PyAny>,
        after: Option<&[u8]>,
        latest: bool,
        max_staleness: Option<f64>,
        timeout: Option<f64>,
    ) -> Result<PackedBuffers<'py>, CallError> {
        native_call(|| {
            let read = self.read(py, after, latest, max_staleness, timeout)?;
            let keys = KeyObjects::of(keys)?;
            let keys = keys.keys()?;
            read.wait_for_keys(py, &keys)?;
            let field = read.field(field)?;
            read_packed(py, &read.reader, &keys, read.options.max_staleness, &field.get().handle)
        })
    }

    /// Returns many documents, None for each that does not exist. `statuses` is as for `get_many`.
    #[pyo3(signature = (
        keys, *, statuses=None, after=None, latest=false, max_staleness=None, timeout=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn get_documents<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        statuses: Option<&Bound<'py, PyAny>>,
        after: Option<&[u8]>,
        latest: bool,
        max_staleness: Option<f64>,
        timeout: Option<f64>,
    ) -> Result<Bound<'py, PyList>, CallError> {
        native_call(|| {
            let read = self.read(py, after, latest, max_staleness, timeout)?;
            let keys = KeyObjects::of(keys)?;
            let keys = keys.keys()?;
            let mut statuses = check_statuses(statuses, &keys)?;
            read.wait_for_keys(py, &keys)?;
            let max_staleness = read.options.max_staleness;
            let batch = BatchRead { keys: &keys, max_staleness, statuses: statuses.is_some() };
            let (found, codes) = read_documents(py, &read.reader, &batch)?;
            let objects = found.into_iter().map(|document| {
                document.map(|document| document_object(py, &read.reader, &document)).transpose()
            });
            let objects = PyList::new(py, objects.collect::<Result<Vec<_>, CallError>>()?)?;
            statuses.iter_mut().for_each(|statuses| statuses.fill(codes.iter().copied()));
            Ok(objects)
        })
    }

    /// Resolves a field by name or earlier name, to be read as a type: its own unless given, a type
    /// that widens to it, or a type that it widens to. Raises `NotFoundError` and
    /// `InvalidArgumentError`.
    #[pyo3(signature = (name, r#type=None))]
    fn field(
        &self,
        py: Python<'_>,
        name: &str,
        r#type: Option<&str>,
    ) -> Result<NativeFieldHandle, CallError> {
        native_call(|| NativeFieldHandle::resolve(&*self.reader(py)?, self.store, name, r#type))
    }

    /// Plans a gather; `Reader.plan_gather` is the convenient form.
    #[pyo3(signature = (fields, dtype, lossy))]
    fn make_plan(
        &self,
        fields: &Bound<'_, PyAny>,
        dtype: &str,
        lossy: bool,
    ) -> Result<Plan, CallError> {
        native_call(|| make_plan(&*self.reader(fields.py())?, self.store, fields, dtype, lossy))
    }

    /// Fills arrays; `Reader.gather` is the convenient form.
    #[pyo3(signature = (
        plan, keys, out, *, mask=None, statuses=None, after=None, latest=false, max_staleness=None,
        timeout=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn gather_into<'py>(
        &self,
        py: Python<'py>,
        plan: &Plan,
        keys: &Bound<'py, PyAny>,
        out: &Bound<'py, PyAny>,
        mask: Option<&Bound<'py, PyAny>>,
        statuses: Option<&Bound<'py, PyAny>>,
        after: Option<&[u8]>,
        latest: bool,
        max_staleness: Option<f64>,
        timeout: Option<f64>,
    ) -> Result<(), CallError> {
        native_call(|| {
            let read = self.read(py, after, latest, max_staleness, timeout)?;
            plan.check_store(self.store)?;
            let keys = KeyObjects::of(keys)?;
            let keys = keys.keys()?;
            read.wait_for_keys(py, &keys)?;
            let arrays = Arrays { out, mask, statuses };
            gather(py, &read.reader, plan, &keys, &arrays, read.options.max_staleness)
        })
    }

    /// Opens a scan; `Reader.scan` is the convenient form.
    fn open_scan(&self, py: Python<'_>) -> Result<NativeScan, CallError> {
        native_call(|| Ok(NativeScan::new(&*self.reader(py)?)))
    }

    /// Returns up to `documents_max` more keys and documents of a scan; none at its end.
    #[pyo3(signature = (scan, documents_max, max_staleness=None))]
    fn scan_next<'py>(
        &self,
        py: Python<'py>,
        scan: &NativeScan,
        documents_max: usize,
        max_staleness: Option<f64>,
    ) -> Result<Vec<ScannedDocument<'py>>, CallError> {
        native_call(|| {
            let max_staleness = max_staleness.map(duration_of).transpose()?;
            scan.next(py, &*self.reader(py)?, max_staleness, documents_max)
        })
    }

    /// Waits until every followed partition serves fresh data, at most `timeout` seconds. Raises
    /// `UnavailableError` with phase, percent and remaining time.
    fn await_ready(&self, py: Python<'_>, timeout: f64) -> Result<(), CallError> {
        native_call(|| self.wait(py, timeout, await_ready))
    }

    /// Waits until everything that the token covers is applied, at most `timeout` seconds.
    fn await_token(&self, py: Python<'_>, token: &[u8], timeout: f64) -> Result<(), CallError> {
        native_call(|| {
            let token = Token::decode(token)?;
            self.wait(py, timeout, |reader, timeout| await_token(reader, token, timeout))
        })
    }

    /// Returns the calls that an event loop awaits.
    fn calls(&self) -> NativeReaderCalls {
        NativeReaderCalls::new(Arc::clone(&self.inner), self.name.clone())
    }

    /// Whether the process should get traffic.
    #[getter]
    fn is_ready(&self, py: Python<'_>) -> Result<bool, CallError> {
        native_call(|| Ok(self.reader(py)?.is_ready()))
    }

    /// Newest schema version that any partition has seen; 0 before the first entry.
    #[getter]
    fn schema_version(&self, py: Python<'_>) -> Result<u32, CallError> {
        native_call(|| Ok(self.reader(py)?.schema_version().0))
    }

    /// Definition at the schema version `schema_version`.
    #[getter]
    fn definition<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>, CallError> {
        native_call(|| definition_object(py, &self.reader(py)?.definition()))
    }

    /// Returns the current status of the reader and of each of its partitions.
    fn status<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>, CallError> {
        native_call(|| status_object(py, &self.reader(py)?.status()))
    }

    /// Returns counts and sizes since the reader was opened.
    fn metrics<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>, CallError> {
        native_call(|| metrics_object(py, &self.reader(py)?.metrics()))
    }

    /// Compares the reader's copy of a partition with the shard of the connected node, at one
    /// position, and names the documents that differ. Waits at most `timeout` seconds for the
    /// shard, and then until the reader has reached the same position. Reads both completely, the
    /// shard over the network; while the reader's copy is read, the partition applies no entries
    /// but still answers reads. Raises `UnsupportedError` for an in-memory reader, and if another
    /// reader of the directory maintains the copy.
    #[pyo3(signature = (partition, timeout=60.0))]
    fn verify<'py>(
        &self,
        py: Python<'py>,
        partition: u32,
        timeout: f64,
    ) -> Result<Bound<'py, PyAny>, CallError> {
        native_call(|| {
            let verification =
                self.wait(py, timeout, |reader, timeout| verify(reader, partition, timeout))?;
            Ok(Box::new(verification).into_python(py)?)
        })
    }

    /// Calls back with the definition of each schema version that the reader reaches from now on,
    /// in order, on a separate thread. Exceptions of the callback go to `sys.unraisablehook`.
    fn on_schema_change(&self, py: Python<'_>, callback: Py<PyAny>) -> Result<(), CallError> {
        native_call(|| {
            let reader = self.reader(py)?;
            let (definitions, mut to_tell) =
                tokio::sync::mpsc::unbounded_channel::<Arc<Definition>>();
            let callback = Arc::new(callback);
            // The tail waits for its callback, and must not wait for the interpreter.
            process::spawn(async move {
                while let Some(definition) = to_tell.recv().await {
                    let callback = Arc::clone(&callback);
                    let call_task =
                        tokio::task::spawn_blocking(move || tell(&callback, &definition));
                    if call_task.await.is_err() {
                        return;
                    }
                }
            })?;
            reader.on_schema_change(Arc::new(move |definition| {
                // The send fails once the process ends and no receiver is left.
                let _ = definitions.send(Arc::clone(definition));
            }));
            Ok(())
        })
    }

    /// Closes the reader: reads in flight end, later ones raise `ClosedError`, and the memory is
    /// freed after the last of them. A reader with checkpoints writes a last checkpoint of each
    /// partition, and this call waits for them, at most `timeout` seconds. A second close changes
    /// nothing.
    #[pyo3(signature = (timeout=10.0))]
    fn close(&self, py: Python<'_>, timeout: f64) -> Result<(), CallError> {
        native_call(|| {
            let timeout = duration_of(timeout)?;
            let Some(reader) = self.inner.take() else { return Ok(()) };
            reader.begin_close();
            if self.inner.keeps_checkpoints()
                && let Err(error) = process::wait(py, reader.close(timeout))?
            {
                tracing::warn!(store = %self.name, %error, "closed without the last checkpoints");
            }
            Ok(())
        })
    }
}

impl NativeReader {
    fn over(reopenable: ReopenableReader) -> Self {
        let (store, name) =
            (reopenable.reader.definition().store, reopenable.reader.store().to_owned());
        Self { inner: Arc::new(ForkAwareReader::new(reopenable)), store, name }
    }

    /// Returns the reader, for a call without a timeout of its own.
    fn reader(&self, py: Python<'_>) -> Result<ObjectGuard<Reader>, CallError> {
        Ok(self.inner.reader(py, None)?.0)
    }

    /// Begins a read with these keywords; the time to reopen the reader counts towards `timeout`.
    fn read(
        &self,
        py: Python<'_>,
        after: Option<&[u8]>,
        latest: bool,
        max_staleness: Option<f64>,
        timeout: Option<f64>,
    ) -> Result<LocalRead, CallError> {
        let (reader, timeout) = self.inner.reader(py, timeout)?;
        let options = ReadArguments::of(after, latest, max_staleness, timeout)?;
        Ok(LocalRead { reader, store: self.store, options })
    }

    /// Waits for an event of the reader, at most `timeout` seconds.
    fn wait<T: Send, F: Future<Output = forebay::Result<T>> + Send>(
        &self,
        py: Python<'_>,
        timeout: f64,
        event: impl FnOnce(SharedReader, Duration) -> F,
    ) -> Result<T, CallError> {
        let (reader, remaining) = self.inner.reader(py, Some(timeout))?;
        let (reader, timeout) = (reader.to_arc(), duration_of(remaining.unwrap_or(timeout))?);
        Ok(wait_for(py, &reader, event(Arc::clone(&reader), timeout))??)
    }
}

/// Calls a Python callback, unless the interpreter is shutting down.
fn tell(callback: &Py<PyAny>, definition: &Definition) {
    Python::try_attach(|py| {
        let call_result = definition_object(py, definition)
            .map_err(PyErr::from)
            .and_then(|definition| callback.call1(py, (definition,)));
        if let Err(exception) = call_result {
            exception.write_unraisable(py, Some(callback.bind(py)));
        }
    });
}
