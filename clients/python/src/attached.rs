//! A reader, and how a forked child comes to one of its own.
//!
//! A reader with a checkpoint directory shares its copy with other processes. So a child that was
//! forked reads on: its first use of the reader opens it again, with the same options, over a
//! connection and threads of the child's own. It follows the shared copy then, and keeps it once
//! nobody else does. Of the parent's reader nothing is used: a lock in it may be held by a thread
//! that was not copied.

use std::sync::Arc;
use std::time::Duration;

use forebay::{Error, Reader, ReaderOptions};
use pyo3::prelude::*;
use tokio::time::Instant;

use crate::fault::Fault;
use crate::log;
use crate::opening::Wanted;
use crate::process::{self, Held, Owned, ProcessOwned};
use crate::schema::duration_of;

/// How a reader is opened again.
#[derive(Clone)]
pub(crate) struct Again {
    endpoint: String,
    wanted: Wanted,
}

impl Again {
    /// How that goes for such a reader; `None` for one that shares no copy.
    pub(crate) fn of(endpoint: &str, wanted: &Wanted) -> Option<Self> {
        wanted.options.checkpoint.as_ref()?;
        Some(Self { endpoint: endpoint.to_owned(), wanted: wanted.clone() })
    }

    async fn open(&self, within: Duration) -> forebay::Result<Reader> {
        let open_timeout = self.wanted.options.open_timeout.min(within);
        let options = ReaderOptions { open_timeout, ..self.wanted.options()? };
        let opening = Reader::open(&self.endpoint, options);
        tokio::time::timeout(within, opening).await.unwrap_or_else(|_| {
            let message = "the reader of the process that forked was not opened again in time; \
                           see whether the node is reachable, or wait longer";
            Err(Error::unavailable(message).with_store(&self.wanted.options.store))
        })
    }
}

/// A reader that was opened, and how to do that again.
#[derive(Clone)]
pub(crate) struct Opened {
    pub(crate) reader: Reader,
    pub(crate) again: Option<Again>,
}

/// The reader of whichever process uses it.
pub(crate) struct Attached {
    reader: ProcessOwned<Reader>,
    again: Option<Again>,
}

impl Attached {
    pub(crate) fn new(opened: Opened) -> Self {
        let Opened { reader, again } = opened;
        Self { reader: ProcessOwned::new("reader", reader), again }
    }

    /// Whether it has a directory, where it leaves checkpoints when it closes.
    pub(crate) fn keeps_checkpoints(&self) -> bool {
        self.again.is_some()
    }

    /// The reader as it is here.
    ///
    /// # Errors
    /// `Closed`; also in a forked child that has not opened it again.
    pub(crate) fn get(&self) -> forebay::Result<Owned<Reader>> {
        self.reader.get()
    }

    /// The reader, opened again where that is due, and what is left then of the seconds that the
    /// caller has; without any that has the time of an opening.
    ///
    /// # Errors
    /// `Closed`, and those of an opening.
    pub(crate) fn reader(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
    ) -> Result<(Owned<Reader>, Option<f64>), Fault> {
        match self.reader.get() {
            Ok(reader) => Ok((reader, timeout)),
            Err(_) if self.is_due() => self.reader_again(py, timeout),
            Err(closed) => Err(closed.into()),
        }
    }

    #[cold]
    fn reader_again(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
    ) -> Result<(Owned<Reader>, Option<f64>), Fault> {
        log::start(py)?;
        let (given, begun) = (timeout.map(duration_of).transpose()?, Instant::now());
        process::wait(py, self.open_again(given))??;
        let left = given.map(|given| given.saturating_sub(begun.elapsed()).as_secs_f64());
        Ok((self.reader.get()?, left))
    }

    /// Whether a parent left it behind, and it can be opened again.
    pub(crate) fn is_due(&self) -> bool {
        self.again.is_some() && self.reader.is_inherited()
    }

    /// Opens it again where that is due.
    ///
    /// # Errors
    /// `Unavailable`, and those of [`Reader::open`].
    pub(crate) async fn open_again(&self, within: Option<Duration>) -> forebay::Result<()> {
        let Some(again) = self.again.as_ref().filter(|_| self.is_due()) else { return Ok(()) };
        let reader = again.open(within.unwrap_or(again.wanted.options.open_timeout)).await?;
        self.reader.replace_inherited(reader);
        Ok(())
    }

    /// Takes this process's reader out, for good.
    pub(crate) fn take(&self) -> Option<Arc<Held<Reader>>> {
        self.reader.take()
    }
}
