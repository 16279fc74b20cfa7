//! The embedded reader: gets, batches and waits.
//!
//! A local get keeps the interpreter, since it takes less time than giving it back would. Batches,
//! gathers, scans and waits release it.

use std::convert::Infallible;
use std::time::Duration;

use forebay::{
    Document, DocumentKey, Error, FieldHandle, FieldRead, FieldType, KeyAnswer, KeyList, KeyStatus,
    PartitionFilter, PartitionId, Read, Reader, ReaderOptions, ScalarType, StoreId, Value, View,
};
use forebay_wire::token::Token;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};

use crate::buffer::OutArray;
use crate::client::NativeClient;
use crate::fault::{Fault, entry};
use crate::gather::{Arrays, Plan, gather, plan_gather, status_code};
use crate::key::{GivenKey, GivenKeys};
use crate::process::{self, Owned, ProcessOwned};
use crate::python::class;
use crate::scan::{NativeScan, Scanned};
use crate::schema::{definition_object, duration_of, field_type_of};
use crate::status::{metrics_object, status_object};
use crate::value::object_of;

/// Seconds that a read waits for a token or a barrier, unless it says so.
const READ_TIMEOUT: f64 = 10.0;

/// A field as a reader holds it: resolved once, then bound to its id and type.
#[pyclass(frozen, name = "FieldHandle", module = "forebay")]
pub(crate) struct Handle {
    handle: FieldHandle,
    store: StoreId,
}

#[pymethods]
impl Handle {
    /// The name that it was resolved by.
    #[getter]
    fn name(&self) -> &str {
        self.handle.name()
    }

    /// The type that it is read as.
    #[getter]
    fn r#type(&self) -> String {
        self.handle.asked().to_string()
    }

    fn __repr__(&self) -> String {
        format!("<forebay.FieldHandle {}: {}>", self.handle.name(), self.handle.asked())
    }
}

/// What a read answers for absent: what the caller gave, None included, or `ABSENT`.
pub(crate) struct Default<'py>(Option<Bound<'py, PyAny>>);

impl<'py> FromPyObject<'_, 'py> for Default<'py> {
    type Error = Infallible;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> Result<Self, Infallible> {
        Ok(Self(Some(object.to_owned())))
    }
}

impl<'py> Default<'py> {
    fn object(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.0.map_or_else(|| class(py, "forebay._model", "ABSENT"), Ok)
    }
}

/// How a read is made, beyond local.
struct How {
    read: Read,
    waits: bool,
    max_age: Option<Duration>,
}

impl How {
    fn of(
        after: Option<&[u8]>,
        latest: bool,
        max_age: Option<f64>,
        timeout: Option<f64>,
    ) -> Result<Self, Fault> {
        let max_age = max_age.map(duration_of).transpose()?;
        let timeout = || duration_of(timeout.unwrap_or(READ_TIMEOUT));
        let read = match (after, latest) {
            (None, false) => Read::local(),
            (Some(token), false) => Read::after_token(Token::decode(token)?, timeout()?),
            (None, true) => Read::latest(timeout()?),
            (Some(_), true) => {
                let message = "the latest is never before a token; give one of the two";
                return Err(Error::invalid_argument(message).into());
            }
        };
        Ok(Self { read, waits: after.is_some() || latest, max_age })
    }

    /// Waits for what the read asks for.
    fn wait(
        &self,
        py: Python<'_>,
        reader: &Owned<Reader>,
        partitions: impl FnOnce(&Reader) -> forebay::Result<Vec<PartitionId>>,
    ) -> Result<(), Fault> {
        if !self.waits {
            return Ok(());
        }
        let reader = reader.to_arc();
        let partitions = partitions(&reader)?;
        Ok(process::wait(py, reader.wait(&self.read, &partitions))??)
    }
}

/// The live copy of a store in this process.
#[pyclass(frozen, subclass, name = "Reader", module = "forebay._native")]
pub(crate) struct NativeReader {
    reader: ProcessOwned<Reader>,
    store: StoreId,
    name: String,
}

