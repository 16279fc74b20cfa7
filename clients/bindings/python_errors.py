"""Generates Python's exceptions, a class for each error code."""

import textwrap

from description import Description
from error_table import ErrorCode

MODULE = """\
from __future__ import annotations

from forebay._error import ForebayError, pending_of

__all__ = [
{names}
]
{classes}"""

WIDTH = 100


def module(description: Description) -> str:
    """Return the text of `_errors.py`."""
    names = sorted(["ForebayError", "pending_of", *map(class_name, description.errors)])
    return MODULE.format(
        names="\n".join(f'    "{name}",' for name in names),
        classes="".join(class_of(description, code) for code in description.errors),
    )


def class_name(code: ErrorCode) -> str:
    """Return the name of a code's class."""
    return f"{code.label}Error"


def class_of(description: Description, code: ErrorCode) -> str:
    """Return the class of a code."""
    built_in = description.python_bases.get(code.constant)
    bases = f"ForebayError, {built_in}" if built_in else "ForebayError"
    head = f"class {class_name(code)}({bases}):"
    lines = ["\n", head, docstring(description, code), ""]
    lines.append(f'    code = "{code.label}"')
    if code.is_retryable:
        lines.append("    is_retryable = True")
    return "\n".join(lines) + "\n"


def docstring(description: Description, code: ErrorCode) -> str:
    """Return the meaning of a code, with Python's note as a second paragraph."""
    note = description.python_notes.get(code.constant)
    if note is None:
        return f'    """{code.about}"""'
    note = textwrap.fill(note, WIDTH, initial_indent="    ", subsequent_indent="    ")
    return f'    """{code.about}\n\n{note}\n    """'
