//! In-memory readers, for tests of programs that read: the controls of the test. Reads and writes
//! work as for other readers and stores.

use std::time::Duration;

use forebay::schema::Timestamp;
use forebay::testing::{InMemoryReader, SimulatedState};
use forebay::{Error, Reader};
use pyo3::prelude::*;

use crate::change::Change;
use crate::client::NativeStore;
use crate::error::{CallError, native_call};
use crate::process::{self, ProcessOwned};
use crate::schema::{NewAlteration, NewStore, definition_object, duration_of};

/// A store in this process's memory, with its reader, its clock and its states.
#[pyclass(frozen, name = "Memory", module = "forebay._native")]
pub(crate) struct NativeMemory {
    memory: ProcessOwned<InMemoryReader>,
}

impl NativeMemory {
    /// Returns the reader of the store.
    pub(crate) fn reader(&self) -> Result<Reader, CallError> {
        let memory = self.memory.get()?;
        Ok(Reader::clone(&memory))
    }
}

#[pymethods]
impl NativeMemory {
    /// Opens a store and its reader, with the documents of these changes.
    #[new]
    fn new(py: Python<'_>, spec: &NewStore, changes: &Bound<'_, PyAny>) -> Result<Self, CallError> {
        native_call(|| {
            let memory = Reader::in_memory(&spec.spec, [])?;
            let mut batch = memory.as_store().batch();
            for change in changes.try_iter()? {
                let change = change?;
                let change = change.cast::<Change>().map_err(PyErr::from)?;
                batch.add(change.get().write(memory.as_store()))?;
            }
            process::wait_here(py, batch.send())??.require_complete()?;
            Ok(Self { memory: ProcessOwned::new("reader", memory) })
        })
    }

    /// Returns the store, for writes.
    fn store(&self) -> Result<NativeStore, CallError> {
        native_call(|| Ok(NativeStore::new(self.memory.get()?.as_store().clone())))
    }

    /// Returns the time of the reader's clock, in microseconds since the Unix epoch.
    fn clock(&self) -> Result<i64, CallError> {
        native_call(|| Ok(self.memory.get()?.clock().as_micros()))
    }

    fn set_clock(&self, micros: i64) -> Result<(), CallError> {
        native_call(|| Ok(self.memory.get()?.set_clock(Timestamp::from_micros(micros))?))
    }

    /// Simulates the state of this name; `age` is the age of stale data, in seconds.
    #[pyo3(signature = (state, age=None))]
    fn simulate(&self, state: &str, age: Option<f64>) -> Result<(), CallError> {
        native_call(|| {
            let age = age.map(duration_of).transpose()?;
            Ok(self.memory.get()?.simulate(simulated_state(state, age)?)?)
        })
    }

    fn alter<'py>(
        &self,
        py: Python<'py>,
        alterations: Vec<NewAlteration>,
    ) -> Result<Bound<'py, PyAny>, CallError> {
        native_call(|| {
            let alterations: Vec<_> =
                alterations.into_iter().map(|requested| requested.alteration).collect();
            definition_object(py, &self.memory.get()?.alter(&alterations)?)
        })
    }
}

fn simulated_state(state: &str, age: Option<Duration>) -> forebay::Result<SimulatedState> {
    let message = match (state, age) {
        ("none", None) => return Ok(SimulatedState::None),
        ("not_ready", None) => return Ok(SimulatedState::NotReady),
        ("closed", None) => return Ok(SimulatedState::Closed),
        ("stale", Some(age)) => return Ok(SimulatedState::Stale(age)),
        ("stale", None) => "a stale reader has an age; give its seconds",
        (_, Some(_)) => "only a stale reader has an age; leave it out",
        _ => "the state is unknown; use one of none, not_ready, stale and closed",
    };
    Err(Error::invalid_argument(message))
}
