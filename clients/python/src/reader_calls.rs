//! Waits of the embedded reader, as calls that an event loop awaits.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use forebay::{Error, Reader};
use forebay_wire::token::Token;
use pyo3::prelude::*;

use crate::call::Call;
use crate::error::{CallError, native_call};
use crate::fork_aware_reader::ForkAwareReader;
use crate::key::KeyObjects;
use crate::log;
use crate::process::ProcessObject;
use crate::python::IntoPython;
use crate::read_options::ReadArguments;
use crate::schema::duration_of;
use crate::verification::ReaderVerification;

/// The reader during a wait.
pub(crate) type SharedReader = Arc<ProcessObject<Reader>>;

/// Waits of a reader, for an event loop.
#[pyclass(frozen, name = "ReaderCalls", module = "forebay._native")]
pub(crate) struct NativeReaderCalls {
    reader: Arc<ForkAwareReader>,
    store_name: String,
}

#[pymethods]
impl NativeReaderCalls {
    /// Returns the call that reopens the reader in a forked child; None if nothing is to be done.
    #[pyo3(signature = (timeout=None))]
    fn reopen(&self, py: Python<'_>, timeout: Option<f64>) -> Result<Option<Call>, CallError> {
        native_call(|| {
            if !self.reader.is_due() {
                return Ok(None);
            }
            log::start(py)?;
            let wait_max = timeout.map(duration_of).transpose()?;
            let reader = Arc::clone(&self.reader);
            Ok(Some(Call::new(async move { reader.reopen(wait_max).await })))
        })
    }

    /// Returns the call of `Reader.await_ready`.
    fn await_ready(&self, timeout: f64) -> Result<Call, CallError> {
        native_call(|| self.call(timeout, await_ready))
    }

    /// Returns the call of `Reader.await_token`.
    fn await_token(&self, token: &[u8], timeout: f64) -> Result<Call, CallError> {
        native_call(|| {
            let token = Token::decode(token)?;
            self.call(timeout, |reader, timeout| await_token(reader, token, timeout))
        })
    }

    /// Returns the call of the wait of a read of these keys.
    #[pyo3(signature = (keys, *, after=None, latest=false, timeout=None))]
    fn wait(
        &self,
        keys: &Bound<'_, PyAny>,
        after: Option<&[u8]>,
        latest: bool,
        timeout: Option<f64>,
    ) -> Result<Call, CallError> {
        native_call(|| {
            let reader = self.reader.get()?;
            let options = ReadArguments::of(after, latest, None, timeout)?;
            let partitions = reader.partitions_of(&KeyObjects::of(keys)?.keys()?)?;
            Ok(options.call(&reader, partitions))
        })
    }

    /// Returns the call of `Reader.verify`.
    fn verify(&self, partition: u32, timeout: f64) -> Result<Call, CallError> {
        native_call(|| {
            self.call(timeout, move |reader, timeout| verify(reader, partition, timeout))
        })
    }

    /// Closes the reader, and returns the call that waits for the last checkpoints.
    fn close(&self, timeout: f64) -> Result<Call, CallError> {
        native_call(|| {
            let timeout = duration_of(timeout)?;
            let reader_taken = self.reader.take();
            let (name, keeps_checkpoints) =
                (self.store_name.clone(), self.reader.keeps_checkpoints());
            Ok(Call::new(async move {
                let Some(reader) = reader_taken else { return Ok::<_, Error>(()) };
                reader.begin_close();
                if keeps_checkpoints && let Err(error) = reader.close(timeout).await {
                    tracing::warn!(store = %name, %error, "closed without the last checkpoints");
                }
                Ok(())
            }))
        })
    }
}

impl NativeReaderCalls {
    pub(crate) fn new(reader: Arc<ForkAwareReader>, store_name: String) -> Self {
        Self { reader, store_name }
    }

    /// Returns the call that waits for an event of the reader, at most `timeout` seconds.
    fn call<T: IntoPython, F: Future<Output = forebay::Result<T>> + Send + 'static>(
        &self,
        timeout: f64,
        event: impl FnOnce(SharedReader, Duration) -> F,
    ) -> Result<Call, CallError> {
        let (reader, timeout) = (self.reader.get()?.to_arc(), duration_of(timeout)?);
        let is_local = reader.is_in_memory();
        Ok(Call::new(event(reader, timeout)).local(is_local))
    }
}

pub(crate) async fn await_ready(reader: SharedReader, timeout: Duration) -> forebay::Result<()> {
    reader.await_ready(timeout).await
}

pub(crate) async fn await_token(
    reader: SharedReader,
    token: Token,
    timeout: Duration,
) -> forebay::Result<()> {
    reader.await_token(&token, timeout).await
}

pub(crate) async fn verify(
    reader: SharedReader,
    partition: u32,
    timeout: Duration,
) -> forebay::Result<ReaderVerification> {
    ReaderVerification::of(&reader, partition, timeout).await
}