#[pymethods]
impl NativeReader {
    #[new]
    #[pyo3(signature = (
        source, store, *, partitions=None, serve_partial=false, ready_age_max=None,
        open_timeout=None
    ))]
    fn new(
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        store: &str,
        partitions: Option<Vec<u32>>,
        serve_partial: bool,
        ready_age_max: Option<f64>,
        open_timeout: Option<f64>,
    ) -> Result<Self, Fault> {
        entry(|| {
            let mut options = ReaderOptions::new(store);
            if let Some(partitions) = partitions {
                let partitions = partitions.into_iter().map(PartitionId).collect();
                options.partitions = PartitionFilter::Only(partitions);
            }
            options.serve_partial = serve_partial;
            let or = |given: Option<f64>, unless| given.map_or(Ok(unless), duration_of);
            options.ready_age_max = or(ready_age_max, options.ready_age_max)?;
            options.open_timeout = or(open_timeout, options.open_timeout)?;
            let reader = match source.cast::<NativeClient>() {
                Ok(client) => {
                    let client = client.get().client()?;
                    process::wait(py, async { client.reader(options).await })??
                }
                Err(_) => {
                    let endpoint: String = source.extract()?;
                    process::wait(py, async { Reader::open(&endpoint, options).await })??
                }
            };
            let (store, name) = (reader.schema().definition.store, reader.store().to_owned());
            Ok(Self { reader: ProcessOwned::new("reader", reader), store, name })
        })
    }

    /// Name of its store.
    #[getter]
    fn store(&self) -> &str {
        &self.name
    }

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
            let reader = self.reader.get()?;
            let how = How::of(after, latest, max_age, timeout)?;
            let (key, field) = (GivenKey::of(key)?, self.field_of(&reader, field)?);
            let key = key.key();
            how.wait(py, &reader, |reader| Ok(vec![reader.partition_of(key)?]))?;
            let read =
                reader.read_local(how.max_age, |view| read_field(py, view, field.get(), key))?;
            match read {
                FieldRead::Absent => Ok(default.object(py)?),
                FieldRead::Null => Ok(py.None().into_bound(py)),
                FieldRead::Value(Got::Object(object)) => Ok(object),
                FieldRead::Value(Got::Value(value)) => object_of(py, &value),
            }
        })
    }

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
            let reader = self.reader.get()?;
            let how = How::of(after, latest, max_age, timeout)?;
            let key = GivenKey::of(key)?;
            how.wait(py, &reader, |reader| Ok(vec![reader.partition_of(key.key())?]))?;
            let document = reader.read_local(how.max_age, |view| view.get_document(key.key()))?;
            document.map(|document| document_object(py, &reader, &document)).transpose()
        })
    }

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
            let reader = self.reader.get()?;
            let how = How::of(after, latest, max_age, timeout)?;
            let (keys, field) = (GivenKeys::of(keys)?, self.field_of(&reader, field)?);
            let mut statuses = check_statuses(statuses, &keys)?;
            how.wait(py, &reader, |reader| reader.partitions_of(&keys))?;
            let handle = &field.get().handle;
            let (found, codes) =
                read_many(py, &reader, &keys, how.max_age, statuses.is_some(), |row| {
                    row.value(handle)
                })?;
            let default = default.object(py)?;
            let objects = found.into_iter().map(|found| match found {
                None | Some(FieldRead::Absent) => Ok(default.clone()),
                Some(FieldRead::Null) => Ok(py.None().into_bound(py)),
                Some(FieldRead::Value(value)) => object_of(py, &value),
            });
            let objects = PyList::new(py, objects.collect::<Result<Vec<_>, Fault>>()?)?;
            statuses.iter_mut().for_each(|statuses| statuses.fill(codes.iter().copied()));
            Ok(objects)
        })
    }

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
            let reader = self.reader.get()?;
            let how = How::of(after, latest, max_age, timeout)?;
            let keys = GivenKeys::of(keys)?;
            let mut statuses = check_statuses(statuses, &keys)?;
            how.wait(py, &reader, |reader| reader.partitions_of(&keys))?;
            let (found, codes) =
                read_many(py, &reader, &keys, how.max_age, statuses.is_some(), |row| {
                    row.document()
                })?;
            let objects = found.into_iter().map(|document| {
                document.map(|document| document_object(py, &reader, &document)).transpose()
            });
            let objects = PyList::new(py, objects.collect::<Result<Vec<_>, Fault>>()?)?;
            statuses.iter_mut().for_each(|statuses| statuses.fill(codes.iter().copied()));
            Ok(objects)
        })
    }

    #[pyo3(signature = (name, r#type=None))]
    fn field(&self, name: &str, r#type: Option<&str>) -> Result<Handle, Fault> {
        entry(|| {
            let reader = self.reader.get()?;
            let handle = match r#type {
                Some(asked) => reader.handle(name, field_type_of(asked)?)?,
                None => reader.handle_of_own_type(name)?,
            };
            Ok(Handle { handle, store: self.store })
        })
    }

    #[pyo3(signature = (fields, dtype, lossy))]
    fn plan_gather(
        &self,
        fields: &Bound<'_, PyAny>,
        dtype: &str,
        lossy: bool,
    ) -> Result<Plan, Fault> {
        entry(|| plan_gather(&*self.reader.get()?, self.store, fields, dtype, lossy))
    }

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
            let reader = self.reader.get()?;
            plan.check_store(self.store)?;
            let how = How::of(after, latest, max_age, timeout)?;
            let keys = GivenKeys::of(keys)?;
            how.wait(py, &reader, |reader| reader.partitions_of(&keys))?;
            gather(py, &reader, plan, &keys, &Arrays { out, mask, statuses }, how.max_age)
        })
    }

    fn scan(&self) -> Result<NativeScan, Fault> {
        entry(|| Ok(NativeScan::new(&*self.reader.get()?)))
    }

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
            scan.next(py, &*self.reader.get()?, max_age, documents_max)
        })
    }

    fn await_ready(&self, py: Python<'_>, timeout: f64) -> Result<(), Fault> {
        entry(|| {
            let (reader, timeout) = (self.reader.get()?.to_arc(), duration_of(timeout)?);
            Ok(process::wait(py, reader.await_ready(timeout))??)
        })
    }

    fn wait_token(&self, py: Python<'_>, token: &[u8], timeout: f64) -> Result<(), Fault> {
        entry(|| {
            let (reader, timeout) = (self.reader.get()?.to_arc(), duration_of(timeout)?);
            let token = Token::decode(token)?;
            Ok(process::wait(py, reader.wait_token(&token, timeout))??)
        })
    }

    #[getter]
    fn is_ready(&self) -> Result<bool, Fault> {
        entry(|| Ok(self.reader.get()?.is_ready()))
    }

    #[getter]
    fn schema_version(&self) -> Result<u32, Fault> {
        entry(|| Ok(self.reader.get()?.schema_version().0))
    }

    fn schema<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>, Fault> {
        entry(|| definition_object(py, &self.reader.get()?.schema().definition))
    }

    fn status<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>, Fault> {
        entry(|| status_object(py, &self.reader.get()?.status()))
    }

    fn metrics<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>, Fault> {
        entry(|| metrics_object(py, &self.reader.get()?.metrics()))
    }

    fn close(&self) {
        if let Some(reader) = self.reader.take() {
            reader.close();
        }
    }
}

