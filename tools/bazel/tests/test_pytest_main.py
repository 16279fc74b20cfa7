"""Proves the program of every pytest_test: its exit codes, and its use of Bazel's environment."""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest_main

MAIN = str(Path(pytest_main.__file__).absolute())
OF_BAZEL = {"XML_OUTPUT_FILE", "TESTBRIDGE_TEST_ONLY"}
TWO = "def test_right(): pass\ndef test_wrong(): assert False, 'as planned'\n"


def run(folder: Path, tests: str, *arguments: str, **environment: str) -> "tuple[int, str]":
    """Run it on these tests as Bazel would; returns its exit code and its output."""
    path = folder / "test_it.py"
    path.write_text(tests)
    # Under Bazel this test has its own report and filter, which are not those of the inner run.
    kept = {name: said for name, said in os.environ.items() if name not in OF_BAZEL}
    temporary = folder / "temporary"
    temporary.mkdir()
    ended = subprocess.run(
        [sys.executable, MAIN, *arguments, str(path)],
        cwd=folder,
        env={**kept, "TEST_TMPDIR": str(temporary), **environment},
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    return ended.returncode, ended.stdout


def test_failed_test_fails_the_run_and_is_reported(tmp_path: Path) -> None:
    code, said = run(tmp_path, TWO)
    assert code == 1
    assert "as planned" in said and "1 failed, 1 passed" in said


def test_right_tests_pass(tmp_path: Path) -> None:
    assert run(tmp_path, "def test_right(): pass\n")[0] == 0


def test_run_without_tests_fails(tmp_path: Path) -> None:
    assert run(tmp_path, "def helper(): pass\n")[0] == 5


def test_file_that_cannot_be_imported_fails(tmp_path: Path) -> None:
    code, said = run(tmp_path, "import forebay_nothing\n")
    assert code == 2
    assert "No module named 'forebay_nothing'" in said


def test_configuration_of_parent_folders_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --nothing-knows-this\n")
    assert run(tmp_path, "def test_right(): pass\n")[0] == 0


def test_bazel_selects_tests_and_receives_its_report(tmp_path: Path) -> None:
    report = tmp_path / "test.xml"
    code, _ = run(tmp_path, TWO, XML_OUTPUT_FILE=str(report), TESTBRIDGE_TEST_ONLY="test_right")
    assert code == 0
    (case,) = ElementTree.parse(report).iter("testcase")
    assert case.get("name") == "test_right"


def test_programs_are_in_one_folder(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "forebayd").write_text("a program")
    tests = """
import os, pathlib
def test_it():
    folder = pathlib.Path(os.environ["FOREBAY_BIN"])
    assert (folder / "forebayd").read_text() == "a program"
"""
    assert run(tmp_path, tests, "--program=deep/forebayd")[0] == 0
