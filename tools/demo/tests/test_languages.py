"""Proves that languages have distinct names, and that the demo installs their readers."""

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import demo
import pytest
from interrupts import Interrupts
from languages import CLIENTS, LANGUAGES, Language, python
from processes import DemoError


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[demo.Stage]:
    """Yield a stage whose programs are stopped when the test ends."""
    with ExitStack() as stack:
        settings = demo.Settings(programs=tmp_path, kafka=False, small=True, plant=False)
        stage = demo.Stage(settings, tmp_path, stack, Interrupts())
        yield stage
        for child in stage.children:  # pytest shows what a failed test printed.
            print(child.last_words())


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the Python client, for the install to write into."""
    source, copy = CLIENTS / "python", tmp_path / "client"
    for pattern in ("install_native.py", "forebay/*.py", "examples/*.py"):
        for file in source.glob(pattern):
            place = copy / file.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, place)
    programs = os.environ.get("FOREBAY_BIN", str(CLIENTS.parent / "target" / "debug"))
    monkeypatch.setenv("FOREBAY_BIN", programs)
    return copy


def test_language_names_are_unique() -> None:
    names = [language.name for language in LANGUAGES]
    assert sorted(set(names)) == sorted(names)


def test_python_reader_runs_with_the_installation_of_the_demo(
    stage: demo.Stage, client: Path
) -> None:
    language = python(client)
    demo.install(stage, language)
    module = client / "forebay" / "_native.abi3.so"
    installed = module.stat()
    demo.install(stage, language)
    again = module.stat()
    assert (again.st_ino, again.st_mtime_ns) == (installed.st_ino, installed.st_mtime_ns)
    reader = stage.start("reader", [*language.command(stage.settings.programs), "--help"])
    reader.await_end(demo.END_SECONDS)


def test_install_without_a_built_module_names_the_fix(
    stage: demo.Stage, client: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOREBAY_BIN", str(tmp_path))
    with pytest.raises(DemoError, match="install-python failed"):
        demo.install(stage, python(client))
    (installer,) = stage.children
    assert "run: cargo build" in installer.last_words()


def test_language_without_an_install_starts_no_process(stage: demo.Stage) -> None:
    demo.install(stage, Language("other", lambda _programs: []))
    assert stage.children == []
