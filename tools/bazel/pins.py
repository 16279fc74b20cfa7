"""Compares the pins of the Bazel build with the manifests that other tools resolve.

A machine without the internet cannot run MODULE.bazel's extensions, so this script compares their
inputs: crates with the members of the Cargo workspace, jars with the poms, Go modules with go.mod,
versions of languages with each manifest that names one. Prints `pins: FINDING; fix: ...` for each
difference, and fails if there is one.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

MODULE = "MODULE.bazel"
POMS = {
    "maven": ("clients/java/pom.xml", "clients/java/segments/pom.xml", "bench/jmh/pom.xml"),
    "maven_kafka": ("infra/kafka/pom.xml",),
    "maven_objects": ("infra/objects/pom.xml",),
}
"""The poms that define the artifacts of each `maven.install`."""
OWN_GROUP = "io.forebay"
JUPITER = "org.junit.jupiter"
CONSOLE = "org.junit.platform:junit-platform-console"
"""The console that runs JUnit 5 under Bazel; Maven has Surefire for that. The console's version
follows Jupiter's."""
VERSION_FILE = "tools/bazel/version.bzl"
SETUP = "tools/setup/setup.sh"


@dataclass
class Module:
    """The content of MODULE.bazel: the keyword arguments of each call, by the called name."""

    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    repositories: dict[str, set[str]] = field(default_factory=dict)
    """The names that `use_repo` takes from each extension."""

    def each(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the arguments of every call of this name."""
        return (arguments for called, arguments in self.calls if called == name)

    def one(self, name: str) -> dict[str, Any]:
        """Return the arguments of the only call of this name, or nothing."""
        return next(self.each(name), {})


def read_module(text: str) -> Module:
    """Read MODULE.bazel, which is written in Python's syntax."""
    module = Module()
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        if name == "use_repo":
            extension, *names = (ast.unparse(argument) for argument in node.args)
            names += [word.arg or "" for word in node.keywords]
            repositories = module.repositories.setdefault(extension, set())
            repositories.update(repository.strip("'\"") for repository in names)
        else:
            module.calls.append((name, dict(literals(node.keywords))))
    return module


def literals(keywords: Iterable[ast.keyword]) -> Iterator[tuple[str, Any]]:
    """Yield the arguments that are literals; a value that a loop computes is no pin."""
    for word in keywords:
        try:
            yield word.arg or "", ast.literal_eval(word.value)
        except ValueError:
            continue


def differences(
    what: str, left: tuple[str, Iterable[str]], right: tuple[str, Iterable[str]]
) -> Iterator[str]:
    """Compare two lists of the same items, each with the file that contains it."""
    (left_file, left_names), (right_file, right_names) = left, right
    for name in sorted(set(left_names) - set(right_names)):
        yield f"{left_file}: {what} {name} is not in {right_file}; fix: make the two equal"
    for name in sorted(set(right_names) - set(left_names)):
        yield f"{left_file}: {what} {name} of {right_file} is missing; fix: make the two equal"


def crates(root: Path, module: Module) -> Iterator[str]:
    """Compare the manifests that crate_universe reads with the members of the workspace."""
    install = module.one("crate.from_cargo")
    members = {
        manifest.parent.relative_to(root).as_posix()
        for pattern in cargo(root)["workspace"]["members"]
        for manifest in root.glob(f"{pattern}/Cargo.toml")
    }
    labels = {f"//{member}:Cargo.toml" for member in members} | {"//:Cargo.toml"}
    yield from differences(
        "manifest", (MODULE, install.get("manifests", [])), ("Cargo.toml", labels)
    )
    if install.get("cargo_lockfile") != "//:Cargo.lock":
        yield f"{MODULE}: crate.from_cargo does not read //:Cargo.lock; fix: cargo_lockfile"


def jars(root: Path, module: Module) -> Iterator[str]:
    """Compare the artifacts of each install with the poms that define it."""
    for name, poms in POMS.items():
        installs = [
            call for call in module.each("maven.install") if call.get("name", "maven") == name
        ]
        artifacts = {artifact for install in installs for artifact in install["artifacts"]}
        declared: set[str] = set()
        for pom in poms:
            declared |= set(pom_artifacts((root / pom).read_text("utf-8")))
        versions = {artifact.rpartition(":")[2] for artifact in declared if JUPITER in artifact}
        # The console's version differs from Jupiter's only in its first number.
        declared |= {f"{CONSOLE}:1.{version.partition('.')[2]}" for version in versions}
        files = " and ".join(poms)
        yield from differences(f"artifact of {name}", (MODULE, artifacts), (files, declared))


def pom_artifacts(text: str) -> Iterator[str]:
    """Yield `group:artifact:version` of what a pom declares, except our own artifacts."""
    space = {"m": "http://maven.apache.org/POM/4.0.0"}
    pom = ElementTree.fromstring(text)
    properties = {
        element.tag.rpartition("}")[2]: (element.text or "").strip()
        for element in pom.iterfind("m:properties/*", space)
    }
    for dependency in pom.iterfind("m:dependencies/m:dependency", space):
        words = (dependency.findtext(f"m:{part}", "", space) for part in PARTS)
        group, artifact, version = (
            re.sub(r"\$\{(.+?)\}", lambda found: properties.get(found[1], found[0]), word.strip())
            for word in words
        )
        if group == OWN_GROUP:
            continue
        # Maven takes the aggregate; Bazel's targets name the parts that they use.
        aggregate = (group, artifact) == (JUPITER, "junit-jupiter")
        for part in ("junit-jupiter-api", "junit-jupiter-engine") if aggregate else (artifact,):
            yield f"{group}:{part}:{version}"


PARTS = ("groupId", "artifactId", "version")


def python(root: Path, module: Module) -> Iterator[str]:
    """Compare the requirements, all pinned, the tools' Python, and the client's oldest Python."""
    parse = module.one("pip.parse")
    label = parse.get("requirements_lock", "")
    file = label.removeprefix("//").replace(":", "/")
    if not (root / file).is_file():
        yield f"{MODULE}: pip.parse reads {label}, which does not exist; fix: requirements_lock"
        return
    for line in (root / file).read_text("utf-8").splitlines():
        if line and not re.fullmatch(r"#.*|[\w.-]+==[\w.!+]+", line):
            yield f"{file}: '{line}' pins no version; fix: NAME==VERSION"
    named = {
        f"{MODULE}: pip.parse": parse.get("python_version"),
        f"{MODULE}: python.toolchain": module.one("python.toolchain").get("python_version"),
    }
    yield from unlike(f"{SETUP} (python3)", setup_version(root, "python3"), named)
    project = tomllib.loads((root / "clients/python/pyproject.toml").read_text("utf-8"))
    wanted = project["project"]["requires-python"].removeprefix(">=")
    tested = re.search(r'^pythons="(\S+)', (root / SETUP).read_text("utf-8"), re.M)
    oldest = {f"{SETUP}: the first of pythons": tested and tested[1]}
    yield from unlike("clients/python/pyproject.toml", wanted, oldest)


def rust(root: Path, module: Module) -> Iterator[str]:
    """Compare Rust's version and edition, and our own version."""
    package = cargo(root)["workspace"]["package"]
    toolchain = module.one("rust.toolchain")
    versions = toolchain.get("versions") or [""]
    named = {
        f"{MODULE}: rust.toolchain": ".".join(versions[0].split(".")[:2]),
        f"{SETUP}: cargo": setup_version(root, "cargo"),
    }
    yield from unlike("Cargo.toml (rust-version)", package["rust-version"], named)
    edition = {f"{MODULE}: rust.toolchain's edition": toolchain.get("edition")}
    yield from unlike("Cargo.toml (edition)", package["edition"], edition)
    printed = re.search(r'^VERSION = "(.*)"$', (root / VERSION_FILE).read_text("utf-8"), re.M)
    own = {
        f"{MODULE}: module": module.one("module").get("version"),
        f"{VERSION_FILE}: VERSION": printed and printed[1],
    }
    yield from unlike("Cargo.toml (version)", package["version"], own)


def java(root: Path, _module: Module) -> Iterator[str]:
    """Compare the Java release in poms, set-up and Bazel's settings."""
    release = r"<maven.compiler.release>(\d+)<"
    wanted = re.search(release, (root / "clients/java/pom.xml").read_text("utf-8"))
    jmh = re.search(release, (root / "bench/jmh/pom.xml").read_text("utf-8"))
    named = {
        "bench/jmh/pom.xml: maven.compiler.release": jmh and jmh[1],
        f"{SETUP}: java": setup_version(root, "java"),
    }
    for setting, version in re.findall(
        r"--((?:tool_)?java_\w+_version)=\D*(\d+)", (root / ".bazelrc").read_text("utf-8")
    ):
        named[f".bazelrc: {setting}"] = version
    yield from unlike("clients/java/pom.xml", wanted and wanted[1], named)


def go(root: Path, module: Module) -> Iterator[str]:
    """Compare Go's modules, once there are any."""
    repositories = module.repositories.get("go_deps", set())
    file = root / "go.mod"
    text = file.read_text("utf-8") if file.is_file() else ""
    direct = re.findall(r"^\s*(?:require )?([\w.-]+\.[\w./-]+) v\S+$", text, re.M)
    names = {repository_of(path) for path in direct}
    yield from differences("Go module", (MODULE, repositories), ("go.mod", names))
    version = re.search(r"^go (\d+\.\d+)", text, re.M)
    if version:
        yield from unlike("go.mod", version[1], {f"{SETUP}: go": setup_version(root, "go")})


def repository_of(path: str) -> str:
    """Name a module's repository as gazelle does: github.com/a/b is com_github_a_b."""
    host, *rest = path.lower().split("/")
    return re.sub(r"[^a-z0-9_]", "_", "_".join([*reversed(host.split(".")), *rest]))


def bazel(root: Path, module: Module) -> Iterator[str]:
    """Check Bazel's own version: exact, and not older than current rule sets require."""
    version = (root / ".bazelversion").read_text("utf-8").strip()
    if not re.fullmatch(r"\d+\.\d+\.\d+", version) or int(version.split(".")[0]) < 8:
        yield f".bazelversion: '{version}' is no version from 8.0.0 on; fix: pin one"
    for dependency in module.each("bazel_dep"):
        if not dependency.get("version"):
            yield f"{MODULE}: bazel_dep {dependency.get('name')} has no version; fix: pin one"


def cargo(root: Path) -> dict[str, Any]:
    """Read the root manifest."""
    return tomllib.loads((root / "Cargo.toml").read_text("utf-8"))


def setup_version(root: Path, tool: str) -> str | None:
    """Return the lowest version of a tool that set-up accepts."""
    text = (root / SETUP).read_text("utf-8")
    found = re.search(rf'check {tool} "\$found" (\S+)', text)
    return found and found[1]


def unlike(file: str, wanted: str | None, named: dict[str, str | None]) -> Iterator[str]:
    """Compare the files that must name the same version as `file`."""
    for place, version in named.items():
        if version != wanted:
            yield f"{place} is {version}, and {file} says {wanted}; fix: make the two equal"


CHECKS: tuple[Callable[[Path, Module], Iterator[str]], ...] = (
    bazel,
    crates,
    rust,
    jars,
    java,
    python,
    go,
)


def findings(root: Path) -> list[str]:
    """Return all differences."""
    module = read_module((root / MODULE).read_text("utf-8"))
    return [finding for check in CHECKS for finding in check(root, module)]


def main() -> int:
    """Print all differences; returns 1 if there are any."""
    found = findings(Path(__file__).resolve().parents[2])
    for finding in found:
        print(f"pins: {finding}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
