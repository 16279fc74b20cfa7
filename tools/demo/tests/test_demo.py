"""The entry: what it refuses before it starts anything."""

import demo
import processes
import pytest


def test_kafka_is_refused_typed_with_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOG", "kafka")
    assert demo.main() == 2
    assert "Unsupported: LOG=kafka" in capsys.readouterr().err


def test_an_unknown_log_is_refused_and_the_embedded_one_is_not() -> None:
    assert "InvalidArgument" in (demo.refused("paper") or "")
    assert demo.refused("") is None
    assert demo.refused("embedded") is None


def test_without_programs_the_fix_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FOREBAY_BIN", raising=False)
    with pytest.raises(processes.DemoError, match="make demo"):
        demo.settings()
