//! Keywords of a read: its wait, the staleness bound of its data, and its default for absent.

use std::convert::Infallible;
use std::time::Duration;

use forebay::{Error, PartitionId, Read, Reader};
use forebay_wire::token::Token;
use pyo3::prelude::*;

use crate::call::{Answer, Call};
use crate::fault::Fault;
use crate::process::{self, Owned};
use crate::python::class;
use crate::schema::duration_of;

/// Seconds that a read waits for a token or a barrier, unless set.
const READ_TIMEOUT: f64 = 10.0;

/// Result of a read for absent: the caller's default, which may be None, or `ABSENT`.
pub(crate) struct Default<'py>(pub(crate) Option<Bound<'py, PyAny>>);

impl<'py> FromPyObject<'_, 'py> for Default<'py> {
    type Error = Infallible;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> Result<Self, Infallible> {
        Ok(Self(Some(object.to_owned())))
    }
}

impl<'py> Default<'py> {
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
) -> Result<T, Fault> {
    match reader.is_in_memory() {
        true => process::wait_here(py, future),
        false => process::wait(py, future),
    }
}

/// The wait and the staleness bound of a read.
pub(crate) struct How {
    read: Read,
    waits: bool,
    /// The staleness bound.
    pub(crate) max_age: Option<Duration>,
}

impl How {
    /// Builds the wait and the bound from the keywords of a read.
    pub(crate) fn of(
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
                let message = "the read has a token and asks for the latest, which includes every \
                    token; give one of the two";
                return Err(Error::invalid_argument(message).into());
            }
        };
        Ok(Self { read, waits: after.is_some() || latest, max_age })
    }

    /// Returns the read, for a request to a node.
    pub(crate) fn into_read(self) -> Read {
        match self.max_age {
            Some(bound) => self.read.max_age(bound),
            None => self.read,
        }
    }

    /// Returns the call that an event loop awaits before it reads these keys.
    pub(crate) fn call(self, reader: &Owned<Reader>, partitions: Vec<PartitionId>) -> Call {
        let reader = reader.to_arc();
        Call::new(
            async move { reader.wait(&self.read, &partitions).await.map(|()| Answer::Nothing) },
        )
    }

    /// Waits as the read requests.
    pub(crate) fn wait(
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
        Ok(wait_for(py, &reader, reader.wait(&self.read, &partitions))??)
    }
}
