//! Ordered reads: documents by key, and scans in the order of the keys, over the network.

use std::ops;

use forebay::{
    Document, Error, KeyList, KeyValue, OrderedReads, OrderedScan, OrderedStream, Store,
};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use tokio::sync::Mutex;

use crate::asked::How;
use crate::call::{Answer, Call};
use crate::fault::{Fault, entry, exception};
use crate::found::document_of;
use crate::key::{KeyObjects, OwnedKey, key_object, key_of};
use crate::process::ProcessOwned;

/// Ordered reads of one store.
#[pyclass(frozen, name = "OrderedReads", module = "forebay._native")]
pub(crate) struct NativeOrdered {
    held: ProcessOwned<Held>,
}

struct Held {
    store: Store,
    reads: OrderedReads,
}

impl NativeOrdered {
    pub(crate) fn new(store: &Store) -> Result<Self, Fault> {
        let held = Held { store: store.clone(), reads: store.ordered()? };
        Ok(Self { held: ProcessOwned::new("store", held) })
    }
}

/// Documents of a read, with the store whose definition names their fields.
pub(crate) struct FoundDocuments {
    store: Store,
    found: Vec<forebay::Result<Option<Document>>>,
    /// Whether the read was for one document.
    is_one: bool,
}

impl FoundDocuments {
    pub(crate) fn into_object(self, py: Python<'_>) -> Result<Bound<'_, PyAny>, Fault> {
        let definition = self.store.definition();
        let object = |found: Option<Document>| match found {
            Some(document) => document_of(py, &definition, &document),
            None => Ok(py.None().into_bound(py)),
        };
        if self.is_one {
            let only = self.found.into_iter().next();
            return object(only.transpose()?.flatten());
        }
        let objects = self.found.into_iter().map(|found| match found {
            Ok(found) => object(found),
            Err(error) => Ok(exception(py, &error, None)?),
        });
        Ok(PyList::new(py, objects.collect::<Result<Vec<_>, _>>()?)?.into_any())
    }
}

#[pymethods]
impl NativeOrdered {
    #[pyo3(signature = (key, after=None, latest=false, max_age=None, timeout=None))]
    fn get(
        &self,
        key: &Bound<'_, PyAny>,
        after: Option<&[u8]>,
        latest: bool,
        max_age: Option<f64>,
        timeout: Option<f64>,
    ) -> Result<Call, Fault> {
        entry(|| {
            let (held, key) = (self.held.get()?.to_arc(), OwnedKey::of(key_of(key)?));
            let read = How::of(after, latest, max_age, timeout)?.into_read();
            Ok(Call::new(async move {
                let found = held.reads.get(&read, key.key()).await;
                let store = held.store.clone();
                let found = FoundDocuments { store, found: vec![Ok(found?)], is_one: true };
                Ok::<_, Error>(Answer::Documents(found))
            }))
        })
    }

    #[pyo3(signature = (keys, after=None, latest=false, max_age=None, timeout=None))]
    fn get_many(
        &self,
        keys: &Bound<'_, PyAny>,
        after: Option<&[u8]>,
        latest: bool,
        max_age: Option<f64>,
        timeout: Option<f64>,
    ) -> Result<Call, Fault> {
        entry(|| {
            let (held, objects) = (self.held.get()?.to_arc(), KeyObjects::of(keys)?);
            let given = objects.keys()?;
            let keys: Vec<_> = (0..given.count()).map(|at| OwnedKey::of(given.key(at))).collect();
            let read = How::of(after, latest, max_age, timeout)?.into_read();
            Ok(Call::new(async move {
                let keys: Vec<_> = keys.iter().map(OwnedKey::key).collect();
                let found = held.reads.multi_get(&read, &keys[..]).await?;
                let store = held.store.clone();
                Ok::<_, Error>(Answer::Documents(FoundDocuments { store, found, is_one: false }))
            }))
        })
    }

