//! The embedded reader: gets, batches and waits.
//!
//! A local get holds the interpreter, because the read takes less time than releasing the
//! interpreter; so do some thousand gets of one batch. Batches of documents, gathers, scans and
//! waits release the interpreter.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use forebay::{CopyOut, Error, FieldHandle, FieldRead, PartitionId, Reader, StoreId};
use forebay_wire::token::Token;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use crate::asked::{Default, How, wait_for};
use crate::attached::{Attached, Opened};
use crate::buffer::OutArray;
use crate::call::{Answer, Call};
use crate::fault::{Fault, entry};
use crate::found::{
    Many, Packed, check_statuses, copy_field, document_object, read_documents, read_field,
    read_packed, read_values,
};
use crate::gather::{Arrays, Plan, gather, plan_gather, presence_code};
use crate::key::{KeyObjects, key_of};
use crate::log;
use crate::memory::NativeMemory;
use crate::opening::{OpenedReader, Opening, open};
use crate::process::{self, Owned};
use crate::python::class;
use crate::scan::{NativeScan, Scanned};
use crate::schema::{definition_object, duration_of, field_type_of};
use crate::status::{metrics_object, status_object};
use crate::verified::FoundVerified;

/// A field of a reader: resolved once by name, then bound to its id and type.
///
/// A handle survives renames and, while values fit, a wider type; after a drop, reads return
/// absent.
#[pyclass(frozen, name = "FieldHandle", module = "forebay")]
pub(crate) struct Handle {
    handle: FieldHandle,
    store: StoreId,
}

#[pymethods]
impl Handle {
    /// Name that the handle was resolved by.
    #[getter]
    fn name(&self) -> &str {
        self.handle.name()
    }

    /// Type that the field is read as.
    #[getter]
    fn r#type(&self) -> String {
        self.handle.asked().to_string()
    }

    fn __repr__(&self) -> String {
        format!("<forebay.FieldHandle {}: {}>", self.handle.name(), self.handle.asked())
    }
}

/// The live copy of a store in this process.
#[pyclass(frozen, subclass, name = "Reader", module = "forebay._native")]
pub(crate) struct NativeReader {
    attached: Arc<Attached>,
    store: StoreId,
    name: String,
}

