"""The stub of a native module has the names and defaults of its Rust source."""

import pyo3_source
import pytest
import python_stub

LIB = """
    #[pymodule_export]
    use crate::reader::{Handle, NativeReader, open_reader};
"""

READER = """
/// A field, as [`Reader`] knows it.
#[pyclass(frozen, name = "FieldHandle", module = "forebay")]
pub(crate) struct Handle {}

/// A copy.
#[pyclass(frozen, subclass, name = "Reader")]
#[derive(Clone)]
pub(crate) struct NativeReader {}

#[pymethods]
impl NativeReader {
    #[new]
    #[pyo3(signature = (source, *, allow_incomplete_reads=false, allowed=vec![]))]
    fn new(
        py: Python<'_>,
        source: &str,
        allow_incomplete_reads: bool,
        allowed: Vec<u32>,
    ) -> Result<Self, CallError> {
        entry()
    }

    #[getter]
    fn store(&self) -> &str {
        &self.name
    }

    /// Returns a field.
    #[pyo3(signature = (key, r#type=None))]
    fn field(&self, key: &Bound<'_, PyAny>, r#type: Option<&str>) -> Result<Handle, CallError> {
        entry()
    }

    fn __repr__(&self) -> String {
        entry()
    }

    fn hidden(self) -> Result<Option<Bound<'py, PyAny>>, CallError> {
        entry()
    }
}

impl NativeReader {
    fn inner(&self) {}
}

#[pyfunction]
pub(crate) fn open_reader(timeout: f64) -> PyResult<Vec<(String, usize)>> {
    entry()
}
"""

TABLES = {
    "bases": {},
    "parameters": {"key": "Key"},
    "results": {"Reader.hidden": "Any", "Call.wait": "_Answer"},
    "overloads": {},
}

CALL = """
#[pyclass(frozen)]
pub(crate) struct Call {}

#[pymethods]
impl Call {
    fn wait(&self) -> Answer {
        entry()
    }
}
"""

STUB = '''
def open_reader(timeout: float) -> list[tuple[str, int]]: ...

@final
class FieldHandle:
    """A field, as `Reader` knows it."""

class Reader:
    """A copy."""

    def __new__(
        cls, source: str, *, allow_incomplete_reads: bool = False, allowed: list[int] = ()
    ) -> Reader: ...
    @property
    def store(self) -> str: ...
    def field(self, key: Key, type: str | None = None) -> FieldHandle:
        """Returns a field."""
    def hidden(self) -> Any: ...
'''


def exports() -> list[pyo3_source.Class | pyo3_source.Function]:
    """Return the exports of the example."""
    lib = LIB + "    #[pymodule_export]\n    use crate::call::Call;\n"
    return pyo3_source.parse({"lib": lib, "reader": READER, "call": CALL})


def test_stub_declares_the_exports_of_the_module() -> None:
    """Prove that names, order, defaults and documentation come from the source."""
    assert STUB in python_stub.module(exports(), TABLES)


def test_parameter_without_a_known_type_is_refused() -> None:
    """Prove that no parameter gets a type by guessing."""
    with pytest.raises(SystemExit, match="Reader.field.key needs a type"):
        python_stub.module(exports(), TABLES | {"parameters": {}})


def test_type_of_a_missing_export_is_refused() -> None:
    """Prove that the table has no entries for what is gone."""
    results = {**TABLES["results"], "Reader.gone": "int"}
    with pytest.raises(SystemExit, match="Reader.gone"):
        python_stub.module(exports(), TABLES | {"results": results})


def test_missing_export_is_refused() -> None:
    """Prove that nothing exported is left out in silence."""
    with pytest.raises(SystemExit, match="Handle"):
        pyo3_source.parse({"lib": LIB, "reader": ""})


def test_lists_are_split_outside_brackets() -> None:
    """Prove that a default or a type may contain commas."""
    assert pyo3_source.split("a=(1, 2), b: Vec<(u8, u8)>,") == ["a=(1, 2)", "b: Vec<(u8, u8)>"]
