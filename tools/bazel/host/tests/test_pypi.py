"""Proves the rules of @pypi: valid pins, required distributions, and the paths of their files."""

import os
from importlib import metadata
from pathlib import Path

import pypi
import pytest

PINNED = pypi.pins("pytest==9.2.0\npython-dateutil==4.0.0  # pulled in\n\n# later\n")


def test_names_are_spelled_like_labels() -> None:
    names = ["python-dateutil", "typing_extensions", "Pygments", "ruamel.yaml", "a-_.b"]
    spelt = ["python_dateutil", "typing_extensions", "pygments", "ruamel_yaml", "a_b"]
    assert [pypi.library_name(name) for name in names] == spelt


def test_pins_are_read_and_comments_are_not() -> None:
    assert list(PINNED) == ["pytest", "python_dateutil"]
    assert PINNED["python_dateutil"] == pypi.Pin("python-dateutil", "4.0.0")


@pytest.mark.parametrize("line", ["pytest", "pytest>=9", "pytest==9.*", "pytest[dev]==9.2.0"])
def test_invalid_pin_is_refused_with_its_line(line: str) -> None:
    with pytest.raises(SystemExit, match="requirements.txt:2: "):
        pypi.pins(f"rich==15.0.0\n{line}\n")


def test_installed_version_that_differs_from_its_pin_is_named() -> None:
    there = metadata.version("pytest")
    with pytest.raises(SystemExit, match=f"pytest: .* pins 0.1, and .venv holds {there}; run"):
        pypi.installed(pypi.Pin("pytest", "0.1"))
    assert pypi.installed(pypi.Pin("pytest", there)).version == there


def test_missing_distribution_is_named() -> None:
    with pytest.raises(SystemExit, match="forebay-nothing is not in .venv; run: make setup"):
        pypi.installed(pypi.Pin("forebay-nothing", "1"))


def test_dependencies_of_a_distribution_must_be_pinned() -> None:
    pin = PINNED["pytest"]
    assert pypi.dependencies(pin, ["Python.DateUtil"], PINNED) == ["//python_dateutil"]
    with pytest.raises(SystemExit, match="pytest needs pluggy, which .* does not pin: add it"):
        pypi.dependencies(pin, ["pluggy"], PINNED)


def test_dependencies_are_those_of_this_machine(tmp_path: Path) -> None:
    lines = ["a>=1", 'b; sys_platform == "win32"', 'c; extra == "more"', 'd; python_version > "3"']
    assert list(pypi.needs(distribution(tmp_path, lines))) == ["a", "d"]


def test_files_are_laid_out_like_rules_python(tmp_path: Path) -> None:
    folder = tmp_path / "laid"
    pypi.lay_out(distribution(tmp_path, []), tmp_path, folder)
    laid = sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())
    assert laid == [
        "bin/tool",
        "data/share/page",
        "site-packages/thing-1.dist-info/METADATA",
        "site-packages/thing-1.dist-info/RECORD",
        "site-packages/thing/__init__.py",
    ]
    assert not any(file.is_symlink() for file in folder.rglob("*"))
    assert os.access(folder / "bin" / "tool", os.X_OK)


def distribution(environment: Path, needs: list[str]) -> metadata.Distribution:
    """Install a distribution by hand: a package, a program, a script, a page, a file of Bazel's."""
    files = {
        "thing/__init__.py": "",
        "thing/BUILD.bazel": "",
        "../../../bin/tool": "\x7fELF",
        "../../../bin/script": "#!/usr/bin/python\n",
        "../../../share/page": "text",
        "thing-1.dist-info/METADATA": "Metadata-Version: 2.4\nName: thing\nVersion: 1\n"
        + "".join(f"Requires-Dist: {need}\n" for need in needs),
    }
    site_packages = environment / "lib" / "python3" / "site-packages"
    for name, text in files.items():
        file = site_packages / name
        file.parent.mkdir(parents=True, exist_ok=True)
        Path(os.path.normpath(file)).parent.mkdir(parents=True, exist_ok=True)
        Path(os.path.normpath(file)).write_text(text)
    (environment / "bin" / "tool").chmod(0o755)
    record = "thing-1.dist-info/RECORD"
    (site_packages / record).write_text("".join(f"{name},,\n" for name in [*files, record]))
    return metadata.PathDistribution(site_packages / "thing-1.dist-info")
