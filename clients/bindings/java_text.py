"""Formats Java text: names, declarations and calls within 100 columns, as the tree does."""

import textwrap

from c_header import Function

COLUMNS = 100
INDENT = "    "
CONTINUED = INDENT * 3


def camel(name: str) -> str:
    """Return a C name as Java spells it: `await_ready` is `awaitReady`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def arguments(function: Function) -> list[str]:
    """Return the names of a function's numbers; a text is an address and a length."""
    names = []
    for parameter in function.parameters:
        name = camel(parameter.name)
        names += [name, f"{name}Length"] if parameter.is_text else [name]
    return names


def declaration(head: str, names: list[str], tail: str) -> str:
    """Return a method's head with a parameter `long` for each name."""
    parameters = [f"long {name}" for name in names]
    line = f"{INDENT}{head}({', '.join(parameters)}){tail}"
    if len(line) <= COLUMNS:
        return line
    broken = f"{INDENT}{head}(\n{CONTINUED}{', '.join(parameters)}){tail}"
    if max(map(len, broken.splitlines())) <= COLUMNS:
        return broken
    each = f",\n{CONTINUED}".join(parameters)
    return f"{INDENT}{head}(\n{CONTINUED}{each}){tail}"


def invocation(indent: str, head: str, passed: list[str]) -> str:
    """Return a statement that calls something; a long one continues on lines that are filled."""
    line = f"{indent}{head}({', '.join(passed)});"
    if len(line) <= COLUMNS:
        return line
    further = indent + INDENT * 2
    filled = textwrap.fill(
        ", ".join(passed) + ");",
        COLUMNS,
        initial_indent=further,
        subsequent_indent=further,
        break_long_words=False,
    )
    return f"{indent}{head}(\n{filled}"


def javadoc(indent: str, text: str) -> str:
    """Return a comment for javadoc, on one line if it fits."""
    line = f"{indent}/** {text} */"
    if len(line) <= COLUMNS:
        return line
    start = f"{indent} * "
    filled = textwrap.fill(text, COLUMNS, initial_indent=start, subsequent_indent=start)
    return f"{indent}/**\n{filled}\n{indent} */"
