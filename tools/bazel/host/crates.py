"""Writes @crates: the third-party crates that cargo has built, for the stand-in of rules_rust.

The script runs cargo in the one invocation form of the tree (tools/decisions/0002). After a build
cargo has nothing left to do, and reports the file of each package. Each such package is a target
NAME-VERSION, whose dependencies are those of `cargo metadata`. Each direct dependency of a
first-party package is also a target NAME, which is the name that BUILD files use. Files are hard
links: they cost nothing and outlive `cargo clean`. Usage: crates.py ROOT [--inputs]
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

BUILD = ["build", "--workspace", "--all-targets", "--locked", "--message-format=json"]
METADATA = ["metadata", "--locked", "--format-version=1", "--filter-platform"]
# `cargo run` leaves these variables in its program's environment; they would change build scripts'
# fingerprints.
UNWANTED = (
    "CARGO_PKG_",
    "CARGO_MANIFEST_",
    "CARGO_CRATE_",
    "CARGO_BIN_",
    "CARGO_PRIMARY_",
)

Json = dict[str, Any]


def cargo(root: pathlib.Path, arguments: list[str]) -> str:
    """Return cargo's output; cargo runs as xtask runs it (tools/xtask/src/workspace.rs)."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(UNWANTED)}
    command = ["cargo", *arguments]
    done = subprocess.run(command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed; fix the Cargo build first: {' '.join(command[:4])}")
    return done.stdout


def triple(root: pathlib.Path) -> str:
    """Return the platform that rustc compiles for."""
    text = subprocess.run(["rustc", "-vV"], cwd=root, check=True, capture_output=True, text=True)
    return next(line[6:] for line in text.stdout.splitlines() if line.startswith("host: "))


def artifacts(root: pathlib.Path) -> tuple[dict[str, list[Json]], list[bytes]]:
    """Map each third-party package to its linkable files; return first-party metadata, too."""
    found: dict[str, list[Json]] = {}
    first_party: list[bytes] = []
    for line in cargo(root, BUILD).splitlines():
        message = json.loads(line)
        if message["reason"] != "compiler-artifact":
            continue
        if "path+" in message["package_id"]:
            files = map(pathlib.Path, message["filenames"])
            first_party += [file.read_bytes() for file in files if file.suffix == ".rmeta"]
            continue
        kinds = message["target"]["kind"]
        if "custom-build" in kinds:
            continue
        # Cargo may also build a library as a shared one, for other languages.
        linkable = ".so" if "proc-macro" in kinds else ".rlib"
        for file in message["filenames"]:
            if file.endswith(linkable):
                found.setdefault(message["package_id"], []).append(
                    {
                        "crate": message["target"]["name"].replace("-", "_"),
                        "file": pathlib.Path(file),
                    }
                )
    return found, first_party


def is_linked(file: pathlib.Path, first_party: list[bytes]) -> bool:
    """Return whether a crate's metadata names this file: rustc writes the hash of each link."""
    linked = file.stem[file.stem.rindex("-") :].encode()
    return any(linked in library for library in first_party)


def choose(name: str, made: list[Json], kinds: list[Json], first_party: list[bytes]) -> Json:
    """Choose the artifact that cargo links; build scripts may link one with other features."""
    fitting = made
    if len(made) > 1:
        for_host = all(kind["kind"] == "build" for kind in kinds)
        fitting = [one for one in made if is_linked(one["file"], first_party) != for_host]
    if len(fitting) != 1:
        files = ", ".join(one["file"].name for one in fitting)
        sys.exit(f"{name}: cargo built several artifacts, and none is the obvious one: {files}")
    return fitting[0]


def link(source: pathlib.Path, folder: pathlib.Path) -> str:
    """Create a hard link, or a copy across file systems; returns its name, the source's."""
    target = folder / source.name
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return f"{folder.name}/{target.name}"


def package_targets(
    nodes: Json, packages: Json, made: dict[str, list[Json]], folder: pathlib.Path
) -> Iterator[str]:
    """Yield a target for every third-party package: its files, and the packages that it links."""
    for identity in sorted(made, key=lambda one: (packages[one]["name"], packages[one]["version"])):
        files = [link(one["file"], folder) for one in made[identity]]
        deps = []
        if not any(file.endswith(".so") for file in files):  # A macro holds all it needs.
            for dep in nodes[identity]["deps"]:
                linked = any(kind["kind"] is None for kind in dep["dep_kinds"])
                if linked and dep["pkg"] in made:
                    deps.append(":" + label(packages[dep["pkg"]]))
        yield target("crate_files", label(packages[identity]), files=files, deps=sorted(deps))


def direct_targets(
    nodes: Json,
    packages: Json,
    members: list[str],
    made: dict[str, list[Json]],
    first_party: list[bytes],
) -> Iterator[str]:
    """Yield a target for every third-party package that a first-party package names."""
    chosen: dict[str, tuple[str, Json]] = {}
    for member in sorted(members):
        for dep in nodes[member]["deps"]:
            if dep["pkg"] not in made:
                continue
            name = packages[dep["pkg"]]["name"]
            one = choose(name, made[dep["pkg"]], dep["dep_kinds"], first_party)
            if chosen.setdefault(name, (dep["pkg"], one)) != (dep["pkg"], one):
                sys.exit(f"{name}: first-party packages use two versions or two builds of it")
    for name, (identity, one) in sorted(chosen.items()):
        yield target(
            "crate_import",
            name,
            crate_name=one["crate"],
            library=f"deps/{one['file'].name}",
            package=":" + label(packages[identity]),
            visibility=["//visibility:public"],
        )


def label(package: Json) -> str:
    """Return the target name of a package."""
    return f"{package['name']}-{package['version']}"


def target(rule: str, name: str, **attributes: object) -> str:
    """Return a target in the syntax of BUILD files."""
    lines = [f"    {key} = {json.dumps(value)}," for key, value in sorted(attributes.items())]
    return "\n".join([f"{rule}(", f'    name = "{name}",', *lines, ")"])


def print_inputs(root: pathlib.Path) -> None:
    """Print the labels of the first-party manifests that are in a package of Bazel."""
    metadata = json.loads(cargo(root, ["metadata", "--no-deps", "--locked", "--format-version=1"]))
    for package in metadata["packages"]:
        manifest = pathlib.Path(package["manifest_path"]).relative_to(root.resolve())
        if (root / manifest.parent / "BUILD.bazel").is_file():
            print(f"//{manifest.parent}:Cargo.toml")


def write_repository(root: pathlib.Path, here: pathlib.Path) -> None:
    """Write the repository into a folder."""
    metadata = json.loads(cargo(root, [*METADATA, triple(root)]))
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    members = metadata["workspace_members"]
    made, first_party = artifacts(root)
    folder = here / "deps"
    folder.mkdir(exist_ok=True)
    build = ['load("@rules_rust//rust:imports.bzl", "crate_files", "crate_import")']
    build += package_targets(nodes, packages, made, folder)
    build += direct_targets(nodes, packages, members, made, first_party)
    (here / "BUILD.bazel").write_text("\n\n".join(build) + "\n")
    (here / "WORKSPACE").write_text('workspace(name = "crates")\n')


def main() -> None:
    """Write the repository into the current folder, or print its inputs."""
    root = pathlib.Path(sys.argv[1])
    if sys.argv[2:] == ["--inputs"]:
        print_inputs(root)
    else:
        write_repository(root, pathlib.Path.cwd())


main()
