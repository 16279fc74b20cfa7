"""Proves which environments the demo refuses before it starts a program."""

import demo
import processes
import pytest


def test_an_unknown_log_is_refused_typed_with_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOG", "paper")
    assert demo.main() == 2
    assert "InvalidArgument: there is no LOG=paper" in capsys.readouterr().err


def test_the_logs_that_there_are_are_not_refused() -> None:
    assert [demo.refused(log) for log in ("", "embedded", "kafka")] == [None, None, None]


def test_without_programs_the_fix_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FOREBAY_BIN", raising=False)
    with pytest.raises(processes.DemoError, match="make demo"):
        demo.settings()
