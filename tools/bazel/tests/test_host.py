"""Proves the front of Bazel 4 in a build folder that was moved. Cargo and Bazel are fakes that
print their arguments: the test covers only the front, and `xtask bazel` runs it with the real
programs.
"""

import os
import shutil
import subprocess
from pathlib import Path

FRONT = Path(__file__).resolve().parents[1] / "host.sh"
CARGO = """#!/bin/sh
echo '{"target_directory":"'"$BUILD"'"}'
"""
BAZEL = """#!/bin/sh
printf '%s\\n' "$@"
"""


def front(folder: Path, build: Path) -> "list[str]":
    """Run the front with this build folder; returns Bazel's arguments."""
    root = folder / "tree"
    programs = folder / "programs"
    for name, text in ("cargo", CARGO), ("bazel-4", BAZEL):
        programs.mkdir(exist_ok=True)
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (root / "tools/bazel").mkdir(parents=True, exist_ok=True)
    shutil.copy(FRONT, root / "tools/bazel/host.sh")
    ended = subprocess.run(
        ["sh", str(root / "tools/bazel/host.sh"), "build", "//libs/..."],
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "BUILD": str(build)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=True,
    )
    return ended.stdout.splitlines()


def fetched(build: Path) -> Path:
    """Return the folder that Bazel has fetched there, with a link into that folder, as Bazel
    creates it."""
    toolchain = build / "bazel/base/external/local_config_cc"
    toolchain.mkdir(parents=True)
    link = toolchain / "toolchain.bzl"
    link.symlink_to(build / "bazel/base/external/tools.bzl")
    toolchain.chmod(0o555)
    return link


def test_unmoved_folder_retains_fetched_repositories(tmp_path: Path) -> None:
    build = tmp_path / "build"
    said = front(tmp_path, build)
    assert f"--output_base={build}/bazel/base" in said and said[-2:] == ["build", "//libs/..."]
    link = fetched(build)
    front(tmp_path, build)
    assert link.is_symlink()


def test_moved_folder_fetches_again_and_retains_compiled_outputs(tmp_path: Path) -> None:
    before, build = tmp_path / "before", tmp_path / "build"
    front(tmp_path, before)
    fetched(before)
    (before / "bazel/base/action_cache").mkdir()
    before.rename(build)
    front(tmp_path, build)
    assert not (build / "bazel/base/external").exists()
    assert (build / "bazel/base/action_cache").is_dir()
