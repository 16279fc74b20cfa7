"""The languages whose readers take part. To add one, write a program that speaks the messages of
tools/demo/README.md and give it an entry here.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

CLIENTS = Path(__file__).absolute().parents[2] / "clients"


@dataclass(frozen=True)
class Language:
    """One language's reader."""

    name: str
    command: Callable[[Path], list[str]]
    """Makes the command line from the folder of built programs; arguments are added to it."""
    install: tuple[str, ...] = ()
    """The command that puts what cargo built where the reader looks for it, if there is one. It is
    run before the reader in each demo, and finds the folder of built programs in FOREBAY_BIN."""


def python(client: Path) -> Language:
    """Python runs the example of this client with its own interpreter, and the package there."""

    def command(_programs: Path) -> list[str]:
        path = os.pathsep.join(filter(None, [str(client), os.environ.get("PYTHONPATH")]))
        example = client / "examples" / "demo_reader.py"
        return ["env", f"PYTHONPATH={path}", sys.executable, str(example)]

    return Language("python", command, install=(sys.executable, str(client / "install_native.py")))


def java_command(_programs: Path) -> list[str]:
    """Run the jar that xtask has packaged; the client's jar and its library lie beside it."""
    jars = CLIENTS / "java" / "target"
    return ["java", "-jar", str(jars / "forebay-client-0.1.0-demo.jar")]


LANGUAGES = (
    Language("rust", lambda programs: [str(programs / "demo_reader")]),
    python(CLIENTS / "python"),
    Language("java", java_command),
)