impl NativeReader {
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

/// A value that was found: text and bytes become objects in place, without a copy in between.
enum Got<'py> {
    Object(Bound<'py, PyAny>),
    Value(Value),
}

fn read_field<'py>(
    py: Python<'py>,
    view: &View<'_>,
    field: &Handle,
    key: DocumentKey<'_>,
) -> forebay::Result<FieldRead<Got<'py>>> {
    let handle = &field.handle;
    let Some(row) = view.get(key)? else { return Ok(FieldRead::Absent) };
    match handle.asked() {
        FieldType::Scalar(ScalarType::String) => {
            row.str(handle)?.try_map(|text| Ok(Got::Object(PyString::new(py, text).into_any())))
        }
        FieldType::Scalar(ScalarType::Bytes) => {
            row.bytes(handle)?.try_map(|bytes| Ok(Got::Object(PyBytes::new(py, bytes).into_any())))
        }
        _ => row.value(handle)?.try_map(|value| Ok(Got::Value(value))),
    }
}

fn check_statuses(
    statuses: Option<&Bound<'_, PyAny>>,
    keys: &GivenKeys,
) -> Result<Option<OutArray<u8>>, Fault> {
    let check = |all| OutArray::check(all, "statuses", "uint8", keys.count(), None);
    statuses.map(check).transpose()
}

/// Reads many documents with the interpreter released. Without statuses a key whose partition does
/// not answer is an error, for it would pass for an absent one.
fn read_many<T: Send>(
    py: Python<'_>,
    reader: &Reader,
    keys: &GivenKeys,
    max_age: Option<Duration>,
    with_statuses: bool,
    read: impl Fn(&forebay::RowRef<'_>) -> forebay::Result<T> + Sync,
) -> Result<(Vec<Option<T>>, Vec<u8>), Fault> {
    let answers = py.detach(|| {
        reader.read_local(max_age, |view| {
            let (mut found, mut codes) = (Vec::new(), Vec::new());
            view.multi_get(keys, |place, answer| {
                codes.push(status_code(answer.status()));
                found.push(match answer {
                    KeyAnswer::Found(row) => Some(read(&row)?),
                    KeyAnswer::None(KeyStatus::Absent) => None,
                    KeyAnswer::None(_) if with_statuses => None,
                    // The single read says why.
                    KeyAnswer::None(_) => {
                        view.get(keys.key(place))?.map(|row| read(&row)).transpose()?
                    }
                });
                Ok(())
            })?;
            Ok((found, codes))
        })
    });
    Ok(answers?)
}

/// The dict of a document: absent fields are missing, null ones None.
pub(crate) fn document_object<'py>(
    py: Python<'py>,
    reader: &Reader,
    document: &Document,
) -> Result<Bound<'py, PyAny>, Fault> {
    // Taken after the document, so that it is no older; a field dropped in between is absent.
    let schema = reader.schema();
    let fields = PyDict::new(py);
    for cell in document.cells() {
        let Some(field) = schema.definition.field_by_id(cell.field) else { continue };
        let value = cell.value.as_ref().map(|value| object_of(py, value)).transpose()?;
        fields.set_item(&field.name, value)?;
    }
    Ok(fields.into_any())
}