    /// Creates a scan, without sending anything.
    #[allow(clippy::too_many_arguments, reason = "Python's keywords")]
    #[pyo3(signature = (
        *, partition_key=None, start=None, after_start=false, end=None, with_end=false, prefix=None,
        fields=None, backward=false, limit=None, cursor=None, may_move=false, after=None,
        latest=false, max_age=None, timeout=None
    ))]
    fn scan(
        &self,
        partition_key: Option<Bound<'_, PyAny>>,
        start: Option<Bound<'_, PyAny>>,
        after_start: bool,
        end: Option<Bound<'_, PyAny>>,
        with_end: bool,
        prefix: Option<Bound<'_, PyAny>>,
        fields: Option<Vec<String>>,
        backward: bool,
        limit: Option<u64>,
        cursor: Option<Vec<u8>>,
        may_move: bool,
        after: Option<&[u8]>,
        latest: bool,
        max_age: Option<f64>,
        timeout: Option<f64>,
    ) -> Result<NativeOrderedScan, Fault> {
        entry(|| {
            let held = self.held.get()?.to_arc();
            let mut scan = held.reads.scan();
            if let Some(key) = &partition_key {
                scan = scan.partition_key(primary(key)?);
            }
            if start.is_some() || end.is_some() {
                let start = bound(start.as_ref(), !after_start)?;
                scan = scan.range((start, bound(end.as_ref(), with_end)?));
            }
            if let Some(prefix) = &prefix {
                scan = scan.prefix(primary(prefix)?.with_bytes(<[u8]>::to_vec));
            }
            if let Some(fields) = fields {
                scan = scan.fields(fields);
            }
            if backward {
                scan = scan.backward();
            }
            if let Some(limit) = limit {
                scan = scan.limit(limit);
            }
            if let Some(cursor) = cursor {
                scan = scan.cursor(cursor);
            }
            if may_move {
                scan = scan.may_move();
            }
            scan = scan.read(How::of(after, latest, max_age, timeout)?.into_read());
            let (store, state) =
                (held.store.clone(), Mutex::new(State::Asked(Some(Box::new(scan)))));
            Ok(NativeOrderedScan { scan: ProcessOwned::new("scan", Scanning { store, state }) })
        })
    }
}

/// Returns the primary key of an object.
fn primary<'a>(object: &'a Bound<'_, PyAny>) -> Result<KeyValue<'a>, Fault> {
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
    is_included: bool,
) -> Result<ops::Bound<KeyValue<'a>>, Fault> {
    let key = object.map(primary).transpose()?;
    Ok(match (key, is_included) {
        (None, _) => ops::Bound::Unbounded,
        (Some(key), true) => ops::Bound::Included(key),
        (Some(key), false) => ops::Bound::Excluded(key),
    })
}

/// The state of a scan: before or after its first document.
#[pyclass(frozen, name = "OrderedScan", module = "forebay._native")]
pub(crate) struct NativeOrderedScan {
    scan: ProcessOwned<Scanning>,
}

struct Scanning {
    store: Store,
    state: Mutex<State>,
}

enum State {
    Asked(Option<Box<OrderedScan>>),
    Open(Box<OrderedStream>),
}

impl State {
    async fn stream(&mut self) -> forebay::Result<&mut OrderedStream> {
        if let Self::Asked(scan) = self {
            let scan = scan.take().ok_or_else(|| {
                Error::invalid_argument("the scan could not be opened; make another scan")
            })?;
            *self = Self::Open(Box::new(scan.open().await?));
        }
        match self {
            Self::Open(stream) => Ok(stream),
            Self::Asked(_) => Err(Error::internal("the open scan was lost")),
        }
    }
}

/// Documents of a scan, with their keys.
pub(crate) struct ScannedDocuments {
    store: Store,
    found: Vec<(OwnedKey, Document)>,
}

impl ScannedDocuments {
    pub(crate) fn into_object(self, py: Python<'_>) -> Result<Bound<'_, PyAny>, Fault> {
        let definition = self.store.definition();
        let object = |(key, document): (OwnedKey, Document)| {
            Ok((key_object(py, key.key())?, document_of(py, &definition, &document)?))
        };
        let objects = self.found.into_iter().map(object).collect::<Result<Vec<_>, Fault>>()?;
        Ok(PyList::new(py, objects)?.into_any())
    }
}

#[pymethods]
impl NativeOrderedScan {
    /// Returns the call for the next documents, at most `documents_max`; none at the end.
    fn next(&self, documents_max: usize) -> Result<Call, Fault> {
        entry(|| {
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
                Ok::<_, Error>(Answer::Scanned(ScannedDocuments { store, found }))
            }))
        })
    }

    /// Returns the cursor at which the scan continues.
    fn cursor<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyBytes>, Fault> {
        entry(|| {
            let scan = self.scan.get()?.to_arc();
            let state = scan.state.try_lock().map_err(|_| {
                Error::invalid_argument(
                    "a read of the scan is running; take the cursor between reads",
                )
            })?;
            match &*state {
                State::Open(stream) => Ok(PyBytes::new(py, &stream.cursor()?)),
                State::Asked(_) => Err(Error::invalid_argument(
                    "the scan has no cursor yet; read a document first",
                )
                .into()),
            }
        })
    }
}
