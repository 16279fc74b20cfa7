//! Clients and stores: each method returns a [`Call`], which a thread waits for or a loop awaits.

use std::sync::Arc;
use std::time::Duration;

use forebay::schema::SchemaVersion;
use forebay::{Client, ClientOptions, Store};
use pyo3::prelude::*;
use pyo3::types::PyDateTime;

use crate::call::Call;
use crate::change::Change;
use crate::error::{CallError, native_call};
use crate::log;
use crate::ordered_reads::NativeOrdered;
use crate::process::ProcessOwned;
use crate::python::IntoPython;
use crate::read_options::ReadArguments;
use crate::schema::{NewAlteration, NewStore, definition_object, duration_of};
use crate::select::{ColumnRange, ColumnValue, SelectCriteria, time_of};
use crate::stream::NativeStream;

/// Returns the call that connects a client.
#[pyfunction]
#[pyo3(signature = (endpoint, deadline=None, attempt=None))]
pub(crate) fn connect(
    py: Python<'_>,
    endpoint: String,
    deadline: Option<f64>,
    attempt: Option<f64>,
) -> Result<Call, CallError> {
    native_call(|| {
        log::start(py)?;
        let mut options = ClientOptions::default();
        options.deadline = deadline.map_or(Ok(options.deadline), duration_of)?;
        options.attempt = attempt.map_or(Ok(options.attempt), duration_of)?;
        Ok(Call::new(async move {
            let connected = Client::connect(&endpoint, options).await;
            connected.map(|client| NativeClient::new(client, endpoint))
        }))
    })
}

/// A connection to a writer.
#[pyclass(frozen, name = "Client", module = "forebay._native")]
pub(crate) struct NativeClient {
    client: ProcessOwned<Client>,
    endpoint: String,
}

impl NativeClient {
    pub(crate) fn new(client: Client, endpoint: String) -> Self {
        Self { client: ProcessOwned::new("client", client), endpoint }
    }

    /// Returns the address that the client is connected to.
    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Returns the client, for the duration of a call.
    pub(crate) fn client(&self) -> Result<Client, CallError> {
        Ok(self.client.get()?.clone())
    }
}

impl IntoPython for NativeClient {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        Ok(Bound::new(py, *self)?.into_any())
    }
}

#[pymethods]
impl NativeClient {
    fn store(&self, name: String) -> Result<Call, CallError> {
        let client = self.client()?;
        Ok(Call::new(async move { client.store(&name).await.map(NativeStore::new) }))
    }

    fn create_store(&self, spec: &NewStore) -> Result<Call, CallError> {
        let (client, spec) = (self.client()?, spec.spec.clone());
        Ok(Call::new(async move { client.create_store(&spec).await.map(NativeStore::new) }))
    }

    #[pyo3(signature = (name, alterations, from_version=None))]
    fn alter_store(
        &self,
        name: String,
        alterations: Vec<NewAlteration>,
        from_version: Option<u32>,
    ) -> Result<Call, CallError> {
        let client = self.client()?;
        let alterations: Vec<_> =
            alterations.into_iter().map(|requested| requested.alteration).collect();
        Ok(Call::new(async move {
            let from = from_version.map(SchemaVersion);
            client.alter_store(&name, from, &alterations).await
        }))
    }

    fn delete_store(&self, name: String) -> Result<Call, CallError> {
        let client = self.client()?;
        Ok(Call::new(async move { client.delete_store(&name).await }))
    }

    #[pyo3(signature = (name, version=None))]
    fn describe_store(&self, name: String, version: Option<u32>) -> Result<Call, CallError> {
        let client = self.client()?;
        Ok(Call::new(async move { client.describe_store(&name, version.map(SchemaVersion)).await }))
    }

    fn list_stores(&self) -> Result<Call, CallError> {
        let client = self.client()?;
        Ok(Call::new(async move { client.list_stores().await }))
    }

    fn close(&self) {
        drop(self.client.take());
    }
}

/// A store of a client.
#[pyclass(frozen, name = "Store", module = "forebay._native")]
pub(crate) struct NativeStore {
    store: ProcessOwned<Store>,
}

