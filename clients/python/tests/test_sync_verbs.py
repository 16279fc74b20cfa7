"""The blocking client is generated from the client for asyncio."""

import subprocess
import sys
from pathlib import Path

CLIENT = Path(__file__).absolute().parents[1]


def test_generated_file_is_up_to_date() -> None:
    """Prove that the generated file is up to date."""
    command = [sys.executable, str(CLIENT / "sync_verbs.py"), "--check"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert run.returncode == 0, run.stderr
