"""Proves that LOG=kafka's broker has whole settings, free ports and an awaited start."""

import re
import socket
import sys
from pathlib import Path

import brokers
import pytest
from processes import Child, DemoError


def test_server_settings_fill_every_placeholder(tmp_path: Path) -> None:
    text = brokers.server_settings(9092, 9093, tmp_path)
    assert not re.search("@[A-Z_]+@", text)
    assert "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093" in text
    assert f"log.dirs={tmp_path}" in text


def test_free_ports_differ_and_can_be_bound() -> None:
    first, second = brokers.free_ports(2)
    assert first != second
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", first))


def test_missing_jars_name_the_fix(tmp_path: Path) -> None:
    with pytest.raises(DemoError, match="make setup"):
        brokers.start_broker(
            lambda name, command: Child(name, command, tmp_path), tmp_path / "debug", tmp_path
        )


def started(script: str, folder: Path) -> Child:
    return Child("broker", [sys.executable, "-u", "-c", script], folder)


def test_ready_line_is_awaited_and_silence_ends_at_its_deadline(tmp_path: Path) -> None:
    say = f"import sys, time; print({brokers.READY_TEXT!r}, file=sys.stderr); time.sleep(600)"
    broker = started(say, tmp_path)
    brokers.await_ready(broker, 30.0)
    broker.stop()
    silent = started("import time; time.sleep(600)", tmp_path)
    with pytest.raises(DemoError, match="not ready within"):
        brokers.await_ready(silent, 0.2)
    silent.stop()


def test_broker_that_ends_at_its_start_is_reported(tmp_path: Path) -> None:
    broker = started("raise SystemExit(3)", tmp_path)
    with pytest.raises(DemoError, match="exit code 3"):
        brokers.await_ready(broker, 30.0)