impl NativeStore {
    pub(crate) fn new(store: Store) -> Self {
        Self { store: ProcessOwned::new("store", store) }
    }
}

impl IntoPython for NativeStore {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        Ok(Bound::new(py, *self)?.into_any())
    }
}

#[pymethods]
impl NativeStore {
    fn definition<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>, CallError> {
        native_call(|| definition_object(py, &self.store.get()?.definition()))
    }

    fn refresh(&self) -> Result<Call, CallError> {
        let store = self.store.get()?.to_arc();
        let is_local = store.is_in_memory();
        let call = Call::new(async move { store.refresh().await.map(Arc::unwrap_or_clone) });
        Ok(call.local(is_local))
    }

    #[pyo3(signature = (change, deadline=None))]
    fn write(&self, change: &Change, deadline: Option<f64>) -> Result<Call, CallError> {
        native_call(|| {
            let store = self.store.get()?;
            let mut write = change.write(&store);
            if let Some(deadline) = seconds(deadline)? {
                write = write.deadline(deadline);
            }
            let call = Call::new(async { write.send().await });
            Ok(call.local(store.is_in_memory()))
        })
    }

    #[pyo3(signature = (changes, deadline=None))]
    fn batch(&self, changes: &Bound<'_, PyAny>, deadline: Option<f64>) -> Result<Call, CallError> {
        native_call(|| {
            let store = self.store.get()?;
            let mut batch = store.batch();
            for change in changes.try_iter()? {
                batch.add(change?.cast::<Change>().map_err(PyErr::from)?.get().write(&store))?;
            }
            if let Some(deadline) = seconds(deadline)? {
                batch = batch.deadline(deadline);
            }
            let call = Call::new(async { batch.send().await });
            Ok(call.local(store.is_in_memory()))
        })
    }

    /// Creates a select of retained events, without sending anything.
    #[allow(clippy::too_many_arguments, reason = "Python's keywords")]
    #[pyo3(signature = (
        *, key=None, equal=None, between=None, start=None, end=None, columns=None, order_by=None,
        descending=false, limit=None, after=None, latest=false, max_staleness=None, timeout=None
    ))]
    fn select(
        &self,
        key: Option<Bound<'_, PyAny>>,
        equal: Option<ColumnValue<'_>>,
        between: Option<ColumnRange<'_>>,
        start: Option<Bound<'_, PyDateTime>>,
        end: Option<Bound<'_, PyDateTime>>,
        columns: Option<Vec<String>>,
        order_by: Option<String>,
        descending: bool,
        limit: Option<u32>,
        after: Option<&[u8]>,
        latest: bool,
        max_staleness: Option<f64>,
        timeout: Option<f64>,
    ) -> Result<Call, CallError> {
        native_call(|| {
            let store = self.store.get()?;
            let read = ReadArguments::of(after, latest, max_staleness, timeout)?.into_read();
            let mut select =
                SelectCriteria { key, equal, between }.narrow(store.select())?.read(read);
            if let Some(start) = &start {
                select = select.start(time_of(start)?);
            }
            if let Some(end) = &end {
                select = select.end(time_of(end)?);
            }
            if let Some(column) = order_by {
                select = select.order_by(column);
            }
            if descending {
                select = select.descending();
            }
            select = select.columns(columns.unwrap_or_default()).limit(limit.unwrap_or(0));
            let call = Call::new(async { select.send().await });
            Ok(call.local(store.is_in_memory()))
        })
    }

    fn ordered(&self) -> Result<NativeOrdered, CallError> {
        native_call(|| NativeOrdered::new(&*self.store.get()?))
    }

    #[pyo3(signature = (changes_max=None, bytes_max=None, deadline=None))]
    fn write_stream(
        &self,
        changes_max: Option<usize>,
        bytes_max: Option<usize>,
        deadline: Option<f64>,
    ) -> Result<NativeStream, CallError> {
        let deadline = seconds(deadline)?;
        native_call(|| NativeStream::new(&*self.store.get()?, changes_max, bytes_max, deadline))
    }
}

fn seconds(deadline: Option<f64>) -> Result<Option<Duration>, CallError> {
    Ok(deadline.map(duration_of).transpose()?)
}
