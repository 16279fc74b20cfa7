"""Loads the description of the bindings: `forebay.h`, `error.proto` and `bindings.toml`."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

import c_header
import error_table

HERE = Path(__file__).absolute().parent
ROOT = HERE.parents[1]
HEADER = ROOT / "clients/c/include/forebay.h"
ERRORS = ROOT / "proto/forebay/v1/error.proto"
TABLES = HERE / "bindings.toml"


@dataclass(frozen=True)
class Description:
    """The sources of the bindings, parsed."""

    header: c_header.Header
    errors: tuple[error_table.ErrorCode, ...]
    abi_version: int
    java_names: dict[str, str]
    java_omitted: frozenset[str]
    jni_special: tuple[str, ...]
    foreign_special: frozenset[str]
    java_exceptions_special: frozenset[str]
    java_notes: dict[str, str]
    java_key_types: dict[str, str]
    java_reads: dict[str, str]
    python_notes: dict[str, str]
    python_bases: dict[str, str]

    @property
    def called(self) -> tuple[c_header.Function, ...]:
        """Return the functions that Java calls by an entry point."""
        return tuple(
            function for function in self.header.functions if function.name not in self.java_omitted
        )


def load() -> Description:
    """Return the description, and refuse one that contradicts itself."""
    tables = tomllib.loads(TABLES.read_text())
    java, notes = tables["java"], tables["error_notes"]
    description = Description(
        header=c_header.parse(HEADER.read_text()),
        errors=error_table.parse(ERRORS.read_text()),
        abi_version=tables["abi_version"],
        java_names=java["names"],
        java_omitted=frozenset(java["omitted"]),
        jni_special=tuple(java["jni_special"]),
        foreign_special=frozenset(java["foreign_special"]),
        java_exceptions_special=frozenset(java["exceptions_special"]),
        java_notes=notes["java"],
        java_key_types=java["key_types"],
        java_reads=java["reads"],
        python_notes=notes["python"],
        python_bases=tables["python"]["bases"],
    )
    check(description)
    return description


def check(description: Description) -> None:
    """Refuse names in the tables that the header or the table of errors does not have."""
    functions = {function.name for function in description.header.functions}
    named = set(description.java_names) | description.java_omitted | description.foreign_special
    codes = {code.constant for code in description.errors}
    noted = set(description.java_notes) | set(description.python_notes)
    noted |= set(description.python_bases)
    noted |= description.java_exceptions_special
    if unknown := (named - functions) | (noted - codes):
        raise SystemExit(f"{TABLES.name}: not in the sources: {', '.join(sorted(unknown))}")
    statuses = c_header.status_codes(HEADER.read_text())
    if statuses != {code.constant: code.number for code in description.errors}:
        raise SystemExit("fb_status of forebay.h and ErrorCode of error.proto differ")
