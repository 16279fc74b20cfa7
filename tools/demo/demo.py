"""`make demo`: real ratings go through writer and change log into embedded readers, and an oracle
compares every document. FOREBAY_BIN names the folder of built programs; SMALL=1 takes the first
10,000 ratings; PLANT=1 plants an extra event, which the oracle must find; LOG=kafka uses a real
broker as the change log.
"""

import os
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import brokers
import data
import oracle
import table
from interrupts import InterruptError, Interrupts
from languages import LANGUAGES, Language
from processes import Child, DemoError
from rich.console import Console

SERVER_SECONDS = 60.0
CREATE_SECONDS = 60.0
INSTALL_SECONDS = 60.0
READY_SECONDS = 60.0
LOAD_SECONDS = 600.0
LOAD_SILENCE_SECONDS = 60.0
FINISH_SECONDS = 180.0
END_SECONDS = 20.0
LOOK_SECONDS = 0.05
READY_LINE = "forebayd ready "
RATINGS_FILE = "ratings.csv"
NOTES = [
    "this data set fits in the processor's cache; larger ones read more slowly",
    "this is the dev profile: of our own code only the index is fully optimised",
    "freshness counts from the moment at which the acknowledgement reaches the reader's process",
    "freshness of features is that of a view with an interval of 10 ms, looked at each millisecond",
    "a get is timed in blocks of 256, its percentiles are over blocks",
]
KAFKA_NOTE = "acknowledged means: this one broker has it; production has three, and waits for two"


@dataclass(frozen=True)
class Settings:
    """The options of the demo."""

    programs: Path
    kafka: bool
    small: bool
    plant: bool


@dataclass
class Stage:
    """The demo's folder, and the programs that run in it."""

    settings: Settings
    folder: Path
    stack: ExitStack
    interrupts: Interrupts
    children: list[Child] = field(default_factory=list)

    def start(self, name: str, command: list[str]) -> Child:
        """Start a program; it is stopped when the demo ends, in whatever way."""
        with self.interrupts.held():
            child = Child(name, command, self.folder)
            self.children.append(child)
            self.stack.callback(child.stop)
        return child

    def program(self, name: str) -> str:
        """Return the path of a built program."""
        return str(self.settings.programs / name)


@dataclass(frozen=True)
class Server:
    """The running `forebayd dev`, and its broker if the log is Kafka."""

    child: Child
    address: str
    broker: Child | None

    def check(self) -> None:
        """Raise DemoError if one of them has ended."""
        self.child.check()
        if self.broker is not None:
            self.broker.check()


def main() -> int:
    """Run the demo; returns the exit code."""
    refusal = refused(os.environ.get("LOG", ""))
    if refusal is not None:
        print(f"demo: {refusal}", file=sys.stderr)
        return 2
    interrupts = Interrupts()
    interrupts.install()
    try:
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="forebay-demo-"))
            right = ran(Stage(settings(), Path(folder), stack, interrupts))
    except DemoError as error:
        print(f"demo: {error}", flush=True)
        right = False
    except InterruptError as interrupted:
        print(f"demo: stopped by {interrupted}", flush=True)
        return 1
    print("demo: OK" if right else "demo: FAILED", flush=True)
    return 0 if right else 1


def ran(stage: Stage) -> bool:
    """Run the demo; if it fails, show every program's log before the folder is removed."""
    try:
        return run(stage)
    except DemoError:
        for child in stage.children:
            print(f"---- {child.name} logged:\n{child.last_words()}\n----", flush=True)
        raise


def refused(log: str) -> str | None:
    """Return the reason why this log cannot be used; None if it can."""
    if log in ("", "embedded", "kafka"):
        return None
    return f"InvalidArgument: there is no LOG={log}; run: make demo, or make demo LOG=kafka"


def settings() -> Settings:
    """Read the settings from the environment."""
    programs = os.environ.get("FOREBAY_BIN")
    if not programs:
        raise DemoError("FOREBAY_BIN names no folder of built programs; run: make demo")
    return Settings(
        programs=Path(programs).absolute(),
        kafka=os.environ.get("LOG", "") == "kafka",
        small=os.environ.get("SMALL", "") not in ("", "0"),
        plant=os.environ.get("PLANT", "") not in ("", "0"),
    )


def run(stage: Stage) -> bool:
    """Run the whole demo; returns whether the oracle agrees."""
    ratings = data.load(stage.settings.small)
    print(
        f"demo: {len(ratings):,} ratings in time order, as events of the stream ratings; views of "
        "it materialize to the stores movies and users"
    )
    ratings.write_csv(stage.folder / RATINGS_FILE)
    server = start_server(stage)
    create_stores(stage, server)
    readers = start_readers(stage, server.address)
    console = Console()
    loaded = load(stage, server, readers, ratings.changes(), console)
    figures = finish(stage, readers, loaded["tokens"], ratings.keys())
    verdicts = judge(stage, ratings, figures)
    stop_server(server.child)
    notes = [*NOTES, KAFKA_NOTE] if stage.settings.kafka else NOTES
    table.show_results(console, table.result_rows(loaded, figures), notes)
    table.write_figures(os.environ.get("FOREBAY_DEMO_FIGURES"), loaded, figures)
    print(table.feature_line(loaded["features"]))
    show_ranking(ratings, figures)
    for name, verdict in verdicts.items():
        for line in verdict.lines(name):
            print(line)
    return not any(verdict.mismatches for verdict in verdicts.values())


