"""The development install: puts the native module that cargo built into the package.

`cargo build --workspace --all-targets` builds it; nothing is compiled here. Run by itself, or by
the tests before they import the package. FOREBAY_BIN names the folder that cargo built into.
"""

import os
import shutil
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILT = "libforebay_python.so"
INSTALLED = HERE / "forebay" / "_native.abi3.so"


def programs() -> Path:
    """Return the folder that cargo built into."""
    named = os.environ.get("FOREBAY_BIN")
    return Path(named) if named else HERE.parents[1] / "target" / "debug"


def install() -> Path:
    """Copy the built module into the package, unless that very one is there already."""
    built = programs() / BUILT
    if not built.is_file():
        raise SystemExit(f"no {built}; run: cargo build --workspace --all-targets --locked")
    source = built.stat()
    if INSTALLED.is_file():
        there = INSTALLED.stat()
        if (there.st_mtime_ns, there.st_size) == (source.st_mtime_ns, source.st_size):
            return INSTALLED
    # A process may have the old file mapped: it is replaced, never written over.
    beside = INSTALLED.with_suffix(f".{os.getpid()}")
    shutil.copy2(built, beside)
    beside.replace(INSTALLED)
    return INSTALLED


if __name__ == "__main__":
    print(install())
