"""Generates the regular part of the bindings from `forebay.h`, `error.proto` and `bindings.toml`.

Run this script after a change of a source; with `--check` it only says which files differ.
"""

import sys
import tomllib
from pathlib import PurePath

import description
import java_calls
import java_constants
import java_errors
import java_reads
import pyo3_source
import python_errors
import python_stub
import rust_entry_points

ROOT = description.ROOT
ORIGIN = "Generated from {} by python3 clients/bindings/generate_bindings.py"
JAVA = "clients/java/src/main/java/io/forebay"
JAVA_22 = "clients/java/src/main/java22/io/forebay"
RUST = "clients/c/src"
PYTHON = "clients/python/forebay"
PYTHON_RUST = "clients/python/src"
PYTHON_TYPES = description.HERE / "python_types.toml"


def java(source: str, text: str) -> str:
    """Return a Java file, whose first line says how it is generated."""
    return f"/* {ORIGIN.format(source)}. */\n{text}"


def python(source: str, role: str, text: str) -> str:
    """Return a Python file, whose first line says how it is generated."""
    return f'"""{ORIGIN.format(source)}.\n\n{role}\n"""\n\n{text}'


def rust_sources(folder: str) -> dict[str, str]:
    """Return the text of each Rust file of a folder, by the name of its module."""
    return {path.stem: path.read_text() for path in (ROOT / folder).glob("*.rs")}


def files() -> dict[str, str]:
    """Return the text of each generated file, by its path in the repository."""
    loaded = description.load()
    header, errors = description.HEADER.name, description.ERRORS.name
    tables = description.TABLES.name
    entry_points = rust_entry_points.module(loaded, rust_sources(RUST))
    exports = pyo3_source.parse(rust_sources(PYTHON_RUST))
    stub = python_stub.module(exports, tomllib.loads(PYTHON_TYPES.read_text()))
    made = {
        f"{JAVA}/NativeCalls.java": java(header, java_calls.interface(loaded)),
        f"{JAVA}/JniCalls.java": java(header, java_calls.jni(loaded)),
        f"{JAVA_22}/ForeignCalls.java": java(header, java_calls.foreign(loaded)),
        f"{JAVA}/HeaderConstants.java": java(header, java_constants.constants(loaded)),
        f"{JAVA}/KeyedReads.java": java(tables, java_reads.reads(loaded)),
        f"{JAVA}/ErrorCode.java": java(errors, java_errors.codes(loaded)),
        f"{RUST}/jni/entry_points.rs": f"//! {ORIGIN.format(header)}.\n//!\n{entry_points}",
        f"{PYTHON}/_errors.py": python(
            errors, "The exceptions, a class for each error code.", python_errors.module(loaded)
        ),
    }
    made[f"{PYTHON}/_native.pyi"] = python(
        PYTHON_RUST,
        "The native module that implements the package. Use the names of `forebay`.",
        stub,
    )
    for name, text in java_errors.exceptions(loaded).items():
        made[f"{JAVA}/{name}"] = java(errors, text)
    return made


def orphans(made: dict[str, str]) -> list[str]:
    """Return the generated files in the folders of the others that no source asks for now."""
    mark = ORIGIN.partition("{}")[2]
    found = []
    kinds = {(str(PurePath(path).parent), PurePath(path).suffix) for path in made}
    for folder, suffix in sorted(kinds):
        for file in sorted((ROOT / folder).glob(f"*{suffix}")):
            path = f"{folder}/{file.name}"
            if path not in made and mark in file.read_text().partition("\n")[0]:
                found.append(path)
    return found


def drift(made: dict[str, str]) -> list[str]:
    """Return the files whose text is not the one that the sources make."""
    stale = [
        path
        for path, text in made.items()
        if not (ROOT / path).is_file() or (ROOT / path).read_text() != text
    ]
    return stale + orphans(made)


def main() -> None:
    """Write the files, or check them."""
    made = files()
    if "--check" in sys.argv[1:]:
        if stale := drift(made):
            fix = ORIGIN.rpartition("by ")[2]
            raise SystemExit(f"generated files differ from their sources: {stale}; run: {fix}")
        return
    for path, text in made.items():
        (ROOT / path).parent.mkdir(exist_ok=True)
        (ROOT / path).write_text(text)
    for path in orphans(made):
        (ROOT / path).unlink()


if __name__ == "__main__":
    main()
