"""Generates the stub of Python's native module from its Rust source and `python_types.toml`."""

import re
import textwrap
from dataclasses import dataclass, replace
from typing import Any

from pyo3_source import Class, Function, Parameter

MODULE = """\
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar, final, overload

import numpy as np
import numpy.typing as npt

from forebay._answers import (
    BatchOutcome,
    Definition,
    EventQueryResult,
    ReaderMetrics,
    ReaderStatus,
    StreamSummary,
    Verification,
    WriteOutcome,
)
from forebay._errors import ForebayError
from forebay._model import Absent, Presence
from forebay._types import Document, Fields, FieldValue, Key, Keys, Value

_Default = TypeVar("_Default")
_Answer = TypeVar("_Answer")
"""

WIDTH = 100
QUOTES = '"""'
SIMPLE = {
    "&str": "str",
    "&'static str": "str",
    "String": "str",
    "bool": "bool",
    "f64": "float",
    "&[u8]": "bytes",
    "PathBuf": "str | os.PathLike[str]",
    "()": "None",
} | dict.fromkeys(("u8", "u32", "u64", "usize", "i32", "i64"), "int")
DEFAULTS = {"false": "False", "true": "True", "vec![]": "()"}
# The parameter type of a default that a caller may leave out.
OPTIONAL_DEFAULT = "DefaultValue<'py>"


@dataclass(frozen=True)
class Types:
    """The types that the tables and the module's own classes give."""

    bases: dict[str, str]
    parameters: dict[str, str]
    results: dict[str, str]
    overloads: dict[str, list[str]]
    classes: dict[str, str]

    def of_rust(self, rust_type: str, place: str) -> str:
        """Return the Python type of a Rust type that has only one."""
        bare = rust_type.removeprefix("&")
        if simple := SIMPLE.get(rust_type) or self.classes.get(bare):
            return simple
        if found := re.fullmatch(r"(?:PyResult|Result)<(.*?)(?:, CallError)?>", rust_type):
            return self.of_rust(found[1], place)
        if found := re.fullmatch(r"Option<(.*)>", rust_type):
            return f"{self.of_rust(found[1], place)} | None"
        if found := re.fullmatch(r"Vec<(.*)>", rust_type):
            return f"list[{self.of_rust(found[1], place)}]"
        if found := re.fullmatch(r"\((\w.*)\)", rust_type):
            return f"tuple[{', '.join(self.of_rust(p, place) for p in found[1].split(', '))}]"
        raise SystemExit(f"python_types.toml: {place} needs a type; Rust has only {rust_type}")


def module(exports: list[Class | Function], tables: dict[str, Any]) -> str:
    """Return the text of `_native.pyi`."""
    classes = {one.rust_name: one.name for one in exports if isinstance(one, Class)}
    # Which result a call has is not in its Rust type.
    del classes["Call"]
    types = Types(**tables, classes=classes)
    check(exports, types)
    found = [one for one in exports if isinstance(one, Function)]
    texts = [function_text(one, types) for one in found]
    texts += [class_text(one, types) for one in exports if isinstance(one, Class)]
    return MODULE + "\n" + "\n".join(texts)


def check(exports: list[Class | Function], types: Types) -> None:
    """Refuse types for what the module does not have."""
    places = {one.name for one in exports}
    places |= {
        f"{one.name}.{method.name}"
        for one in exports
        if isinstance(one, Class)
        for method in one.methods
    }
    named = set(types.bases) | set(types.results) | set(types.overloads)
    named |= {key.rpartition(".")[0] for key in types.parameters if "." in key}
    if unknown := named - places:
        raise SystemExit(f"python_types.toml: not in the module: {', '.join(sorted(unknown))}")


def class_text(one: Class, types: Types) -> str:
    """Return a class of the stub."""
    base = types.bases.get(one.name)
    head = f"class {one.name}({base}):\n" if base else f"class {one.name}:\n"
    if one.is_final:
        head = "@final\n" + head
    body = "".join(method_text(one, method, types) for method in one.methods)
    return head + docstring("    ", one.doc) + ("\n" if body else "") + body


