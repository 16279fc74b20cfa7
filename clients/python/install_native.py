"""Development install: copies the native module that cargo built into the package.

`cargo build --workspace --all-targets` builds the module for Python 3.11 and newer, `cargo run -p
xtask -- test --only python` one for each older version; this script compiles nothing. Run it
directly; the tests call it before they import the package. FOREBAY_BIN names cargo's output folder.
"""

import os
import shutil
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

HERE = Path(__file__).resolve().parent
if sys.version_info >= (3, 11):
    BUILT = "libforebay_python.so"
    BUILD = "cargo build --workspace --all-targets --locked"
    INSTALLED = HERE / "forebay" / "_native.abi3.so"
else:
    BUILT = f"libforebay_cp3{sys.version_info.minor}.so"
    BUILD = "cargo run --locked -p xtask -- test --only python"
    # The version's own suffix, which its interpreter prefers to that of the stable ABI.
    INSTALLED = HERE / "forebay" / f"_native{EXTENSION_SUFFIXES[0]}"


def programs() -> Path:
    """Return cargo's output folder."""
    named = os.environ.get("FOREBAY_BIN")
    return Path(named) if named else HERE.parents[1] / "target" / "debug"


def install() -> Path:
    """Copy the built module into the package, unless the same module is there already."""
    built = programs() / BUILT
    if not built.is_file():
        raise SystemExit(f"no {built}; run: {BUILD}")
    source = built.stat()
    if INSTALLED.is_file():
        there = INSTALLED.stat()
        if (there.st_mtime_ns, there.st_size) == (source.st_mtime_ns, source.st_size):
            return INSTALLED
    # A process may have the old file mapped: replace the file, never overwrite it.
    beside = INSTALLED.with_suffix(f".{os.getpid()}")
    shutil.copy2(built, beside)
    beside.replace(INSTALLED)
    return INSTALLED


if __name__ == "__main__":
    print(install())
