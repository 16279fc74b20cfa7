//! Scans: every live document, in batches.

use std::time::Duration;

use forebay::Reader;
use forebay::reads::{Document, Scan};
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::error::CallError;
use crate::key::{OwnedKey, key_object};
use crate::process::ProcessOwned;
use crate::results::document_object;

/// A key and its document.
pub(crate) type ScannedDocument<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);

/// A cursor over all documents of a reader.
#[pyclass(frozen, name = "Scan", module = "forebay._native")]
pub(crate) struct NativeScan {
    scan: ProcessOwned<Mutex<Scan>>,
}

impl NativeScan {
    pub(crate) fn new(reader: &Reader) -> Self {
        Self { scan: ProcessOwned::new("scan", Mutex::new(reader.scan())) }
    }

    /// Returns the next documents, at most `documents_max`; none at the end.
    pub(crate) fn next<'py>(
        &self,
        py: Python<'py>,
        reader: &Reader,
        max_staleness: Option<Duration>,
        documents_max: usize,
    ) -> Result<Vec<ScannedDocument<'py>>, CallError> {
        let scan = self.scan.get()?.to_arc();
        let mut found: Vec<(OwnedKey, Document)> = Vec::new();
        py.detach(|| {
            reader.scan_next(&mut scan.lock(), max_staleness, documents_max, |scanned| {
                found.push((OwnedKey::of(scanned.key), scanned.row.document()?));
                Ok(())
            })
        })?;
        let object = |(key, document): (OwnedKey, Document)| {
            Ok((key_object(py, key.key())?, document_object(py, reader, &document)?))
        };
        found.into_iter().map(object).collect()
    }
}
