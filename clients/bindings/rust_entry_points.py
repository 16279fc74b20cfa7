"""Generates the JNI entry points in Rust, over the functions of the C ABI."""

import re
import textwrap

from c_header import Function, Parameter
from description import Description
from java_calls import method_name

MODULE = """\
//! The calls are `native` methods of `io.forebay.JniCalls`; `jni.rs` declares their form.

use jni_sys::{{JNIEnv, jclass, jint, jlong}};

use super::{{at, text}};

/// Version of the entry points and structs; raised with each change of either.
pub(super) const ABI_VERSION: jint = {version};

calls! {{
{calls}
}}
"""

WIDTH = 100
CASTS = {"int64_t": "", "uint32_t": " as u32", "uint64_t": " as u64"}


def module(description: Description, sources: dict[str, str]) -> str:
    """Return the text of the entry points; the sources say in which module a function is."""
    calls = [
        call(description, function, home_of(function, sources)) for function in description.called
    ]
    return MODULE.format(version=description.abi_version, calls="\n".join(calls))


def home_of(function: Function, sources: dict[str, str]) -> str:
    """Return the name of the module that implements a function."""
    pattern = re.compile(rf'extern "C" fn {function.name}\(')
    for name, text in sources.items():
        if pattern.search(text):
            return name
    raise SystemExit(f"no file of clients/c/src implements {function.name}")


def call(description: Description, function: Function, home: str) -> str:
    """Return the entry point of a function, as an entry of the macro."""
    names: list[str] = []
    passed: list[str] = []
    for parameter in function.parameters:
        name = identifier(parameter)
        names += [name, f"{name}_length"] if parameter.is_text else [name]
        passed.append(converted(parameter))
    head = f"Java_io_forebay_JniCalls_{method_name(description, function)}"
    callee = f"crate::{home}::{function.name}"
    if not function.has_status:
        return f"    {head}({', '.join(names)}) =>\n        {{ {callee}({', '.join(passed)}); 0 }};"
    return f"{listed('    ', head, names, ' =>')}\n{listed(' ' * 8, callee, passed, ';')}"


def identifier(parameter: Parameter) -> str:
    """Return a parameter's name in Rust, where `type` is a keyword."""
    return "r#type" if parameter.name == "type" else parameter.name


def converted(parameter: Parameter) -> str:
    """Return the expression that turns Java's numbers into a parameter."""
    name = identifier(parameter)
    if parameter.is_pointer:
        return f"at({name})"
    if parameter.is_text:
        return f"text({name}, {name}_length)"
    if parameter.type not in CASTS:
        raise SystemExit(f"forebay.h: no conversion of Java's long into {parameter.type}")
    return name + CASTS[parameter.type]


def listed(indent: str, head: str, names: list[str], tail: str) -> str:
    """Return a head with a list in parentheses, broken after the first if it is long."""
    line = f"{indent}{head}({', '.join(names)}){tail}"
    if len(line) <= WIDTH:
        return line
    # A name and its cast stay on one line.
    joined = ", ".join(name.replace(" ", "\0") for name in names) + f"){tail}"
    further = indent + "    "
    filled = textwrap.fill(
        joined, WIDTH, initial_indent=further, subsequent_indent=further, break_on_hyphens=False
    )
    return f"{indent}{head}(\n" + filled.replace("\0", " ")
