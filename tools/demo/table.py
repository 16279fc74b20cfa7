"""The output of the demo: a live table in a terminal, plain lines when piped, and the results."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

PLAIN_SECONDS = 1.0
LIVE_PER_SECOND = 4

Figures = dict[str, Any]


@dataclass
class Picture:
    """The state of the load."""

    total: int
    progress: Figures = field(default_factory=dict)
    freshness: dict[str, Figures] = field(default_factory=dict)


def count(number: float | None) -> str:
    """Write a number with thousands separated."""
    return "-" if number is None else f"{number:,.0f}"


def millis(micros: float | None) -> str:
    """Write microseconds as milliseconds."""
    return "-" if micros is None else f"{micros / 1000:,.2f} ms"


def pair(figures: Figures, write: Callable[[float | None], str], p50: str, p99: str) -> str:
    """Write a median and its 99th percentile."""
    return f"{write(figures.get(p50))} / {write(figures.get(p99))}"


def acknowledgement(figures: Figures) -> str:
    """Format the time from a write to its acknowledgement."""
    return pair(figures, millis, "ack_p50_us", "ack_p99_us")


def fresh(figures: Figures) -> str:
    """Format the time from a write's acknowledgement to its visibility."""
    return pair(figures, millis, "p50_us", "p99_us")


def feature_line(figures: Figures) -> str:
    """Format the time from an event's acknowledgement to a view's value with it in a reader."""
    p50, p99 = (f"p{rank} {figures[f'p{rank}_us'] / 1000:,.0f} ms" for rank in (50, 99))
    samples = f"({count(figures['samples'])} samples)"
    return f"features: insert acknowledged to value visible in a reader: {p50}, {p99} {samples}"


class Display(Protocol):
    """Shows the load while it runs."""

    def __enter__(self) -> "Display":
        """Start to show."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop showing."""

    def show(self, picture: Picture) -> None:
        """Show the current state; may be called at any rate."""


class PlainDisplay:
    """A line per second."""

    def __init__(self) -> None:
        """Start without output."""
        self._next = 0.0

    def __enter__(self) -> "PlainDisplay":
        """Start to show."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop showing."""

    def show(self, picture: Picture) -> None:
        """Print a line if the last one is at least a second old."""
        if not picture.progress or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + PLAIN_SECONDS
        progress = picture.progress
        parts = [
            f"load: {count(progress['written'])} of {count(picture.total)} changes",
            f"{count(progress['writes_per_s'])} writes/s",
            f"ack p50/p99 {acknowledgement(progress)}",
        ]
        parts += [f"fresh in {name} {fresh(of)}" for name, of in picture.freshness.items()]
        print(", ".join(parts), flush=True)


class LiveDisplay:
    """A table that is redrawn in place."""

    def __init__(self, console: Console) -> None:
        """Start without output."""
        self._live = Live(console=console, refresh_per_second=LIVE_PER_SECOND, transient=True)

    def __enter__(self) -> "LiveDisplay":
        """Start to show."""
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop showing."""
        self._live.__exit__(kind, error, trace)

    def show(self, picture: Picture) -> None:
        """Draw the table."""
        self._live.update(live_table(picture))


def live_table(picture: Picture) -> RenderableType:
    """Build the table of a running load."""
    progress = picture.progress
    written = progress.get("written", 0)
    table = Table(title="Ratings on their way into readers")
    table.add_column("measure")
    table.add_column("now", justify="right")
    table.add_row("changes acknowledged", f"{count(written)} of {count(picture.total)}")
    table.add_row("writes/s", count(progress.get("writes_per_s")))
    table.add_row("acknowledgement p50 / p99", acknowledgement(progress))
    for name, figures in picture.freshness.items():
        table.add_row(f"freshness in {name} p50 / p99", fresh(figures))
    return Group(table, ProgressBar(total=picture.total, completed=written, width=60))


def display(console: Console) -> Display:
    """Choose the display: live in a terminal, plain lines otherwise."""
    return LiveDisplay(console) if console.is_terminal else PlainDisplay()


def result_rows(load: Figures, languages: dict[str, Figures]) -> list[tuple[str, str, str]]:
    """Build the rows of the closing table: measure, language, value."""
    stream, unary = load["stream"], load["unary"]
    rows = [
        ("writes/s, streamed", "", count(stream["writes_per_s"])),
        ("acknowledgement p50 / p99, streamed", "", acknowledgement(stream)),
        ("writes/s, unary", "", count(unary["writes_per_s"])),
        ("acknowledgement p50 / p99, unary", "", acknowledgement(unary)),
    ]
    for name, figures in languages.items():
        freshness = figures["freshness"]
        samples = f"freshness p50 / p99, {count(freshness['samples'])} samples"
        gather = f"gather {figures['gather']['keys']} movies x {figures['gather']['fields']} fields"
        rows += [
            (samples, name, fresh(freshness)),
            ("get p50 / p99", name, f"{pair(figures['get'], count, 'p50_ns', 'p99_ns')} ns"),
            (f"{gather} p50 / p99", name, gather_time(figures["gather"])),
        ]
    return rows


def gather_time(figures: Figures) -> str:
    """Format the duration of a gather."""
    return f"{figures['p50_us']:,.1f} / {figures['p99_us']:,.1f} µs"


def plain_figures(load: Figures, languages: dict[str, Figures]) -> dict[str, float]:
    """Name the figures that two builds are compared by; less is better for each."""
    plain = {
        "streamed write us": 1e6 / load["stream"]["writes_per_s"],
        "unary write us": 1e6 / load["unary"]["writes_per_s"],
    }
    for name, figures in languages.items():
        plain[f"get p50 ns ({name})"] = figures["get"]["p50_ns"]
        plain[f"gather p50 us ({name})"] = figures["gather"]["p50_us"]
    return plain


def write_figures(path: str | None, load: Figures, languages: dict[str, Figures]) -> None:
    """Write the figures for a program, where a path is given."""
    if path:
        Path(path).write_text(json.dumps(plain_figures(load, languages)), encoding="utf-8")


def show_results(console: Console, rows: list[tuple[str, str, str]], notes: list[str]) -> None:
    """Show the closing table and the notes about it."""
    if not console.is_terminal:
        for measure, language, value in rows:
            print(f"result: {measure}{f' ({language})' if language else ''}: {value}")
        for note in notes:
            print(f"note: {note}")
        return
    table = Table(title="Results")
    for column in ("measure", "language"):
        table.add_column(column)
    table.add_column("value", justify="right")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    for note in notes:
        console.print(Text(f"note: {note}", style="dim"))
