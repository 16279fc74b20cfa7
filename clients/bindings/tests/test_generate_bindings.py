"""The generated files are up to date, and drift of any of them is found."""

import subprocess
import sys
from pathlib import Path

import generate_bindings
import pytest

BINDINGS = Path(__file__).absolute().parents[1]


def test_generated_files_are_up_to_date() -> None:
    """Prove that the generated files are up to date."""
    command = [sys.executable, str(BINDINGS / "generate_bindings.py"), "--check"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert run.returncode == 0, run.stderr


def test_first_line_names_the_generating_command() -> None:
    """Prove that the first line of each file says how the file is generated."""
    for path, text in generate_bindings.files().items():
        assert "by python3 clients/bindings/generate_bindings.py" in text.partition("\n")[0], path


def test_changed_missing_and_orphaned_files_are_drift(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prove that no file can differ from its source without being named."""
    made = {"folder/A.java": f"/* {generate_bindings.ORIGIN.format('A')}. */\n"}
    monkeypatch.setattr(generate_bindings, "ROOT", tmp_path)
    assert generate_bindings.drift(made) == ["folder/A.java"]
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/A.java").write_text(made["folder/A.java"])
    (tmp_path / "folder/ByHand.java").write_text("/* By hand. */\n")
    assert generate_bindings.drift(made) == []
    (tmp_path / "folder/A.java").write_text(made["folder/A.java"] + "class A {}\n")
    (tmp_path / "folder/B.java").write_text(made["folder/A.java"])
    assert generate_bindings.drift(made) == ["folder/A.java", "folder/B.java"]
