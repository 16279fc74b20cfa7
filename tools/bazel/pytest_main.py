"""The program of every pytest_test (pytest.bzl): runs pytest on the declared files.

Tests see Bazel in their own terms: FOREBAY_BIN names the folder of built programs, as under xtask.
The exit code is pytest's, so a test without test cases fails.
"""

import argparse
import os
import sys
from pathlib import Path

import pytest


def gather(programs: list[str], folder: Path) -> None:
    """Link the built programs into one folder, each under its own name."""
    folder.mkdir()
    for program in programs:
        (folder / Path(program).name).symlink_to(Path(program).absolute())


def options(environment: "os._Environ[str]", temporary: Path) -> list[str]:
    """Translate Bazel's requests in the environment into options of pytest."""
    # No configuration file is read: files above the runfiles are not declared.
    said = ["-p", "no:cacheprovider", "--config-file", os.devnull, "--rootdir", str(Path.cwd())]
    said += ["--strict-markers", "--basetemp", str(temporary / "pytest")]
    if report := environment.get("XML_OUTPUT_FILE"):
        said += ["--junitxml", report]
    if chosen := environment.get("TESTBRIDGE_TEST_ONLY"):
        said += ["-k", chosen]
    return said


def main() -> int:
    """Run the tests; returns pytest's exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", action="append", default=[], help="a program of the tests")
    parser.add_argument("tests", nargs="+", help="the files with tests")
    asked, others = parser.parse_known_args()
    temporary = Path(os.environ["TEST_TMPDIR"])
    if asked.program:
        programs = temporary / "programs"
        gather(asked.program, programs)
        os.environ["FOREBAY_BIN"] = str(programs)
    return int(pytest.main([*options(os.environ, temporary), *others, *asked.tests]))


if __name__ == "__main__":
    sys.exit(main())
