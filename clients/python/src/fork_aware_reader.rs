//! A reader, with the means to reopen it in a forked child.
//!
//! A reader with a checkpoint directory shares its copy with other processes, so a forked child can
//! continue to read: its first use of the reader opens another reader with the same options, over a
//! connection and threads of the child's own. The child's reader follows the shared copy, and
//! maintains the copy once no other process does. Nothing of the parent's reader is used, because a
//! lock in it may be held by a thread that the fork did not copy.

use std::sync::Arc;
use std::time::Duration;

use forebay::{Error, Reader};
use pyo3::prelude::*;
use tokio::time::Instant;

use crate::error::CallError;
use crate::log;
use crate::open_options::OpenOptions;
use crate::process::{self, ObjectGuard, ProcessObject, ProcessOwned};
use crate::schema::duration_of;

/// The parameters to reopen a reader.
#[derive(Clone)]
pub(crate) struct ReopenState {
    endpoint: String,
    options: OpenOptions,
}

impl ReopenState {
    /// Returns the parameters of such a reader; `None` for a reader that shares no copy.
    pub(crate) fn of(endpoint: &str, options: &OpenOptions) -> Option<Self> {
        options.reader.checkpoint.as_ref()?;
        Some(Self { endpoint: endpoint.to_owned(), options: options.clone() })
    }

    async fn open(&self, wait_max: Duration) -> forebay::Result<Reader> {
        let open_timeout = self.options.reader.open_timeout.min(wait_max);
        let options = self.options.reader_options()?.open_timeout(open_timeout);
        let opening = Reader::open(&self.endpoint, options);
        tokio::time::timeout(wait_max, opening).await.unwrap_or_else(|_| {
            let message = "the reader of the forked process was not reopened in time; check that \
                the node is reachable, or wait longer";
            Err(Error::unavailable(message).with_store(&self.options.reader.store))
        })
    }
}

/// An open reader, with the parameters to reopen it.
#[derive(Clone)]
pub(crate) struct ReopenableReader {
    pub(crate) reader: Reader,
    pub(crate) reopen: Option<ReopenState>,
}

/// The reader of the process that uses it.
pub(crate) struct ForkAwareReader {
    reader: ProcessOwned<Reader>,
    reopen: Option<ReopenState>,
}

impl ForkAwareReader {
    pub(crate) fn new(reopenable: ReopenableReader) -> Self {
        let ReopenableReader { reader, reopen } = reopenable;
        Self { reader: ProcessOwned::new("reader", reader), reopen }
    }

    /// Returns whether the reader has a directory, to which it writes checkpoints when it closes.
    pub(crate) fn keeps_checkpoints(&self) -> bool {
        self.reopen.is_some()
    }

    /// Returns the reader of this process.
    ///
    /// # Errors
    /// `Closed`, also in a forked child that has not reopened the reader.
    pub(crate) fn get(&self) -> forebay::Result<ObjectGuard<Reader>> {
        self.reader.get()
    }

    /// Returns the reader, reopened if necessary, and the remaining time of the caller's `timeout`;
    /// a caller without a timeout has the time of an open.
    ///
    /// # Errors
    /// `Closed`, and the errors of an open.
    pub(crate) fn reader(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
    ) -> Result<(ObjectGuard<Reader>, Option<f64>), CallError> {
        match self.reader.get() {
            Ok(reader) => Ok((reader, timeout)),
            Err(_) if self.is_due() => self.reopened_reader(py, timeout),
            Err(error) => Err(error.into()),
        }
    }

    #[cold]
    fn reopened_reader(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
    ) -> Result<(ObjectGuard<Reader>, Option<f64>), CallError> {
        log::start(py)?;
        let (wait_max, began) = (timeout.map(duration_of).transpose()?, Instant::now());
        process::wait(py, self.reopen(wait_max))??;
        let remaining =
            wait_max.map(|wait_max| wait_max.saturating_sub(began.elapsed()).as_secs_f64());
        Ok((self.reader.get()?, remaining))
    }

    /// Returns whether the reader is inherited from a parent and can be reopened.
    pub(crate) fn is_due(&self) -> bool {
        self.reopen.is_some() && self.reader.is_inherited()
    }

    /// Reopens the reader if necessary.
    ///
    /// # Errors
    /// `Unavailable`, and the errors of [`Reader::open`].
    pub(crate) async fn reopen(&self, wait_max: Option<Duration>) -> forebay::Result<()> {
        let Some(state) = self.reopen.as_ref().filter(|_| self.is_due()) else { return Ok(()) };
        let reader = state.open(wait_max.unwrap_or(state.options.reader.open_timeout)).await?;
        self.reader.replace_inherited(reader);
        Ok(())
    }

    /// Takes this process's reader out, permanently.
    pub(crate) fn take(&self) -> Option<Arc<ProcessObject<Reader>>> {
        self.reader.take()
    }
}
