//! The comparison of a reader with its node, and its result as the package's data class.

use std::sync::Arc;
use std::time::Duration;

use forebay::Reader;
use forebay::reads::DocumentKey;
use forebay::schema::{Definition, PartitionId};
use forebay::status::{DifferenceKind, Verification};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::error::CallError;
use crate::key::key_object;
use crate::python::{IntoPython, model};

/// The result of a comparison, and the definition that decodes its keys.
pub(crate) struct ReaderVerification {
    verified: Verification,
    definition: Arc<Definition>,
}

impl ReaderVerification {
    /// Compares a partition of a reader with the shard of its node.
    ///
    /// # Errors
    /// Errors of [`Reader::verify`].
    pub(crate) async fn of(
        reader: &Reader,
        partition: u32,
        timeout: Duration,
    ) -> forebay::Result<Self> {
        let verified = reader.verify(PartitionId(partition), timeout).await?;
        Ok(Self { verified, definition: reader.definition() })
    }
}

impl IntoPython for ReaderVerification {
    /// Returns a `forebay.Verification`.
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let Self { verified, definition } = *self;
        let differences = differences(py, &verified, &definition)?;
        let parts = PyDict::new(py);
        parts.set_item("partition", verified.at.partition.0)?;
        parts.set_item("documents_here", verified.documents.0)?;
        parts.set_item("documents_there", verified.documents.1)?;
        parts.set_item("differences", differences.to_tuple())?;
        parts.set_item("more", verified.more)?;
        parts.set_item("ranges_left", verified.ranges_left)?;
        model(py, "Verification", &parts)
    }
}

fn differences<'py>(
    py: Python<'py>,
    verified: &Verification,
    definition: &Definition,
) -> Result<Bound<'py, PyList>, CallError> {
    let named = verified.differences.iter().map(|(key, difference)| {
        let difference = match difference {
            DifferenceKind::OnlyInFirst => "only_here",
            DifferenceKind::OnlyInSecond => "only_there",
            DifferenceKind::Contents => "contents",
        };
        let key = DocumentKey::of_identity(key.as_bytes(), definition)?;
        Ok::<_, CallError>((key_object(py, key)?, difference))
    });
    Ok(PyList::new(py, named.collect::<Result<Vec<_>, _>>()?)?)
}
