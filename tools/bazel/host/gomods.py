"""Writes @host_go: the path of the machine's go, and a repository for each third-party module that
the tree's Go code imports, under gazelle's name for it.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

GO_SECONDS_MAX = 600
KEPT = ("GOCACHE", "GOMODCACHE", "GOPATH", "GOROOT")
SETTINGS = {
    # The build has no network: `go list` has fetched its modules for this repository.
    "GOFLAGS": "-mod=readonly -buildvcs=false -trimpath",
    "GOPROXY": "off",
    "GOTOOLCHAIN": "local",
}
PACKAGE_OF_MODULE = (
    "{{with .Module}}{{if not .Main}}{{.Path}} {{$.ImportPath}} {{$.ForTest}}{{end}}{{end}}"
)

LIBRARY = """\
load("@rules_go//go:def.bzl", "go_library")

go_library(
    name = "{name}",
    importpath = "{importpath}",
    visibility = ["//visibility:public"],
)
"""


def go(root: Path, *arguments: str) -> str:
    """Return what go prints."""
    command = ["go", *arguments]
    run = subprocess.run(
        command, cwd=root, stdout=subprocess.PIPE, text=True, timeout=GO_SECONDS_MAX, check=False
    )
    if run.returncode != 0:
        raise SystemExit(f"'{' '.join(command)}' failed; see its output above")
    return run.stdout


def repository_name(module: str) -> str:
    """Spell a module as gazelle does: `github.com/google/go-cmp`, `com_github_google_go_cmp`."""
    host, *path = module.lower().split("/")
    return re.sub(r"\W+", "_", ".".join([*reversed(host.split(".")), *path]))


def target_name(importpath: str) -> str:
    """Name the library of a package as gazelle does: its last part that is not a version."""
    *above, last = importpath.split("/")
    named = above[-1] if above and re.fullmatch("v[0-9]+", last) else last
    return named.replace(".", "_")


def packages(root: Path) -> dict[str, list[str]]:
    """Find the third-party packages that the tree's own code and tests need, by module."""
    found: dict[str, list[str]] = {}
    listed = go(root, "list", "-deps", "-test", "-f", PACKAGE_OF_MODULE, "./...")
    for line in sorted(set(listed.splitlines())):
        module, importpath, *made_for_a_test = line.split()
        if not made_for_a_test:
            found.setdefault(module, []).append(importpath)
    return found


def write_module(folder: Path, module: str, importpaths: list[str]) -> None:
    """Write the repository of one module: a library for each package."""
    folder.mkdir(parents=True)
    (folder / "WORKSPACE").write_text(f'workspace(name = "{folder.name}")\n')
    for importpath in importpaths:
        package = folder / importpath.removeprefix(module).strip("/")
        package.mkdir(parents=True, exist_ok=True)
        library = LIBRARY.format(name=target_name(importpath), importpath=importpath)
        (package / "BUILD.bazel").write_text(library)


def main() -> None:
    """Write the repository into the current folder; the argument is the tree."""
    root, here = Path(sys.argv[1]), Path.cwd()
    environment = json.loads(go(root, "env", "-json"))
    main_module = go(root, "list", "-m").strip()
    lines = ["def host_go_repositories():", '    """One repository per module."""']
    for module, importpaths in packages(root).items():
        folder = here / "modules" / repository_name(module)
        write_module(folder, module, importpaths)
        lines.append(
            f"    native.local_repository(name = {json.dumps(folder.name)}, "
            f"path = {json.dumps(str(folder))})"
        )
    (here / "repos.bzl").write_text("\n".join(lines) + "\n")
    kept = {name: environment[name] for name in KEPT}
    passed = {**kept, **SETTINGS, "PATH": os.environ["PATH"]}
    (here / "host.bzl").write_text(
        f"GO = {json.dumps(environment['GOROOT'] + '/bin/go')}\n"
        f"MODULE = {json.dumps(main_module)}\n"
        f"ENVIRONMENT = {json.dumps(passed)}\n"
    )
    (here / "BUILD.bazel").write_text("")
    (here / "WORKSPACE").write_text('workspace(name = "host_go")\n')


if __name__ == "__main__":
    main()
