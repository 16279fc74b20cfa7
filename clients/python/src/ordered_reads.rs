//! Ordered reads: documents by key, and scans in the order of the keys, over the network.

use std::ops;

use forebay::reads::{Document, KeyList, OrderedReads, OrderedScan, OrderedStream};
use forebay::schema::KeyValue;
use forebay::{Error, Store};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use tokio::sync::Mutex;

use crate::call::Call;
use crate::error::{CallError, exception, native_call};
use crate::key::{KeyObjects, OwnedKey, key_object, key_of};
use crate::process::ProcessOwned;
use crate::python::IntoPython;
use crate::read_options::ReadArguments;
use crate::results::document_of;

/// Ordered reads of one store.
#[pyclass(frozen, name = "OrderedReads", module = "forebay._native")]
pub(crate) struct NativeOrdered {
    store_reads: ProcessOwned<StoreReads>,
}

struct StoreReads {
    store: Store,
    reads: OrderedReads,
}

impl NativeOrdered {
    pub(crate) fn new(store: &Store) -> Result<Self, CallError> {
        let store_reads = StoreReads { store: store.clone(), reads: store.ordered()? };
        Ok(Self { store_reads: ProcessOwned::new("store", store_reads) })
    }
}

/// Documents of a read, with the store whose definition names their fields.
pub(crate) struct FoundDocuments {
    store: Store,
    found: Vec<forebay::Result<Option<Document>>>,
    /// Whether the read was for one document.
    is_one: bool,
}

impl IntoPython for FoundDocuments {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let definition = self.store.definition();
        let object = |found: Option<Document>| match found {
            Some(document) => document_of(py, &definition, &document),
            None => Ok(py.None().into_bound(py)),
        };
        if self.is_one {
            let only_document = self.found.into_iter().next();
            let only_document = only_document.transpose().map_err(CallError::from)?.flatten();
            return Ok(object(only_document)?);
        }
        let objects = self.found.into_iter().map(|found| match found {
            Ok(found) => object(found),
            Err(error) => Ok(exception(py, &error, None)?),
        });
        Ok(PyList::new(py, objects.collect::<Result<Vec<_>, CallError>>()?)?.into_any())
    }
}

#[pymethods]
impl NativeOrdered {
    #[pyo3(signature = (key, after=None, latest=false, max_staleness=None, timeout=None))]
    fn get(
        &self,
        key: &Bound<'_, PyAny>,
        after: Option<&[u8]>,
        latest: bool,
        max_staleness: Option<f64>,
        timeout: Option<f64>,
    ) -> Result<Call, CallError> {
        native_call(|| {
            let (store_reads, key) = (self.store_reads.get()?.to_arc(), OwnedKey::of(key_of(key)?));
            let read = ReadArguments::of(after, latest, max_staleness, timeout)?.into_read();
            Ok(Call::new(async move {
                let found = store_reads.reads.get(&read, key.key()).await;
                let store = store_reads.store.clone();
                let found = FoundDocuments { store, found: vec![Ok(found?)], is_one: true };
                Ok::<_, Error>(found)
            }))
        })
    }

    #[pyo3(signature = (keys, after=None, latest=false, max_staleness=None, timeout=None))]
    fn get_many(
        &self,
        keys: &Bound<'_, PyAny>,
        after: Option<&[u8]>,
        latest: bool,
        max_staleness: Option<f64>,
        timeout: Option<f64>,
    ) -> Result<Call, CallError> {
        native_call(|| {
            let (store_reads, objects) = (self.store_reads.get()?.to_arc(), KeyObjects::of(keys)?);
            let key_list = objects.keys()?;
            let keys: Vec<_> =
                (0..key_list.count()).map(|place| OwnedKey::of(key_list.key(place))).collect();
            let read = ReadArguments::of(after, latest, max_staleness, timeout)?.into_read();
            Ok(Call::new(async move {
                let keys: Vec<_> = keys.iter().map(OwnedKey::key).collect();
                let found = store_reads.reads.get_many(&read, &keys[..]).await?;
                let store = store_reads.store.clone();
                Ok::<_, Error>(FoundDocuments { store, found, is_one: false })
            }))
        })
    }

