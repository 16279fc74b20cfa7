"""Makes `forebay/_verbs.py`, what the client that waits can do, of `forebay/_async_verbs.py`.

The two differ in nothing but the awaiting, so there is one source. Run it after a change of that;
with `--check` it only says whether the file is the one that it would make.
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
# Which packages are ours must not depend on what lies around.
CONFIG += ["--config", 'lint.isort.known-first-party = ["forebay"]']

HEAD = '''"""What the client that waits can do, store by store and write by write.

Made of `_async_verbs.py` by `sync_verbs.py`: change that one.
"""
'''

RULES = (
    (r'\A""".*?"""\n', HEAD),
    (r"\basync (def|for|with) ", r"\1 "),
    (r"\bawait ", ""),
    (r"\b__a(enter|exit|iter)__", r"__\1__"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\bforebay\._await\b", "forebay._wait"),
    # What waits may be handed on.
    (r"for (\w+) in (\w+):\n\s+yield \1\n", r"yield from \2\n"),
)


def ruff() -> list[str]:
    """Return how to start ruff: the one of this Python, or the one that RUFF names."""
    named = os.environ.get("RUFF")
    return [str(Path(named).absolute())] if named else [sys.executable, "-m", "ruff"]


def made() -> str:
    """Return the text of the file, formatted."""
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
