"""The demo's child processes: each writes lines to its standard output and its log to a file; every
wait for it is bounded.
"""

import contextlib
import json
import queue
import subprocess
import threading
import time
from pathlib import Path
from typing import IO, Any

STOP_SECONDS = 10.0
KILL_SECONDS = 10.0
LINES_WAITING_MAX = 10_000
LOG_LINES_SHOWN = 25

Message = tuple[str, dict[str, Any]]


class DemoError(Exception):
    """The demo cannot continue; the text gives the reason and the remedy."""


class Child:
    """A running program."""

    def __init__(self, name: str, command: list[str], logs: Path) -> None:
        """Start the program; its standard error goes to NAME.log."""
        self.name = name
        self.log = logs / f"{name}.log"
        self._lines: queue.Queue[str | None] = queue.Queue(LINES_WAITING_MAX)
        try:
            with self.log.open("wb") as log:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
                )
        except OSError as error:
            raise DemoError(f"cannot start {command[0]}: {error}; run: make demo") from error
        assert self._process.stdin is not None and self._process.stdout is not None
        self._input: IO[bytes] = self._process.stdin
        output: IO[bytes] = self._process.stdout
        self._listener = threading.Thread(target=self._listen, args=(output,), daemon=True)
        self._listener.start()

    def _listen(self, output: IO[bytes]) -> None:
        with output:
            for line in output:
                self._lines.put(line.decode("utf-8", "replace").rstrip("\n"))
        self._lines.put(None)

    def line(self, seconds: float) -> str | None:
        """Return the next line, or None if there is none in time.

        Raises DemoError if the program has ended and all its output is read.
        """
        try:
            line = self._lines.get(timeout=seconds) if seconds > 0 else self._lines.get_nowait()
        except queue.Empty:
            return None
        if line is None:
            self._lines.put(None)
            raise DemoError(f"{self.name} ended early ({self._ending()})")
        return line

    def check(self) -> None:
        """Discard the program's output so far; raises DemoError if the program has ended."""
        while self.line(0) is not None:
            pass

    def message(self, seconds: float) -> Message | None:
        """Return the next line as a message: a JSON object with one name and its details."""
        line = self.line(seconds)
        if line is None:
            return None
        try:
            ((kind, details),) = json.loads(line).items()
        except (ValueError, AttributeError) as error:
            raise DemoError(f"{self.name} printed no message: {line[:200]}") from error
        return kind, details

    def await_message(self, kind: str, seconds: float) -> dict[str, Any]:
        """Wait for a message of this kind; other messages before it are discarded."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            message = self.message(left)
            if message is not None and message[0] == kind:
                return message[1]
        raise DemoError(f"{self.name} said no '{kind}' within {seconds:.0f} s")

    def send(self, kind: str, details: dict[str, Any]) -> None:
        """Send one message to the program's standard input."""
        try:
            self._input.write(json.dumps({kind: details}).encode() + b"\n")
            self._input.flush()
        except OSError as error:
            raise DemoError(f"{self.name} does not listen: {error}") from error

    def await_end(self, seconds: float) -> None:
        """Wait until the program has ended by itself with exit code 0."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired as error:
            raise DemoError(f"{self.name} did not end within {seconds:.0f} s") from error
        if code != 0:
            raise DemoError(f"{self.name} failed ({self._ending()})")

    def stop(self, seconds: float = STOP_SECONDS) -> int:
        """End the program: SIGTERM, then SIGKILL after a bound; returns its exit code."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait(KILL_SECONDS)
        with contextlib.suppress(OSError):  # Unread input is lost with the program.
            self._input.close()
        return code

    def _ending(self) -> str:
        try:
            code = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return "it closed its output"
        return f"exit code {code}" if code >= 0 else f"signal {-code}"

    def last_words(self) -> str:
        """Return the last lines of the program's log."""
        try:
            lines = self.log.read_text("utf-8", "replace").splitlines()
        except OSError as error:
            return f"(its log cannot be read: {error})"
        return "\n".join(lines[-LOG_LINES_SHOWN:])
