"""Writes @pypi: for each requirement of tools/setup/requirements.txt a py_library with its files in
.venv, and the interpreter of all Python targets, which has only the standard library. A target
therefore cannot import a package that it does not declare.
"""

import json
import os
import re
import shutil
import sys
import venv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

REQUIREMENTS = "tools/setup/requirements.txt"
NOT_A_LIBRARY = {"BUILD", "BUILD.bazel", "WORKSPACE", "REPO.bazel", "MODULE.bazel"}
"""Files that would make Bazel treat a folder as a package of its own."""

# A library is one folder to Bazel: links to thousands of files, in the runfiles and again in the
# sandbox of each test, would take longer than the tests.
LIBRARY = """\
load("@rules_python//python:defs.bzl", "py_library")

package(default_visibility = ["//visibility:public"])

py_library(
    name = "{name}",
    data = [":data", "site-packages"],
    imports = ["site-packages"],
    deps = {deps},
)

alias(name = "pkg", actual = ":{name}")

filegroup(name = "data", srcs = glob(["bin/**", "data/**"], allow_empty = True))
"""

TOOLCHAIN = """\
load("@bazel_tools//tools/python:toolchain.bzl", "py_runtime_pair")

py_runtime(
    name = "runtime",
    interpreter_path = {interpreter},
    python_version = "PY3",
    stub_shebang = {shebang},
)

py_runtime_pair(name = "runtimes", py3_runtime = ":runtime")

toolchain(
    name = "toolchain",
    toolchain = ":runtimes",
    toolchain_type = "@bazel_tools//tools/python:toolchain_type",
)
"""


@dataclass(frozen=True)
class Pin:
    """A line of the requirements: a distribution and its only accepted version."""

    distribution: str
    version: str

    @property
    def name(self) -> str:
        """Return the name of the library, as rules_python spells it."""
        return library_name(self.distribution)


def library_name(distribution: str) -> str:
    """Spell a distribution's name as rules_python does: `python-dateutil`, `python_dateutil`."""
    return re.sub("[-_.]+", "_", distribution).lower()


def pins(requirements: str) -> dict[str, Pin]:
    """Read the requirements; each must pin its version."""
    found = {}
    for number, line in enumerate(requirements.splitlines(), start=1):
        words = line.split("#", maxsplit=1)[0].strip()
        if not words:
            continue
        distribution, equals, version = words.partition("==")
        if not equals or not version or set(words) & set(" ;[<>*"):
            raise SystemExit(f"{REQUIREMENTS}:{number}: '{words}' is not NAME==VERSION")
        pin = Pin(distribution, version)
        found[pin.name] = pin
    return found


def installed(pin: Pin) -> metadata.Distribution:
    """Find the distribution of a pin; it must be installed in exactly that version."""
    try:
        distribution = metadata.distribution(pin.distribution)
    except metadata.PackageNotFoundError:
        raise SystemExit(f"{pin.distribution} is not in .venv; run: make setup") from None
    if distribution.version != pin.version:
        raise SystemExit(
            f"{pin.distribution}: {REQUIREMENTS} pins {pin.version}, and .venv holds "
            f"{distribution.version}; run: make setup"
        )
    return distribution


def needs(distribution: metadata.Distribution) -> Iterator[str]:
    """Yield the names of the distributions that it requires on this machine, without extras."""
    from packaging.requirements import Requirement  # Only .venv has it.

    for line in distribution.requires or []:
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement.name


def dependencies(pin: Pin, needed: Iterable[str], pinned: dict[str, Pin]) -> list[str]:
    """Convert a distribution's needs to labels; all of them must be pinned, too."""
    names = {library_name(name): name for name in needed}
    for name, asked in names.items():
        if name not in pinned:
            raise SystemExit(
                f"{pin.distribution} needs {asked}, which {REQUIREMENTS} does not pin: add it"
            )
    return [f"//{name}" for name in sorted(names)]


def lay_out(distribution: metadata.Distribution, prefix: Path, folder: Path) -> None:
    """Lay out a distribution's files of this environment as rules_python unpacks them."""
    site_packages = Path(str(distribution.locate_file(""))).resolve()
    for recorded in distribution.files or []:
        if recorded.name in NOT_A_LIBRARY:
            continue
        file = Path(os.path.normpath(site_packages / recorded))
        if file.is_relative_to(site_packages):
            place = folder / "site-packages" / file.relative_to(site_packages)
        elif file.is_relative_to(prefix / "bin"):
            # A script that pip wrote starts the Python of .venv, which must not be used.
            if is_script(file):
                continue
            place = folder / "bin" / file.relative_to(prefix / "bin")
        else:
            place = folder / "data" / file.relative_to(prefix)
        place.parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(file, place)


def is_script(file: Path) -> bool:
    """Return whether an interpreter runs this file."""
    with file.open("rb") as opened:
        return opened.read(2) == b"#!"


def link_or_copy(file: Path, place: Path) -> None:
    """Give a file a second name; across file systems, copy it. A symbolic link would be broken
    while .venv is rebuilt.
    """
    try:
        os.link(file, place)
    except OSError:
        shutil.copy2(file, place)  # With its time, which its compiled form is held against.


def write_repository(pinned: dict[str, Pin], folder: Path) -> None:
    """Write a package per requirement, and the toolchain."""
    for name, pin in pinned.items():
        distribution = installed(pin)
        lay_out(distribution, Path(sys.prefix).resolve(), folder / name)
        deps = dependencies(pin, needs(distribution), pinned)
        text = LIBRARY.format(name=name, deps=json.dumps(deps))
        (folder / name / "BUILD.bazel").write_text(text)
    # A fresh virtual environment: the machine's Python, without packages.
    venv.EnvBuilder(symlinks=True).create(folder / "interpreter")
    interpreter = str(folder / "interpreter" / "bin" / "python3")
    text = TOOLCHAIN.format(
        interpreter=json.dumps(interpreter), shebang=json.dumps(f"#!{interpreter}")
    )
    (folder / "BUILD.bazel").write_text(text)
    (folder / "WORKSPACE").write_text('workspace(name = "pypi")\n')


def main() -> None:
    """Write the repository of the tree into the current folder, or print its inputs."""
    root = Path(sys.argv[1])
    environment = root / ".venv"
    if sys.argv[2:] == ["--inputs"]:
        if (environment / "forebay.stamp").exists():
            print("//:.venv/forebay.stamp")
        return
    python = environment / "bin" / "python"
    if not python.exists():
        raise SystemExit(f"there is no {environment}; run: make setup")
    if Path(sys.prefix).resolve() != environment.resolve():
        os.execv(python, [str(python), *sys.argv])
    write_repository(pins((root / REQUIREMENTS).read_text("utf-8")), Path.cwd())


if __name__ == "__main__":
    main()
