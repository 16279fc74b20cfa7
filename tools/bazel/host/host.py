"""Writes @host: the paths of this machine's tools, and the Cargo workspace's build settings.

The script builds nothing, so that `bazel query` loads the tree in seconds. Usage: host.py ROOT
"""

import glob
import json
import os
import pathlib
import subprocess
import sys
import tomllib
from typing import Any


def read(command: list[str], root: pathlib.Path) -> str:
    """Return the output of the command."""
    return subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE, text=True).stdout


def opt_levels(root: pathlib.Path) -> dict[str, Any]:
    """Return the optimisation of each first-party package in the dev profile, by folder."""
    workspace = tomllib.loads((root / "Cargo.toml").read_text())
    profile = workspace["profile"]["dev"]
    levels = {}
    for pattern in workspace["workspace"]["members"]:
        for folder in sorted(glob.glob(pattern, root_dir=root)):
            manifest = root / folder / "Cargo.toml"
            if not manifest.is_file():
                continue
            name = tomllib.loads(manifest.read_text())["package"]["name"]
            own = profile.get("package", {}).get(name, {})
            levels[folder] = own.get("opt-level", profile.get("opt-level", 0))
    return levels


def rustflags(root: pathlib.Path) -> list[str]:
    """Return cargo's flags, with a run path to RocksDB for the folders of Bazel's programs."""
    cargo = tomllib.loads((root / ".cargo/config.toml").read_text())
    flags: list[str] = cargo["target"]["cfg(unix)"]["rustflags"]
    engine = root.resolve() / "target/rocksdb"
    paths = [f"-Lnative={engine}/link", f"-Clink-arg=-Wl,-rpath,{engine}"]
    return [flag for flag in flags if "-rpath," not in flag] + paths


def main() -> None:
    """Write the repository into the current folder."""
    root = pathlib.Path(sys.argv[1])
    version = read(["rustc", "-vV"], root)
    tools = pathlib.Path(read(["rustc", "--print", "sysroot"], root).strip()) / "bin"
    constants = {
        "OPT_LEVELS": opt_levels(root),
        "PATH": os.environ["PATH"],
        "PYTHON": sys.executable,
        "RUSTC": str(tools / "rustc"),
        "RUSTDOC": str(tools / "rustdoc"),
        "RUSTFLAGS": rustflags(root),
        "TRIPLE": next(line[6:] for line in version.splitlines() if line.startswith("host: ")),
    }
    lines = ['"""Where this machine\'s tools are, as tools/bazel/host/host.py found them."""\n']
    lines += [f"{name} = {json.dumps(value)}" for name, value in constants.items()]
    here = pathlib.Path.cwd()
    (here / "host.bzl").write_text("\n".join(lines) + "\n")
    (here / "toolchain.json").write_text(json.dumps({"rustc": version, "path": constants["RUSTC"]}))
    (here / "BUILD.bazel").write_text('exports_files(["host.bzl", "toolchain.json"])\n')
    (here / "WORKSPACE").write_text('workspace(name = "host")\n')


main()
