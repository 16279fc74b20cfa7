//! Keywords of a read: its wait, the staleness bound of its data, and its default for absent.

use std::convert::Infallible;
use std::time::Duration;

use forebay::reads::{DocumentKey, ReadOptions};
use forebay::schema::{PartitionId, StoreId};
use forebay::{Error, Reader};
use forebay_wire::token::Token;
use pyo3::prelude::*;

use crate::call::Call;
use crate::error::CallError;
use crate::field_handle::NativeFieldHandle;
use crate::key::GivenKeys;
use crate::process::{self, ObjectGuard};
use crate::python::class;
use crate::schema::duration_of;

/// Seconds that a read waits for a token or a barrier, unless set.
const READ_TIMEOUT: f64 = 10.0;

/// Result of a read for absent: the caller's default, which may be None, or `ABSENT`.
pub(crate) struct DefaultValue<'py>(pub(crate) Option<Bound<'py, PyAny>>);

impl<'py> FromPyObject<'_, 'py> for DefaultValue<'py> {
    type Error = Infallible;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> Result<Self, Infallible> {
        Ok(Self(Some(object.to_owned())))
    }
}

impl<'py> DefaultValue<'py> {
    /// Returns the object for absent.
    pub(crate) fn object(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.0.map_or_else(|| class(py, "forebay._model", "ABSENT"), Ok)
    }
}

/// Waits for an event of a reader; an in-memory reader needs none of this process's threads.
pub(crate) fn wait_for<T: Send>(
    py: Python<'_>,
    reader: &Reader,
    future: impl Future<Output = T> + Send,
) -> Result<T, CallError> {
    match reader.is_in_memory() {
        true => process::wait_here(py, future),
        false => process::wait(py, future),
    }
}

/// The arguments of a read: its wait, and the staleness bound.
pub(crate) struct ReadArguments {
    read: ReadOptions,
    waits: bool,
    /// The staleness bound.
    pub(crate) max_staleness: Option<Duration>,
}

impl ReadArguments {
    /// Builds the wait and the bound from the keywords of a read.
    pub(crate) fn of(
        after: Option<&[u8]>,
        latest: bool,
        max_staleness: Option<f64>,
        timeout: Option<f64>,
    ) -> Result<Self, CallError> {
        let max_staleness = max_staleness.map(duration_of).transpose()?;
        let timeout = || duration_of(timeout.unwrap_or(READ_TIMEOUT));
        let read = match (after, latest) {
            (None, false) => ReadOptions::local(),
            (Some(token), false) => ReadOptions::after(Token::decode(token)?, timeout()?),
            (None, true) => ReadOptions::latest(timeout()?),
            (Some(_), true) => {
                let message = "the read has a token and asks for the latest, which includes every \
                    token; give one of the two";
                return Err(Error::invalid_argument(message).into());
            }
        };
        Ok(Self { read, waits: after.is_some() || latest, max_staleness })
    }

    /// Returns the read, for a request to a node.
    pub(crate) fn into_read(self) -> ReadOptions {
        match self.max_staleness {
            Some(bound) => self.read.max_staleness(bound),
            None => self.read,
        }
    }

    /// Returns the call that an event loop awaits before it reads these keys.
    pub(crate) fn call(self, reader: &ObjectGuard<Reader>, partitions: Vec<PartitionId>) -> Call {
        let reader = reader.to_arc();
        Call::new(async move { reader.wait(&self.read, &partitions).await })
    }

    /// Waits as the read requests.
    pub(crate) fn wait(
        &self,
        py: Python<'_>,
        reader: &ObjectGuard<Reader>,
        partitions: impl FnOnce(&Reader) -> forebay::Result<Vec<PartitionId>>,
    ) -> Result<(), CallError> {
        if !self.waits {
            return Ok(());
        }
        let reader = reader.to_arc();
        let partitions = partitions(&reader)?;
        Ok(wait_for(py, &reader, reader.wait(&self.read, &partitions))??)
    }
}

/// A read of a reader's memory: the reader of this process, and the wait of the read.
pub(crate) struct LocalRead {
    pub(crate) reader: ObjectGuard<Reader>,
    pub(crate) store: StoreId,
    pub(crate) options: ReadArguments,
}

impl LocalRead {
    /// Waits for the partition of a key, as the read requests.
    pub(crate) fn wait_for_key(
        &self,
        py: Python<'_>,
        key: DocumentKey<'_>,
    ) -> Result<(), CallError> {
        self.options.wait(py, &self.reader, |reader| Ok(vec![reader.partition_of(key)?]))
    }

    /// Waits for the partitions of some keys, as the read requests.
    pub(crate) fn wait_for_keys(
        &self,
        py: Python<'_>,
        keys: &GivenKeys<'_>,
    ) -> Result<(), CallError> {
        self.options.wait(py, &self.reader, |reader| reader.partitions_of(keys))
    }

    /// Returns the handle of the field that the read is given.
    ///
    /// # Errors
    /// Errors of [`NativeFieldHandle::of`].
    pub(crate) fn field<'py>(
        &self,
        field: &Bound<'py, PyAny>,
    ) -> Result<Bound<'py, NativeFieldHandle>, CallError> {
        NativeFieldHandle::of(&self.reader, self.store, field)
    }
}
