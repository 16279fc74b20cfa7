"""The languages whose readers take part. To add a language, write a program that speaks the
messages of tools/demo/README.md and give it an entry here.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

CLIENTS = Path(__file__).absolute().parents[2] / "clients"


@dataclass(frozen=True)
class Language:
    """The reader of one language."""

    name: str
    command: Callable[[Path], list[str]]
    """A function from the folder of built programs to the command line; arguments are appended to
    it."""
    install: tuple[str, ...] = ()
    """The command that puts cargo's outputs where the reader looks for them, if there is one. Each
    demo runs it before the reader, with the folder of built programs in FOREBAY_BIN."""


def python(client: Path) -> Language:
    """Return the reader in Python: this client's example, run by the demo's own interpreter."""

    def command(_programs: Path) -> list[str]:
        path = os.pathsep.join(filter(None, [str(client), os.environ.get("PYTHONPATH")]))
        example = client / "examples" / "demo_reader.py"
        return ["env", f"PYTHONPATH={path}", sys.executable, str(example)]

    return Language("python", command, install=(sys.executable, str(client / "install_native.py")))


def java_command(_programs: Path) -> list[str]:
    """Return the command of xtask's jar; the client's jar and library are next to it."""
    jars = CLIENTS / "java" / "target"
    return ["java", "-jar", str(jars / "forebay-client-0.1.0-demo.jar")]


LANGUAGES = (
    Language("rust", lambda programs: [str(programs / "demo_reader")]),
    python(CLIENTS / "python"),
    Language("java", java_command),
)