    /// Creates a scan, without sending anything.
    #[allow(clippy::too_many_arguments, reason = "Python's keywords")]
    #[pyo3(signature = (
        *, partition_key=None, start=None, start_inclusive=true, end=None, end_inclusive=false,
        prefix=None, fields=None, reverse=false, limit=None, cursor=None,
        allow_snapshot_change=false, after=None, latest=false, max_staleness=None, timeout=None
    ))]
    fn scan(
        &self,
        partition_key: Option<Bound<'_, PyAny>>,
        start: Option<Bound<'_, PyAny>>,
        start_inclusive: bool,
        end: Option<Bound<'_, PyAny>>,
        end_inclusive: bool,
        prefix: Option<Bound<'_, PyAny>>,
        fields: Option<Vec<String>>,
        reverse: bool,
        limit: Option<u64>,
        cursor: Option<Vec<u8>>,
        allow_snapshot_change: bool,
        after: Option<&[u8]>,
        latest: bool,
        max_staleness: Option<f64>,
        timeout: Option<f64>,
    ) -> Result<NativeOrderedScan, CallError> {
        native_call(|| {
            let store_reads = self.store_reads.get()?.to_arc();
            let mut scan = store_reads.reads.scan();
            if let Some(key) = &partition_key {
                scan = scan.partition_key(primary(key)?);
            }
            if start.is_some() || end.is_some() {
                let start = bound(start.as_ref(), start_inclusive)?;
                scan = scan.range((start, bound(end.as_ref(), end_inclusive)?));
            }
            if let Some(prefix) = &prefix {
                scan = scan.prefix(primary(prefix)?.with_bytes(<[u8]>::to_vec));
            }
            if let Some(fields) = fields {
                scan = scan.fields(fields);
            }
            if reverse {
                scan = scan.reverse();
            }
            if let Some(limit) = limit {
                scan = scan.limit(limit);
            }
            if let Some(cursor) = cursor {
                scan = scan.cursor(cursor);
            }
            if allow_snapshot_change {
                scan = scan.allow_snapshot_change();
            }
            scan = scan.read(ReadArguments::of(after, latest, max_staleness, timeout)?.into_read());
            let (store, state) =
                (store_reads.store.clone(), Mutex::new(ScanState::Planned(Some(Box::new(scan)))));
            Ok(NativeOrderedScan { scan: ProcessOwned::new("scan", OpenScan { store, state }) })
        })
    }
}

/// Returns the primary key of an object.
fn primary<'a>(object: &'a Bound<'_, PyAny>) -> Result<KeyValue<'a>, CallError> {
    let key = key_of(object)?;
    match key.partition_key() {
        None => Ok(key.primary()),
        Some(_) => {
            let message =
                "the bounds of a scan are primary keys; give the partition key separately";
            Err(Error::invalid_argument(message).into())
        }
    }
}

fn bound<'a>(
    object: Option<&'a Bound<'_, PyAny>>,
    is_inclusive: bool,
) -> Result<ops::Bound<KeyValue<'a>>, CallError> {
    let key = object.map(primary).transpose()?;
    Ok(match (key, is_inclusive) {
        (None, _) => ops::Bound::Unbounded,
        (Some(key), true) => ops::Bound::Included(key),
        (Some(key), false) => ops::Bound::Excluded(key),
    })
}

/// The state of a scan: before or after its first document.
#[pyclass(frozen, name = "OrderedScan", module = "forebay._native")]
pub(crate) struct NativeOrderedScan {
    scan: ProcessOwned<OpenScan>,
}

struct OpenScan {
    store: Store,
    state: Mutex<ScanState>,
}

enum ScanState {
    Planned(Option<Box<OrderedScan>>),
    Open(Box<OrderedStream>),
}

impl ScanState {
    async fn stream(&mut self) -> forebay::Result<&mut OrderedStream> {
        if let Self::Planned(scan) = self {
            let scan = scan.take().ok_or_else(|| {
                Error::invalid_argument("the scan could not be opened; make another scan")
            })?;
            *self = Self::Open(Box::new(scan.open().await?));
        }
        match self {
            Self::Open(stream) => Ok(stream),
            Self::Planned(_) => Err(Error::internal("the open scan was lost")),
        }
    }
}

/// Documents of a scan, with their keys.
pub(crate) struct ScannedDocuments {
    store: Store,
    found: Vec<(OwnedKey, Document)>,
}

impl IntoPython for ScannedDocuments {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let definition = self.store.definition();
        let object = |(key, document): (OwnedKey, Document)| {
            Ok((key_object(py, key.key())?, document_of(py, &definition, &document)?))
        };
        let objects = self.found.into_iter().map(object).collect::<Result<Vec<_>, CallError>>()?;
        Ok(PyList::new(py, objects)?.into_any())
    }
}

#[pymethods]
impl NativeOrderedScan {
    /// Returns the call for the next documents, at most `documents_max`; none at the end.
    fn next(&self, documents_max: usize) -> Result<Call, CallError> {
        native_call(|| {
            let scan = self.scan.get()?.to_arc();
            Ok(Call::new(async move {
                let mut state = scan.state.lock().await;
                let stream = state.stream().await?;
                let mut found = Vec::new();
                while found.len() < documents_max {
                    let Some(next) = stream.next().await? else { break };
                    let key = OwnedKey::of(next.key()?);
                    found.push((key, next.document));
                }
                let store = scan.store.clone();
                Ok::<_, Error>(ScannedDocuments { store, found })
            }))
        })
    }

    /// Returns the cursor at which the scan continues.
    fn cursor<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyBytes>, CallError> {
        native_call(|| {
            let scan = self.scan.get()?.to_arc();
            let state = scan.state.try_lock().map_err(|_| {
                Error::invalid_argument(
                    "a read of the scan is running; take the cursor between reads",
                )
            })?;
            match &*state {
                ScanState::Open(stream) => Ok(PyBytes::new(py, &stream.cursor()?)),
                ScanState::Planned(_) => Err(Error::invalid_argument(
                    "the scan has no cursor yet; read a document first",
                )
                .into()),
            }
        })
    }
}
