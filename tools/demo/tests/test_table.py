"""Proves the output: one line per second when piped, a table in a terminal, every result once."""

import io
from typing import Any

import pytest
import table
from rich.console import Console

PROGRESS = {"written": 1500, "writes_per_s": 30000.4, "ack_p50_us": 2100, "ack_p99_us": 8040}
FRESH = {"samples": 90, "p50_us": 900, "p99_us": 4200}
LOAD: dict[str, Any] = {
    "stream": {"writes_per_s": 30000.4, "ack_p50_us": 2100, "ack_p99_us": 8040},
    "unary": {"writes_per_s": 400.0, "ack_p50_us": 1900, "ack_p99_us": 5000},
}
READER: dict[str, Any] = {
    "freshness": FRESH,
    "get": {"p50_ns": 812, "p99_ns": 1403},
    "gather": {"keys": 500, "fields": 8, "p50_us": 120.5, "p99_us": 300.0},
}


def test_piped_output_has_one_line_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    display = table.display(Console(file=io.StringIO()))
    picture = table.Picture(total=200_008)
    with display:
        display.show(picture)
        picture.progress = PROGRESS
        picture.freshness["rust"] = FRESH
        display.show(picture)
        display.show(picture)
    assert capsys.readouterr().out.splitlines() == [
        "load: 1,500 of 200,008 changes, 30,000 writes/s, ack p50/p99 2.10 ms / 8.04 ms, "
        "fresh in rust 0.90 ms / 4.20 ms"
    ]


def test_terminal_shows_a_table() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100)
    display = table.display(console)
    assert isinstance(display, table.LiveDisplay)
    picture = table.Picture(total=200_008, progress=PROGRESS, freshness={"rust": FRESH})
    with display:
        display.show(picture)
    assert "1,500 of 200,008" in out.getvalue()
    assert "freshness in rust" in out.getvalue()


def test_results_name_every_measure_of_every_language(capsys: pytest.CaptureFixture[str]) -> None:
    rows = table.result_rows(LOAD, {"rust": READER, "java": READER})
    table.show_results(Console(file=io.StringIO()), rows, ["fits in cache"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 + 2 * 3 + 1
    assert "result: get p50 / p99 (java): 812 / 1,403 ns" in lines
    assert "result: gather 500 movies x 8 fields p50 / p99 (rust): 120.5 / 300.0 µs" in lines
    assert lines[-1] == "note: fits in cache"


def test_feature_freshness_is_one_plain_line() -> None:
    line = table.feature_line({"samples": 1412, "p50_us": 60_900.0, "p99_us": 130_200.0})
    told = "insert acknowledged to value visible in a reader"
    assert line == f"features: {told}: p50 61 ms, p99 130 ms (1,412 samples)"
