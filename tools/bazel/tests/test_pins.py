"""Plants one stale pin at a time in a small tree, and proves that it is named. The unchanged tree
has none, so each test can pass only for its own reason.
"""

from pathlib import Path

import pytest
from pins import findings, pom_artifacts, read_module, repository_of

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><properties>
<maven.compiler.release>17</maven.compiler.release><junit.version>5.14.0</junit.version>
</properties><dependencies>{}</dependencies></project>"""
DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
)
TREE = {
    ".bazelversion": "8.5.0\n",
    ".bazelrc": "build --java_language_version=17\nbuild --java_runtime_version=remotejdk_17\n",
    "Cargo.toml": """[workspace]
members = ["libs/*", "clients/rust"]
[workspace.package]
version = "0.1.0"
edition = "2024"
rust-version = "1.95"
""",
    "libs/core/Cargo.toml": "",
    "clients/rust/Cargo.toml": "",
    "clients/java/pom.xml": POM.format(
        DEPENDENCY.format("org.junit.jupiter", "junit-jupiter", "${junit.version}")
        + DEPENDENCY.format("io.forebay", "forebay-client", "0.1.0")
    ),
    "clients/java/segments/pom.xml": POM.format(
        DEPENDENCY.format("io.forebay", "forebay-client", "0.1.0")
    ),
    "bench/jmh/pom.xml": POM.format(DEPENDENCY.format("org.openjdk.jmh", "jmh-core", "1.37")),
    "infra/kafka/pom.xml": POM.format(DEPENDENCY.format("org.apache", "kafka", "4.3.1")),
    "infra/objects/pom.xml": POM.format(DEPENDENCY.format("org.gaul", "s3proxy", "4.1.0")),
    "clients/python/pyproject.toml": '[project]\nrequires-python = ">=3.9"\n',
    "tools/setup/requirements.txt": "# Pins.\npytest==9.2.0\n",
    "tools/setup/setup.sh": """pythons="3.9 3.13"
check cargo "$found" 1.95 x
check python3 "$found" 3.11 x
check java "$found" 17 x
check go "$found" 1.26 x
""",
    "tools/bazel/version.bzl": '"""Ours."""\n\nVERSION = "0.1.0"\n',
    "MODULE.bazel": """
module(name = "forebay", version = "0.1.0")
bazel_dep(name = "rules_go", version = "0.62.0")
rust.toolchain(edition = "2024", versions = ["1.95.0"])
crate.from_cargo(
    cargo_lockfile = "//:Cargo.lock",
    manifests = ["//:Cargo.toml", "//clients/rust:Cargo.toml", "//libs/core:Cargo.toml"],
)
[crate.annotation(crate = name) for name in ["pyo3"]]
maven.install(
    artifacts = [
        "org.junit.jupiter:junit-jupiter-api:5.14.0",
        "org.junit.jupiter:junit-jupiter-engine:5.14.0",
        "org.junit.platform:junit-platform-console:1.14.0",
        "org.openjdk.jmh:jmh-core:1.37",
    ],
)
maven.install(name = "maven_kafka", artifacts = ["org.apache:kafka:4.3.1"])
maven.install(name = "maven_objects", artifacts = ["org.gaul:s3proxy:4.1.0"])
python.toolchain(python_version = "3.11")
pip.parse(python_version = "3.11", requirements_lock = "//tools/setup:requirements.txt")
use_repo(go_deps, "com_github_google_go_cmp", "org_golang_google_grpc")
""",
    "go.mod": """module forebay.example/go