def start_server(stage: Stage) -> Server:
    """Start `forebayd dev` on a free port and wait for its address."""
    broker = None
    options = ["--data-dir", str(stage.folder / "forebay-data")]
    began = time.monotonic()
    if stage.settings.kafka:
        broker, address = brokers.start_broker(stage.start, stage.settings.programs, stage.folder)
        options += ["--change-log", "kafka", "--brokers", address]
        print(f"demo: Kafka serves on {address} after {time.monotonic() - began:.2f} s", flush=True)
        began = time.monotonic()
    options += ["--listen", "127.0.0.1:0"]
    server = stage.start("forebayd", [stage.program("forebayd"), "dev", *options])
    line = server.line(SERVER_SECONDS)
    if line is None:
        raise DemoError(f"forebayd was not ready within {SERVER_SECONDS:.0f} s")
    if not line.startswith(READY_LINE):
        raise DemoError(f"forebayd began with '{line}', not with its address")
    print(f"demo: {line.strip()} after {time.monotonic() - began:.2f} s", flush=True)
    return Server(server, line.removeprefix(READY_LINE).strip(), broker)


def stop_server(server: Child) -> None:
    """Stop the server; it must drain and exit with 0."""
    code = server.stop()
    if code != 0:
        raise DemoError(f"forebayd did not end well after SIGTERM: exit code {code}")


def create_stores(stage: Stage, server: Server) -> None:
    """Create the streams, stores and views that the ratings need."""
    command = [stage.program("demo_load"), "create", "--address", server.address]
    creator = stage.start("create", [*command, "--ratings", str(stage.folder / RATINGS_FILE)])
    creator.await_message("created", CREATE_SECONDS)
    creator.await_end(END_SECONDS)


def start_readers(stage: Stage, address: str) -> dict[str, Child]:
    """Start one reader per language and wait until each is ready."""
    readers = {}
    for place, language in enumerate(LANGUAGES):
        install(stage, language)
        command = language.command(stage.settings.programs)
        command += ["--address", address, "--probe-key", str(place)]
        readers[language.name] = stage.start(f"reader-{language.name}", command)
    for name, reader in readers.items():
        ready = reader.await_message("ready", READY_SECONDS)
        print(f"demo: the {name} reader is ready after {ready['seconds']:.2f} s", flush=True)
    return readers


def install(stage: Stage, language: Language) -> None:
    """Put cargo's outputs where the reader of this language looks for them."""
    if language.install:
        installer = stage.start(f"install-{language.name}", list(language.install))
        installer.await_end(INSTALL_SECONDS)


def load(
    stage: Stage, server: Server, readers: dict[str, Child], total: int, console: Console
) -> dict[str, Any]:
    """Replay the ratings while the readers measure; returns the loader's last message, which it
    sends after the views' values of all ratings have arrived.
    """
    command = [stage.program("demo_load"), "replay", "--address", server.address]
    command += ["--ratings", str(stage.folder / RATINGS_FILE)]
    loader = stage.start("load", [*command, *(["--plant"] if stage.settings.plant else [])])
    picture = table.Picture(total)
    heard = began = time.monotonic()
    with table.display(console) as display:
        while True:
            message = loader.message(LOOK_SECONDS)
            now = time.monotonic()
            if now - heard > LOAD_SILENCE_SECONDS or now - began > LOAD_SECONDS:
                raise DemoError(f"the load got stuck after {now - began:.0f} s")
            server.check()
            hear_freshness(readers, picture)
            if message is not None:
                heard = now
                kind, details = message
                if kind == "done":
                    break
                picture.progress = details
            display.show(picture)
    loader.await_end(END_SECONDS)
    return details


def hear_freshness(readers: dict[str, Child], picture: table.Picture) -> None:
    """Process the readers' messages; a reader that has ended is an error."""
    for name, reader in readers.items():
        while (told := reader.message(0)) is not None:
            if told[0] == "freshness":
                picture.freshness[name] = told[1]


def finish(
    stage: Stage, readers: dict[str, Child], tokens: dict[str, str], keys: dict[str, list[int]]
) -> dict[str, dict[str, Any]]:
    """Let each reader catch up with the load, measure, and dump its documents."""
    files = data.write_keys(stage.folder, keys)
    figures = {}
    for name, reader in readers.items():
        dump = str(stage.folder / f"{name}.dump")
        reader.send("finish", {"tokens": tokens, "keys": files, "dump": dump})
        # The readers run one after the other, so that one language does not disturb another's
        # figures.
        figures[name] = reader.await_message("figures", FINISH_SECONDS)
        reader.await_end(END_SECONDS)
    return figures


def judge(
    stage: Stage, ratings: data.Ratings, figures: dict[str, dict[str, Any]]
) -> dict[str, oracle.Verdict]:
    """Compare the documents that every language read with the result of the ratings."""
    expected = oracle.replay(ratings.frame)
    verdicts = {}
    for name, told in figures.items():
        verdicts[name] = verdict = oracle.Verdict()
        try:
            with (stage.folder / f"{name}.dump").open(encoding="utf-8") as dump:
                verdict.add(oracle.compare(expected, name, dump, ratings.keys()))
            verdict.add(oracle.compare_figures(expected, name, told))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DemoError(f"what {name} wrote cannot be read: {error!r}") from error
    return verdicts


def show_ranking(ratings: data.Ratings, figures: dict[str, dict[str, Any]]) -> None:
    """Show the ten movies that the first language ranked highest."""
    name, told = next(iter(figures.items()))
    titles = ratings.frame.drop_duplicates("movie").set_index("movie")["title"]
    print(f"top {len(told['top'])} for user {told['user']}, from the matrix that {name} gathered:")
    for place, (key, score) in enumerate(told["top"], start=1):
        print(f"  {place:2}. {score:.3f}  {titles[key]}")


if __name__ == "__main__":
    sys.exit(main())
