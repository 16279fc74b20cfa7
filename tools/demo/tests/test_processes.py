"""Proves that children's messages are received, every wait ends, and stopped children are gone."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from interrupts import SIGNALS, InterruptError, Interrupts
from processes import Child, DemoError

Start = Callable[[str], Child]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Return a function that starts Python children; each test stops its own."""
    return lambda script: Child("child", [sys.executable, "-u", "-c", script], tmp_path)


def test_messages_are_received_in_order_and_others_are_skipped(start: Start) -> None:
    child = start('print(\'{"a": {"n": 1}}\'); print(\'{"b": {"n": 2}}\')')
    assert child.await_message("b", 30.0) == {"n": 2}
    child.await_end(30.0)


def test_child_receives_sent_messages(start: Start) -> None:
    child = start("import sys; print(sys.stdin.readline(), flush=True)")
    child.send("finish", {"n": 3})
    assert child.message(30.0) == ("finish", {"n": 3})
    child.stop()


def test_wait_for_a_silent_child_ends_at_its_deadline(start: Start) -> None:
    child = start("import time; time.sleep(600)")
    assert child.line(0) is None
    with pytest.raises(DemoError, match="no 'ready' within"):
        child.await_message("ready", 0.2)
    assert child.stop() == -signal.SIGTERM


def test_early_end_is_reported_with_its_code_and_the_log_remains(start: Start) -> None:
    child = start("import sys; print('broken', file=sys.stderr); sys.exit(3)")
    with pytest.raises(DemoError, match="exit code 3"):
        child.await_message("ready", 30.0)
    with pytest.raises(DemoError, match="failed"):
        child.await_end(30.0)
    assert child.last_words() == "broken"


def test_invalid_message_is_refused(start: Start) -> None:
    for words in ("hello", "[1]", "{}"):
        child = start(f"print({words!r})")
        with pytest.raises(DemoError, match="no message"):
            child.message(30.0)
        child.await_end(30.0)


def test_child_that_ignores_sigterm_is_killed(start: Start) -> None:
    child = start(
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "print('{\"ready\": {}}'); time.sleep(600)"
    )
    child.await_message("ready", 30.0)
    assert child.stop(0.2) == -signal.SIGKILL


def test_missing_program_names_the_fix(tmp_path: Path) -> None:
    with pytest.raises(DemoError, match="make demo"):
        Child("nobody", [str(tmp_path / "nothing")], tmp_path)


def test_signal_waits_until_a_started_child_is_registered() -> None:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    interrupts = Interrupts()
    try:
        interrupts.install()
        remembered = False
        with pytest.raises(InterruptError, match="SIGTERM"), interrupts.held():
            os.kill(os.getpid(), signal.SIGTERM)
            remembered = True
        assert remembered
        assert all(signal.getsignal(number) == signal.SIG_IGN for number in SIGNALS)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_signal_outside_a_start_raises_at_once() -> None:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        Interrupts().install()
        with pytest.raises(InterruptError, match="SIGHUP"):
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_check_skips_lines_and_reports_an_end(start: Start) -> None:
    child = start("import sys; print('hello', flush=True); sys.stdin.readline()")
    child.check()
    child.send("end", {})
    child.await_end(30.0)
    with pytest.raises(DemoError, match="exit code 0"):
        while True:
            child.check()