go 1.26.8
require (
    github.com/google/go-cmp v0.7.0
    google.golang.org/grpc v1.80.0
    golang.org/x/text v0.1.0 // indirect
)
""",
}


def plant(root: Path, file: str, find: str, replace: str) -> list[str]:
    """Write the tree with one change, and return the findings."""
    for name, text in TREE.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name == file:
            assert text.count(find) == 1
            text = text.replace(find, replace)
        path.write_text(text, "utf-8")
    return findings(root)


def test_tree_in_order_has_no_finding(tmp_path: Path) -> None:
    assert plant(tmp_path, "", "", "") == []


@pytest.mark.parametrize(
    ("file", "find", "replace", "words"),
    [
        ("MODULE.bazel", ', "//libs/core:Cargo.toml"', "", "//libs/core:Cargo.toml of Cargo.toml"),
        ("Cargo.toml", ', "clients/rust"', "", "//clients/rust:Cargo.toml is not in Cargo.toml"),
        ("MODULE.bazel", "//:Cargo.lock", "//:Other.lock", "cargo_lockfile"),
        ("MODULE.bazel", "1.95.0", "1.94.0", "rust.toolchain is 1.94"),
        ("MODULE.bazel", '"2024"', '"2021"', "edition is 2021"),
        ("MODULE.bazel", '"0.1.0"', '"0.2.0"', "module is 0.2.0"),
        ("tools/bazel/version.bzl", "0.1.0", "0.2.0", "VERSION is 0.2.0"),
        ("MODULE.bazel", "4.3.1", "4.3.0", "org.apache:kafka:4.3.0 is not in infra/kafka/pom.xml"),
        ("infra/objects/pom.xml", "4.1.0", "4.1.1", "org.gaul:s3proxy:4.1.0 is not in infra/obj"),
        ("bench/jmh/pom.xml", "1.37", "1.38", "jmh-core:1.38 of clients/java/pom.xml and"),
        ("MODULE.bazel", "console:1.14.0", "console:1.13.0", "console:1.14.0 of"),
        (".bazelrc", "remotejdk_17", "remotejdk_21", "java_runtime_version is 21"),
        ("bench/jmh/pom.xml", ">17<", ">21<", "maven.compiler.release is 21"),
        ("tools/setup/requirements.txt", "==", ">=", "'pytest>=9.2.0' pins no version"),
        ("MODULE.bazel", ":requirements.txt", ":lock.txt", "//tools/setup:lock.txt"),
        ("clients/python/pyproject.toml", "3.9", "3.8", "the first of pythons is 3.9"),
        ("tools/setup/setup.sh", '"3.9 ', '"', "the first of pythons is 3.13"),
        ("tools/setup/setup.sh", "3.11", "3.10", "pip.parse is 3.11"),
        ("MODULE.bazel", "n.toolchain(python", "n.toolchain(", "python.toolchain is None"),
        ("tools/setup/setup.sh", "1.26", "1.25", "go is 1.25"),
        ("go.mod", "google.golang.org/grpc", "example.org/b", "org_example_b of go.mod"),
        (".bazelversion", "8.5.0", "8", "'8' is no version"),
        ("MODULE.bazel", ', version = "0.62.0"', "", "rules_go has no version"),
    ],
)
def test_stale_pin_is_named(tmp_path: Path, file: str, find: str, replace: str, words: str) -> None:
    found = plant(tmp_path, file, find, replace)
    assert any(words in finding for finding in found), found
    assert all("; fix: " in finding for finding in found), found


def test_value_computed_by_a_loop_is_no_pin() -> None:
    module = read_module("[a.b(name = n, kept = 1) for n in N]\nuse_repo(go, 'x', y = 'z')")
    assert module.one("a.b") == {"kept": 1}
    assert module.repositories == {"go": {"x", "y"}}


def test_aggregate_artifact_is_replaced_by_its_parts() -> None:
    pom = POM.format(DEPENDENCY.format("org.junit.jupiter", "junit-jupiter", "${junit.version}"))
    names = ["org.junit.jupiter:junit-jupiter-api:5.14.0"]
    assert list(pom_artifacts(pom)) == [*names, names[0].replace("api", "engine")]


def test_repositories_are_named_like_gazelle() -> None:
    assert repository_of("github.com/google/go-cmp") == "com_github_google_go_cmp"
    assert repository_of("gopkg.in/yaml.v3") == "in_gopkg_yaml_v3"