#[pymethods]
impl NativeReader {
    #[new]
    #[pyo3(signature = (
        source, store, *, partitions=None, serve_partial=false, ready_age_max=None,
        open_timeout=None, checkpoint_dir=None, checkpoint_every=None, memory_budget=None,
        spill_bytes_max=0, snapshots=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
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
    ) -> Result<Self, Fault> {
        entry(|| {
            if let Ok(memory) = source.cast::<NativeMemory>() {
                return Ok(Self::over(Opened { reader: memory.get().reader()?, again: None }));
            }
            if let Ok(opened) = source.cast::<OpenedReader>() {
                return Ok(Self::over(opened.get().take()?));
            }
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
            Ok(Self::over(process::wait(py, open(py, source, &opening.wanted(store)?)?)??))
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
        key, field, default=Default(None), *, after=None, latest=false, max_age=None, timeout=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        field: &Bound<'py, PyAny>,
        default: Default<'py>,
        after: Option<&[u8]>,
        latest: bool,
        max_age: Option<f64>,
        timeout: Option<f64>,
    ) -> Result<Bound<'py, PyAny>, Fault> {
        entry(|| {
            let (reader, timeout) = self.attached.reader(py, timeout)?;
            let how = How::of(after, latest, max_age, timeout)?;
            let key = key_of(key)?;
            how.wait(py, &reader, |reader| Ok(vec![reader.partition_of(key)?]))?;
            let field = self.field_of(&reader, field)?;
            let read = reader
                .read_local(how.max_age, |view| read_field(py, view, &field.get().handle, key))?;
            match read {
                FieldRead::Absent => Ok(default.object(py)?),
                FieldRead::Null => Ok(py.None().into_bound(py)),
                FieldRead::Value(got) => got.into_object(py),
            }
        })
    }

    /// Copies a string (as UTF-8) or bytes field to the start of a writable buffer and returns its
    /// length in bytes; None for null, `ABSENT` for absent. A length above the buffer's is the size
    /// that the value needs: nothing was copied.
    #[pyo3(signature = (
        key, field, buffer, *, after=None, latest=false, max_age=None, timeout=None
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
        max_age: Option<f64>,
        timeout: Option<f64>,
    ) -> Result<Bound<'py, PyAny>, Fault> {
        entry(|| {
            let (reader, timeout) = self.attached.reader(py, timeout)?;
            let how = How::of(after, latest, max_age, timeout)?;
            let key = key_of(key)?;
            let mut out = OutArray::check_bytes(buffer)?;
            how.wait(py, &reader, |reader| Ok(vec![reader.partition_of(key)?]))?;
            let field = self.field_of(&reader, field)?;
            let copied = reader.read_local(how.max_age, |view| {
                // SAFETY: only this read uses the slice: the interpreter is held and no code of it
                // runs before the slice ends.
                #[allow(unsafe_code)]
                let out = unsafe { out.as_mut_slice() };
                copy_field(view, &field.get().handle, key, out)
            })?;
            match copied {
                CopyOut::Absent => Ok(Default(None).object(py)?),
                CopyOut::Null => Ok(py.None().into_bound(py)),
                CopyOut::Length(bytes) | CopyOut::SizeNeeded(bytes) => {
                    Ok(bytes.into_pyobject(py)?.into_any())
                }
            }
        })
    }

    /// Returns whether a field of a document is absent, null or a value.
    #[pyo3(signature = (key, field, *, after=None, latest=false, max_age=None, timeout=None))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn presence<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        field: &Bound<'py, PyAny>,
        after: Option<&[u8]>,
        latest: bool,
        max_age: Option<f64>,
        timeout: Option<f64>,
    ) -> Result<Bound<'py, PyAny>, Fault> {
        entry(|| {
            let (reader, timeout) = self.attached.reader(py, timeout)?;
            let how = How::of(after, latest, max_age, timeout)?;
            let key = key_of(key)?;
            how.wait(py, &reader, |reader| Ok(vec![reader.partition_of(key)?]))?;
            let field = self.field_of(&reader, field)?;
            let found =
                reader.read_local(how.max_age, |view| view.presence(&field.get().handle, key))?;
            Ok(class(py, "forebay._model", "Presence")?.call1((presence_code(found),))?)
        })
    }

    /// Returns a whole document as a dict, or None if it does not exist. Copies every field: read
    /// single fields by `get`.
    #[pyo3(signature = (key, *, after=None, latest=false, max_age=None, timeout=None))]
    fn get_document<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        after: Option<&[u8]>,
        latest: bool,
        max_age: Option<f64>,
        timeout: Option<f64>,
    ) -> Result<Option<Bound<'py, PyAny>>, Fault> {
        entry(|| {
            let (reader, timeout) = self.attached.reader(py, timeout)?;
            let how = How::of(after, latest, max_age, timeout)?;
            let key = key_of(key)?;
            how.wait(py, &reader, |reader| Ok(vec![reader.partition_of(key)?]))?;
            let document = reader.read_local(how.max_age, |view| view.get_document(key))?;
            document.map(|document| document_object(py, &reader, &document)).transpose()
        })
    }

    /// Returns one field of many documents, in the order of the keys. `statuses`, an array of
    /// uint8, takes a `KeyStatus` per key; without `statuses`, a key whose partition does not
    /// answer raises an error.
    #[pyo3(signature = (
        keys, field, default=Default(None), *, statuses=None, after=None, latest=false,
        max_age=None, timeout=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        field: &Bound<'py, PyAny>,
        default: Default<'py>,
        statuses: Option<&Bound<'py, PyAny>>,
        after: Option<&[u8]>,
        latest: bool,
        max_age: Option<f64>,
        timeout: Option<f64>,
    ) -> Result<Bound<'py, PyList>, Fault> {
        entry(|| {
            let (reader, timeout) = self.attached.reader(py, timeout)?;
            let how = How::of(after, latest, max_age, timeout)?;
            let keys = KeyObjects::of(keys)?;
            let keys = keys.keys()?;
            let mut statuses = check_statuses(statuses, &keys)?;
            how.wait(py, &reader, |reader| reader.partitions_of(&keys))?;
            let field = self.field_of(&reader, field)?;
            let default = default.object(py)?;
            let asked = Many { keys: &keys, max_age: how.max_age, statuses: statuses.is_some() };
            let (objects, codes) = read_values(py, &reader, &asked, &field.get().handle, &default)?;
            let objects = PyList::new(py, objects)?;
            statuses.iter_mut().for_each(|statuses| statuses.fill(codes.iter().copied()));
            Ok(objects)
        })
    }

    /// Reads a string or bytes field of many documents as four buffers; `Reader.get_packed` is the
    /// convenient form.
    #[pyo3(signature = (keys, field, *, after=None, latest=false, max_age=None, timeout=None))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn packed<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        field: &Bound<'py, PyAny>,
        after: Option<&[u8]>,
        latest: bool,
        max_age: Option<f64>,
        timeout: Option<f64>,
    ) -> Result<Packed<'py>, Fault> {
        entry(|| {
            let (reader, timeout) = self.attached.reader(py, timeout)?;
            let how = How::of(after, latest, max_age, timeout)?;
            let keys = KeyObjects::of(keys)?;
            let keys = keys.keys()?;
            how.wait(py, &reader, |reader| reader.partitions_of(&keys))?;
            let field = self.field_of(&reader, field)?;
            read_packed(py, &reader, &keys, how.max_age, &field.get().handle)
        })
    }

    /// Returns many documents, None for each that does not exist. `statuses` is as for `get_many`.
    #[pyo3(signature = (
        keys, *, statuses=None, after=None, latest=false, max_age=None, timeout=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn get_documents<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        statuses: Option<&Bound<'py, PyAny>>,
        after: Option<&[u8]>,
        latest: bool,
        max_age: Option<f64>,
        timeout: Option<f64>,
    ) -> Result<Bound<'py, PyList>, Fault> {
        entry(|| {
            let (reader, timeout) = self.attached.reader(py, timeout)?;
            let how = How::of(after, latest, max_age, timeout)?;
            let keys = KeyObjects::of(keys)?;
            let keys = keys.keys()?;
            let mut statuses = check_statuses(statuses, &keys)?;
            how.wait(py, &reader, |reader| reader.partitions_of(&keys))?;
            let asked = Many { keys: &keys, max_age: how.max_age, statuses: statuses.is_some() };
            let (found, codes) = read_documents(py, &reader, &asked)?;
            let objects = found.into_iter().map(|document| {
                document.map(|document| document_object(py, &reader, &document)).transpose()
            });
            let objects = PyList::new(py, objects.collect::<Result<Vec<_>, Fault>>()?)?;
            statuses.iter_mut().for_each(|statuses| statuses.fill(codes.iter().copied()));
            Ok(objects)
        })
    }

    /// Resolves a field by name or earlier name, to be read as a type: its own unless given, a type
    /// that widens to it, or a type that it widens to. Raises `NotFound` and `InvalidArgument`.
    #[pyo3(signature = (name, r#type=None))]
    fn field(&self, py: Python<'_>, name: &str, r#type: Option<&str>) -> Result<Handle, Fault> {
        entry(|| {
            let reader = self.reader(py)?;
            let handle = match r#type {
                Some(asked) => reader.handle(name, field_type_of(asked)?)?,
                None => reader.handle_of_own_type(name)?,
            };
            Ok(Handle { handle, store: self.store })
        })
    }

    /// Plans a gather; `Reader.plan` is the convenient form.
    #[pyo3(signature = (fields, dtype, lossy))]
    fn plan_gather(
        &self,
        fields: &Bound<'_, PyAny>,
        dtype: &str,
        lossy: bool,
    ) -> Result<Plan, Fault> {
        entry(|| plan_gather(&*self.reader(fields.py())?, self.store, fields, dtype, lossy))
    }

    /// Fills arrays; `Reader.gather` is the convenient form.
    #[pyo3(signature = (
        plan, keys, out, *, mask=None, statuses=None, after=None, latest=false, max_age=None,
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
        max_age: Option<f64>,
        timeout: Option<f64>,
    ) -> Result<(), Fault> {
        entry(|| {
            let (reader, timeout) = self.attached.reader(py, timeout)?;
            plan.check_store(self.store)?;
            let how = How::of(after, latest, max_age, timeout)?;
            let keys = KeyObjects::of(keys)?;
            let keys = keys.keys()?;
            how.wait(py, &reader, |reader| reader.partitions_of(&keys))?;
            gather(py, &reader, plan, &keys, &Arrays { out, mask, statuses }, how.max_age)
        })
    }

    /// Starts a scan; `Reader.iterate` is the convenient form.
    fn scan(&self, py: Python<'_>) -> Result<NativeScan, Fault> {
        entry(|| Ok(NativeScan::new(&*self.reader(py)?)))
    }

    /// Returns up to `documents_max` more keys and documents of a scan; none at its end.
    #[pyo3(signature = (scan, documents_max, max_age=None))]
    fn scan_next<'py>(
        &self,
        py: Python<'py>,
        scan: &NativeScan,
        documents_max: usize,
        max_age: Option<f64>,
    ) -> Result<Vec<Scanned<'py>>, Fault> {
        entry(|| {
            let max_age = max_age.map(duration_of).transpose()?;
            scan.next(py, &*self.reader(py)?, max_age, documents_max)
        })
    }

    /// Waits until every followed partition serves fresh data, at most `timeout` seconds. Raises
    /// `Unavailable` with phase, percent and remaining time.
    fn await_ready(&self, py: Python<'_>, timeout: f64) -> Result<(), Fault> {
        entry(|| {
            let (reader, left) = self.attached.reader(py, Some(timeout))?;
            let (reader, timeout) = (reader.to_arc(), duration_of(left.unwrap_or(timeout))?);
            Ok(wait_for(py, &reader, reader.await_ready(timeout))??)
        })
    }

    /// Waits until everything that the token covers is applied, at most `timeout` seconds.
    fn wait_token(&self, py: Python<'_>, token: &[u8], timeout: f64) -> Result<(), Fault> {
        entry(|| {
            let (reader, left) = self.attached.reader(py, Some(timeout))?;
            let (reader, timeout) = (reader.to_arc(), duration_of(left.unwrap_or(timeout))?);
            let token = Token::decode(token)?;
            Ok(wait_for(py, &reader, reader.wait_token(&token, timeout))??)
        })
    }

    /// Returns the call that reopens the reader in a forked child, for an event loop; None if
    /// nothing is to be done.
    #[pyo3(signature = (timeout=None))]
    fn attach_call(&self, py: Python<'_>, timeout: Option<f64>) -> Result<Option<Call>, Fault> {
        entry(|| {
            if !self.attached.is_due() {
                return Ok(None);
            }
            log::start(py)?;
            let within = timeout.map(duration_of).transpose()?;
            let attached = Arc::clone(&self.attached);
            Ok(Some(Call::new(async move {
                attached.open_again(within).await.map(|()| Answer::Nothing)
            })))
        })
    }

    /// Returns the call of `await_ready`, for an event loop.
    fn await_ready_call(&self, timeout: f64) -> Result<Call, Fault> {
        entry(|| {
            let (reader, timeout) = (self.attached.get()?.to_arc(), duration_of(timeout)?);
            Ok(Call::new(
                async move { reader.await_ready(timeout).await.map(|()| Answer::Nothing) },
            ))
        })
    }

    /// Returns the call of `wait_token`, for an event loop.
    fn wait_token_call(&self, token: &[u8], timeout: f64) -> Result<Call, Fault> {
        entry(|| {
            let (reader, timeout) = (self.attached.get()?.to_arc(), duration_of(timeout)?);
            let token = Token::decode(token)?;
            Ok(Call::new(async move {
                reader.wait_token(&token, timeout).await.map(|()| Answer::Nothing)
            }))
        })
    }

    /// Returns the call of the wait of a read of these keys, for an event loop.
    #[pyo3(signature = (keys, *, after=None, latest=false, timeout=None))]
    fn wait_call(
        &self,
        keys: &Bound<'_, PyAny>,
        after: Option<&[u8]>,
        latest: bool,
        timeout: Option<f64>,
    ) -> Result<Call, Fault> {
        entry(|| {
            let reader = self.attached.get()?;
            let how = How::of(after, latest, None, timeout)?;
            let partitions = reader.partitions_of(&KeyObjects::of(keys)?.keys()?)?;
            Ok(how.call(&reader, partitions))
        })
    }

    /// Closes the reader, and returns the call that waits for the last checkpoints.
    fn close_call(&self, timeout: f64) -> Result<Call, Fault> {
        entry(|| {
            let timeout = duration_of(timeout)?;
            let taken = self.attached.take();
            let (name, keeps) = (self.name.clone(), self.attached.keeps_checkpoints());
            Ok(Call::new(async move {
                let Some(reader) = taken else { return Ok::<_, Error>(Answer::Nothing) };
                reader.close();
                if keeps && let Err(error) = reader.shut_down(timeout).await {
                    tracing::warn!(store = %name, %error, "closed without the last checkpoints");
                }
                Ok(Answer::Nothing)
            }))
        })
    }

    /// Whether the process should get traffic.
    #[getter]
    fn is_ready(&self, py: Python<'_>) -> Result<bool, Fault> {
        entry(|| Ok(self.reader(py)?.is_ready()))
    }

    /// Newest schema version that any partition has seen; 0 before the first entry.
    #[getter]
    fn schema_version(&self, py: Python<'_>) -> Result<u32, Fault> {
        entry(|| Ok(self.reader(py)?.schema_version().0))
    }

    /// Returns the definition at the schema version `schema_version`.
    fn schema<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>, Fault> {
        entry(|| definition_object(py, &self.reader(py)?.schema().definition))
    }

    /// Returns the current status of the reader and of each of its partitions.
    fn status<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>, Fault> {
        entry(|| status_object(py, &self.reader(py)?.status()))
    }

    /// Returns counts and sizes since the reader was opened.
    fn metrics<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>, Fault> {
        entry(|| metrics_object(py, &self.reader(py)?.metrics()))
    }

    /// Compares the reader's copy of a partition with the shard of the connected node, at one
    /// position, and names the documents that differ. Waits at most `timeout` seconds for the
    /// shard, and then until the reader has reached the same position. Reads both completely, the
    /// shard over the network; while the reader's copy is read, the partition applies no entries
    /// but still answers reads. Raises `Unsupported` for an in-memory reader, and if another reader
    /// of the directory maintains the copy.
    #[pyo3(signature = (partition, timeout=60.0))]
    fn verify<'py>(
        &self,
        py: Python<'py>,
        partition: u32,
        timeout: f64,
    ) -> Result<Bound<'py, PyAny>, Fault> {
        entry(|| {
            let (reader, left) = self.attached.reader(py, Some(timeout))?;
            let (reader, timeout) = (reader.to_arc(), duration_of(left.unwrap_or(timeout))?);
            let verified = wait_for(py, &reader, verified(&reader, partition, timeout))??;
            verified.into_object(py)
        })
    }

    /// Returns the call of `verify`, for an event loop.
    fn verify_call(&self, partition: u32, timeout: f64) -> Result<Call, Fault> {
        entry(|| {
            let (reader, timeout) = (self.attached.get()?.to_arc(), duration_of(timeout)?);
            let is_local = reader.is_in_memory();
            let call = Call::new(async move {
                let verified = verified(&reader, partition, timeout).await;
                verified.map(|verified| Answer::Verified(Box::new(verified)))
            });
            Ok(call.local(is_local))
        })
    }

    /// Calls back with each schema version that the reader reaches from now on, in order, on a
    /// separate thread. Exceptions of the callback go to `sys.unraisablehook`.
    fn on_schema_change(&self, py: Python<'_>, callback: Py<PyAny>) -> Result<(), Fault> {
        entry(|| {
            let reader = self.reader(py)?;
            let (versions, mut to_tell) = tokio::sync::mpsc::unbounded_channel();
            let callback = Arc::new(callback);
            // The tail waits for its callback, and must not wait for the interpreter.
            process::spawn(async move {
                while let Some(version) = to_tell.recv().await {
                    let callback = Arc::clone(&callback);
                    let told = tokio::task::spawn_blocking(move || tell(&callback, version));
                    if told.await.is_err() {
                        return;
                    }
                }
            })?;
            reader.on_schema_change(Arc::new(move |schema| {
                // The send fails once the process ends and no receiver is left.
                let _ = versions.send(schema.definition.version.0);
            }));
            Ok(())
        })
    }

    /// Closes the reader: reads in flight end, later ones raise `Closed`, and the memory is freed
    /// after the last of them. A reader with checkpoints writes a last checkpoint of each
    /// partition, and this call waits for them, at most `timeout` seconds. A second close changes
    /// nothing.
    #[pyo3(signature = (timeout=10.0))]
    fn close(&self, py: Python<'_>, timeout: f64) -> Result<(), Fault> {
        entry(|| {
            let timeout = duration_of(timeout)?;
            let Some(reader) = self.attached.take() else { return Ok(()) };
            reader.close();
            if self.attached.keeps_checkpoints()
                && let Err(error) = process::wait(py, reader.shut_down(timeout))?
            {
                tracing::warn!(store = %self.name, %error, "closed without the last checkpoints");
            }
            Ok(())
        })
    }
}

