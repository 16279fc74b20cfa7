"""Writes the jars of one `maven.install` of MODULE.bazel, as Maven resolves them: one target for
each.

Names, dependencies and visibility are those of rules_jvm_external: an artifact that MODULE.bazel
names is visible to all; an artifact that only another artifact needs is not; and a target that
names a class of a jar must declare that jar. The repository's name selects the install.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
SECONDS_MAX = 900

POM = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>io.forebay</groupId>
  <artifactId>forebay-bazel</artifactId>
  <version>1</version>
  <dependencies>{dependencies}</dependencies>
</project>
"""
DEPENDENCY = """
    <dependency>
      <groupId>{}</groupId>
      <artifactId>{}</artifactId>
      <version>{}</version>
    </dependency>"""

# A line of Maven's tree: margin, then `group:artifact:jar:version:scope`, in brackets if it also
# occurs elsewhere, and a remark about it.
TREE_LINE = re.compile(r"(?P<margin>(?:[|+\\ ][ -] )+)\(?(?P<coordinates>[^\s()]+)")


@dataclass
class Artifact:
    """An artifact: its jar, and the artifacts that it needs."""

    jar: Path | None = None
    needs: set[str] = field(default_factory=set)


def label(module: str) -> str:
    """Return the target name of `group:artifact`."""
    return re.sub(r"[.\-:/+$]", "_", module)


def module_of(coordinates: str) -> str:
    """Return `group:artifact` of complete coordinates."""
    return ":".join(coordinates.split(":")[:2])


def installed(module_file: Path, name: str) -> list[str]:
    """Return the artifacts of the install of this name."""
    for node in ast.walk(ast.parse(module_file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "install":
            given = {word.arg: ast.literal_eval(word.value) for word in node.keywords}
            if given.get("name", "maven") == name:
                artifacts: list[str] = given["artifacts"]
                return artifacts
    sys.exit(f'MODULE.bazel has no maven.install(name = "{name}")')


def resolve(artifacts: list[str], folder: Path) -> tuple[str, list[Path]]:
    """Return Maven's tree of the artifacts, and their jars; offline if all files are present."""
    dependencies = "".join(DEPENDENCY.format(*artifact.split(":")) for artifact in artifacts)
    (folder / "pom.xml").write_text(POM.format(dependencies=dependencies), encoding="utf-8")
    command = ["mvn", "-B", "-q", f"{PLUGIN}:tree", "-Dverbose", "-DoutputFile=tree.txt"]
    command += [f"{PLUGIN}:build-classpath", "-Dmdep.outputFile=jars.txt"]
    for network in (["--offline"], []):
        ended = subprocess.run(
            [*command, *network],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        if ended.returncode == 0:
            jars = (folder / "jars.txt").read_text(encoding="utf-8").strip()
            tree = (folder / "tree.txt").read_text(encoding="utf-8")
            return tree, [Path(jar) for jar in jars.split(os.pathsep)]
    sys.exit(f"Maven cannot resolve the artifacts of MODULE.bazel:\n{ended.stdout}")


def graph(tree: str, jars: list[Path]) -> dict[str, Artifact]:
    """Return the artifacts by `group:artifact`."""
    artifacts: dict[str, Artifact] = {}
    above: list[str] = []
    for line in tree.splitlines()[1:]:
        found = TREE_LINE.match(line)
        if found is None:
            sys.exit(f"a line of Maven's tree that is not understood: {line}")
        module = module_of(found["coordinates"])
        del above[len(found["margin"]) // 3 - 1 :]
        if above:
            artifacts[above[-1]].needs.add(module)
        above.append(module)
        artifacts.setdefault(module, Artifact())
    for jar in jars:
        # ~/.m2/repository/GROUP/AS/FOLDERS/ARTIFACT/VERSION/ARTIFACT-VERSION.jar
        artifact, path = jar.parent.parent.name, jar.parent.parent.parent.as_posix()
        mine = [
            module
            for module in artifacts
            if module.endswith(f":{artifact}")
            and path.endswith("/" + module.split(":")[0].replace(".", "/"))
        ]
        if len(mine) != 1 or artifacts[mine[0]].jar is not None:
            sys.exit(f"{jar} is not the one jar of one artifact of Maven's tree")
        artifacts[mine[0]].jar = jar
    return artifacts


def target(module: str, artifact: Artifact, is_named: bool, folder: Path) -> str:
    """Return the target of one artifact; its jar is put into a folder of the target's name."""
    name = label(module)
    needs = [f":{label(need)}" for need in sorted(artifact.needs)]
    lines = [f'name = "{name}"']
    if artifact.jar is None:
        rule = "java_library"
        lines.append(f"exports = {needs}")
    else:
        rule = "java_import"
        copy = folder / name / artifact.jar.name
        copy.parent.mkdir()
        shutil.copyfile(artifact.jar, copy)
        lines += [f'jars = ["{name}/{artifact.jar.name}"]', f"deps = {needs}"]
    if is_named:
        lines.append('visibility = ["//visibility:public"]')
    return f"{rule}({', '.join(lines)})\n"


def main() -> None:
    """Writes the repository."""
    folder = Path.cwd()
    named = installed(Path(sys.argv[1], "MODULE.bazel"), folder.name)
    artifacts = graph(*resolve(named, folder))
    modules = {module_of(artifact) for artifact in named}
    build = ['load("@rules_java//java:defs.bzl", "java_import", "java_library")\n']
    for module, artifact in sorted(artifacts.items()):
        build.append(target(module, artifact, module in modules, folder))
    (folder / "BUILD.bazel").write_text("".join(build), encoding="utf-8")
    (folder / "WORKSPACE").write_text(f'workspace(name = "{folder.name}")\n', encoding="utf-8")


main()
