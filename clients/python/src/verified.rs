//! The result of comparing a reader with its node, as the package's data class.

use forebay::{Definition, Difference, DocumentKey, Verified};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::fault::Fault;
use crate::key::key_object;
use crate::python::model;

/// The result of a comparison, and the definition that decodes its keys.
pub(crate) struct FoundVerified {
    pub(crate) verified: Verified,
    pub(crate) definition: Definition,
}

impl FoundVerified {
    /// Returns a `forebay.Verified`.
    pub(crate) fn into_object(self, py: Python<'_>) -> Result<Bound<'_, PyAny>, Fault> {
        let Self { verified, definition } = self;
        let differences = differences(py, &verified, &definition)?;
        let parts = PyDict::new(py);
        parts.set_item("partition", verified.at.partition.0)?;
        parts.set_item("documents_here", verified.documents.0)?;
        parts.set_item("documents_there", verified.documents.1)?;
        parts.set_item("differences", differences.to_tuple())?;
        parts.set_item("more", verified.more)?;
        parts.set_item("ranges_left", verified.ranges_left)?;
        Ok(model(py, "Verified", &parts)?)
    }
}

fn differences<'py>(
    py: Python<'py>,
    verified: &Verified,
    definition: &Definition,
) -> Result<Bound<'py, PyList>, Fault> {
    let named = verified.differences.iter().map(|(key, what)| {
        let what = match what {
            Difference::OnlyInFirst => "only_here",
            Difference::OnlyInSecond => "only_there",
            Difference::Contents => "contents",
        };
        let key = DocumentKey::of_identity(key.as_bytes(), definition)?;
        Ok::<_, Fault>((key_object(py, key)?, what))
    });
    Ok(PyList::new(py, named.collect::<Result<Vec<_>, _>>()?)?)
}