impl NativeReader {
    fn over(opened: Opened) -> Self {
        let (store, name) =
            (opened.reader.schema().definition.store, opened.reader.store().to_owned());
        Self { attached: Arc::new(Attached::new(opened)), store, name }
    }

    /// Returns the reader, for a call without a timeout of its own.
    fn reader(&self, py: Python<'_>) -> Result<Owned<Reader>, Fault> {
        Ok(self.attached.reader(py, None)?.0)
    }

    /// Returns the handle that a read is given, or resolves the name that it is given. Called after
    /// the read's wait, because the wait may be for the field itself.
    fn field_of<'py>(
        &self,
        reader: &Reader,
        field: &Bound<'py, PyAny>,
    ) -> Result<Bound<'py, Handle>, Fault> {
        if let Ok(name) = field.cast::<PyString>() {
            let handle = reader.handle_of_own_type(crate::value::text_of(name)?)?;
            return Ok(Bound::new(field.py(), Handle { handle, store: self.store })?);
        }
        let handle = field.cast::<Handle>().map_err(PyErr::from)?;
        if handle.get().store != self.store {
            let message = "the handle is of another store; resolve one on this reader";
            return Err(Error::invalid_argument(message).with_field(handle.get().name()).into());
        }
        Ok(handle.clone())
    }
}

async fn verified(
    reader: &Reader,
    partition: u32,
    timeout: Duration,
) -> forebay::Result<FoundVerified> {
    let verified = reader.verify(PartitionId(partition), timeout).await?;
    Ok(FoundVerified { verified, definition: reader.schema().definition.clone() })
}

/// Calls a Python callback, unless the interpreter is shutting down.
fn tell(callback: &Py<PyAny>, version: u32) {
    Python::try_attach(|py| {
        if let Err(raised) = callback.call1(py, (version,)) {
            raised.write_unraisable(py, Some(callback.bind(py)));
        }
    });
}
