"""Writes the path of a JDK newer than the machine's own, for sources of Java 22.

The script looks next to the JDK on the path, as tools/xtask does. If there is none, NEWER_JDK is
empty.
"""

import re
import shutil
import sys
from pathlib import Path

RELEASE = 22


def release(jdk: Path) -> int:
    """Return the Java version of a JDK, 0 if it is no JDK."""
    about = jdk / "release"
    if not about.is_file() or not (jdk / "bin" / "javac").exists():
        return 0
    found = re.search(r'JAVA_VERSION="(\d+)', about.read_text(encoding="utf-8"))
    return int(found[1]) if found else 0


def newest() -> Path | None:
    """Return the newest JDK that is new enough."""
    java = shutil.which("java")
    if java is None:
        sys.exit("no java on the path; fix: make setup")
    jdks = Path(java).resolve().parents[2]
    found = max(((release(jdk), jdk) for jdk in sorted(jdks.iterdir())), default=(0, jdks))
    return found[1] if found[0] >= RELEASE else None


def main() -> None:
    """Writes the repository."""
    here = Path()
    (here / "WORKSPACE").write_text(f'workspace(name = "{here.resolve().name}")\n')
    (here / "BUILD.bazel").write_text("")
    (here / "jdk.bzl").write_text(f'NEWER_JDK = "{newest() or ""}"\n')


main()
