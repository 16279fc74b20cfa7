"""The languages whose readers take part. To add one, write a program that speaks the messages of
tools/demo/README.md and give it an entry here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Language:
    """One language's reader."""

    name: str
    command: Callable[[Path], list[str]]
    """Makes the command line from the folder of built programs; arguments are added to it."""


LANGUAGES = (Language("rust", lambda programs: [str(programs / "examples" / "demo_reader")]),)
