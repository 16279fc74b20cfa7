"""The languages whose readers take part. To add one, write a program that speaks the messages of
tools/demo/README.md and give it an entry here.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

CLIENTS = Path(__file__).resolve().parents[2] / "clients"


@dataclass(frozen=True)
class Language:
    """One language's reader."""

    name: str
    command: Callable[[Path], list[str]]
    """Makes the command line from the folder of built programs; arguments are added to it."""
    install: tuple[str, ...] = ()
    """The command that puts what cargo built where the reader looks for it, if there is one. It is
    run before the reader in each demo, and finds the folder of built programs in FOREBAY_BIN."""


def python_command(_programs: Path) -> list[str]:
    """Run the example with the demo's own Python and the package as it lies in the repository."""
    package, example = CLIENTS / "python", CLIENTS / "python" / "examples" / "demo_reader.py"
    return ["env", f"PYTHONPATH={package}", sys.executable, str(example)]


def java_command(_programs: Path) -> list[str]:
    """Run the jar that xtask has packaged; the client's jar and its library lie beside it."""
    jars = CLIENTS / "java" / "target"
    return ["java", "-jar", str(jars / "forebay-client-0.1.0-demo.jar")]


LANGUAGES = (
    Language("rust", lambda programs: [str(programs / "examples" / "demo_reader")]),
    Language(
        "python",
        python_command,
        install=(sys.executable, str(CLIENTS / "python" / "install_native.py")),
    ),
    Language("java", java_command),
)
