"""Generates `forebay/_verbs.py`, the verbs of the blocking client, from `_async_verbs.py`.

The two files differ in nothing but the awaits and the names of their classes, so there is one
source. Run this script after a change of the source; with `--check`, the script only says whether
the generated file is up to date. `tools/decisions/0059` compares the script with `unasync`.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).absolute().parent
SOURCE = HERE / "forebay" / "_async_verbs.py"
MADE = HERE / "forebay" / "_verbs.py"
CONFIG = ["--config", str(HERE.parents[1] / "tools" / "setup" / "ruff.toml")]
# The files in the working directory must not decide which packages are first-party.
CONFIG += ["--config", 'lint.isort.known-first-party = ["forebay"]']

HEAD = '''"""The verbs of the blocking client, store by store and write by write.

`sync_verbs.py` generates this file from `_async_verbs.py`: change that file.
"""
'''

RULES = (
    (r'\A""".*?"""\n', HEAD),
    (r"\basync (def|for|with) ", r"\1 "),
    (r"\bawait ", ""),
    (r"\b__a(enter|exit|iter)__", r"__\1__"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\bforebay\._async_call\b", "forebay._sync_call"),
    # A blocking generator may delegate.
    (r"for (\w+) in (\w+):\n\s+yield \1\n", r"yield from \2\n"),
)


def ruff() -> list[str]:
    """Return the ruff command: ruff of this Python, or the program that RUFF names."""
    named = os.environ.get("RUFF")
    return [str(Path(named).absolute())] if named else [sys.executable, "-m", "ruff"]


def made() -> str:
    """Return the text of the generated file, formatted."""
    text = SOURCE.read_text()
    for pattern, by in RULES:
        text = re.sub(pattern, by, text, flags=re.DOTALL)
    for arguments in (["check", "--fix-only", "--quiet", "--select", "I"], ["format", "--quiet"]):
        command = [*ruff(), *arguments, *CONFIG, "--stdin-filename", str(MADE), "-"]
        run = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            raise SystemExit(f"ruff failed; run `make setup`: {run.stderr}")
        text = run.stdout
    return text


def main() -> None:
    """Write the file, or check it."""
    text = made()
    if "--check" in sys.argv[1:]:
        if not MADE.is_file() or MADE.read_text() != text:
            raise SystemExit(f"{MADE} is not made of {SOURCE.name}; run: {Path(__file__).name}")
        return
    MADE.write_text(text)


if __name__ == "__main__":
    main()
