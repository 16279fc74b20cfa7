"""Proves which environments the demo refuses before it starts a program."""

import demo
import processes
import pytest


def test_unknown_log_is_refused_with_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOG", "paper")
    assert demo.main() == 2
    assert "InvalidArgument: there is no LOG=paper" in capsys.readouterr().err


def test_known_logs_are_accepted() -> None:
    assert [demo.refused(log) for log in ("", "embedded", "kafka")] == [None, None, None]


def test_missing_programs_name_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FOREBAY_BIN", raising=False)
    with pytest.raises(processes.DemoError, match="make demo"):
        demo.settings()
