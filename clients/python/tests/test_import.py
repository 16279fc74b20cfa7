"""Imports of `import forebay`: modules that every program needs; others follow on first use."""

import ast
import subprocess
import sys

import forebay

HEAVY = {"asyncio", "dataclasses", "logging", "numpy"}
"""Modules that each take longer to import than the package itself."""


def brought(program: str) -> set[str]:
    """Return the heavy modules that a program of a fresh interpreter has imported."""
    script = (
        f"import sys; sys.path[:] = {sys.path!r}; before = set(sys.modules)\n{program}\n"
        "print(sorted(set(sys.modules) - before))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return HEAVY & set(ast.literal_eval(run.stdout))


def test_import_loads_neither_numpy_nor_asyncio() -> None:
    assert brought("import forebay") == set()
    assert brought("import asyncio, numpy, forebay") >= {"asyncio", "numpy"}


def test_reads_without_arrays_load_no_numpy() -> None:
    opened = """
import forebay
reader = forebay.Reader.in_memory({"n": "int64", "v": "f32[2]"}, {"a": {"n": 1}})
assert reader.get("a", "n") == 1 and reader.get("b", "n") is forebay.ABSENT
assert reader.get_many(["a", "b"], "n", None) == [1, None]
assert reader.get_document("a") == {"n": 1} and reader.metrics().reads.hits == 3
"""
    assert "numpy" not in brought(opened)
    assert "numpy" in brought(opened + "reader.gather(reader.plan_gather(['n'], 'int64'), ['a'])")


def test_lazy_imports_are_available() -> None:
    listed = set(dir(forebay))
    for name in forebay.__all__:
        assert name in listed
        assert getattr(forebay, name) is not None
    assert "asyncio" in brought("from forebay import AsyncClient")
    assert "numpy" not in brought("from forebay import AsyncClient, ReaderStatus")
    assert "numpy" in brought("from forebay import Value")
    assert not hasattr(forebay, "no_such_name")


def test_exceptions_belong_to_the_built_in_hierarchy() -> None:
    built_in: dict[type[forebay.ForebayError], type[Exception]] = {
        forebay.InvalidArgumentError: ValueError,
        forebay.NotFoundError: LookupError,
        forebay.UnavailableError: ConnectionError,
        forebay.DeadlineExceededError: TimeoutError,
        forebay.PermissionDeniedError: PermissionError,
    }
    for kind, parent in built_in.items():
        error = kind("Code: a message", store="users", limit=3)
        assert isinstance(error, parent)
        assert (str(error), error.store, error.limit) == ("Code: a message", "users", 3)