def function_text(function: Function, types: Types) -> str:
    """Return a function of the stub."""
    result = types.results.get(function.name)
    result = result or types.of_rust(function.rust_result, function.name)
    return definition("", "", function, parameters("", function, types), result)


def method_text(owner: Class, method: Function, types: Types) -> str:
    """Return a method of the stub, once for each of its overloads."""
    place = f"{owner.name}.{method.name}"
    if place in types.overloads:
        bare, full = types.overloads[place]
        optional = [one for one in method.parameters if one.rust_type == OPTIONAL_DEFAULT]
        rest = tuple(one for one in method.parameters if one not in optional)
        made = tuple(
            replace(one, default=None) if one in optional else one for one in method.parameters
        )
        first = decorated("    @overload\n", owner, replace(method, parameters=rest), types, bare)
        return first + decorated(
            "    @overload\n", owner, replace(method, parameters=made), types, full
        )
    decorators = {"getter": "    @property\n", "staticmethod": "    @staticmethod\n"}
    own = replace(types, classes=types.classes | {"Self": owner.name})
    result = types.results.get(place) or own.of_rust(method.rust_result, place)
    return decorated(decorators.get(method.kind, ""), owner, method, types, result)


def decorated(decorator: str, owner: Class, method: Function, types: Types, result: str) -> str:
    """Return a method of the stub under a decorator."""
    first = {"new": ["cls"], "staticmethod": []}.get(method.kind, ["self"])
    asked = first + parameters(f"{owner.name}.", method, types)
    return definition("    ", decorator, method, asked, result)


def parameters(owner: str, function: Function, types: Types) -> list[str]:
    """Return the parameters of a function as Python writes them."""
    listed, had_keyword = [], False
    for parameter in function.parameters:
        if parameter.is_keyword and not had_keyword:
            listed.append("*")
            had_keyword = True
        listed.append(parameter_text(f"{owner}{function.name}.{parameter.name}", parameter, types))
    return listed


def parameter_text(place: str, parameter: Parameter, types: Types) -> str:
    """Return a parameter with its type and default."""
    table = types.parameters
    if parameter.rust_type == OPTIONAL_DEFAULT:
        kind = table.get(place, "_Default")
        return f"{parameter.name}: {kind}" + (" = ..." if parameter.default else "")
    known = table.get(place) or table.get(parameter.name)
    kind = known or types.of_rust(parameter.rust_type, place)
    if parameter.default is None:
        return f"{parameter.name}: {kind}"
    return f"{parameter.name}: {kind} = {DEFAULTS.get(parameter.default, parameter.default)}"


def definition(
    indent: str, decorator: str, function: Function, asked: list[str], result: str
) -> str:
    """Return a definition, on one line if it fits, with the documentation as its body."""
    tail = f") -> {result}:"
    tail += "" if function.doc else " ..."
    head = f"{indent}def {function.name}("
    further = f"{indent}    "
    if len(head + ", ".join(asked) + tail) <= WIDTH:
        text = head + ", ".join(asked) + tail
    elif len(asked) > 1 and len(further + ", ".join(asked)) <= WIDTH:
        text = f"{head}\n{further}{', '.join(asked)}\n{indent}{tail}"
    else:
        each = "".join(f"{further}{parameter},\n" for parameter in asked)
        text = f"{head}\n{each}{indent}{tail}"
    return f"{decorator}{text}\n{docstring(further, function.doc)}"


def docstring(indent: str, doc: str) -> str:
    """Return a documentation string, wrapped; nothing if there is no documentation."""
    if not doc:
        return ""
    paragraphs = [" ".join(paragraph.split()) for paragraph in doc.split("\n\n")]
    if len(paragraphs) == 1 and len(indent) + len(doc) + 2 * len(QUOTES) <= WIDTH:
        return f"{indent}{QUOTES}{paragraphs[0]}{QUOTES}\n"
    paragraphs[0] = QUOTES + paragraphs[0]
    # A line that would fit alone, but not with the quotes at its end, is wrapped too.
    width = WIDTH - len(QUOTES)
    filled = (
        textwrap.fill(paragraph, width, initial_indent=indent, subsequent_indent=indent)
        for paragraph in paragraphs
    )
    return "\n\n".join(filled) + f"\n{indent}{QUOTES}\n"
