"""The demo's Python reader: follows the demo's stores, and measures, reads, ranks and dumps them.

The reader measures the freshness of its embedded readers while the load runs, then reads, ranks and
dumps the documents. The messages are those of `tools/demo/README.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import sys
import time
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, TextIO

import forebay
import numpy as np
import numpy.typing as npt

READY_SECONDS = 30.0
TOKEN_SECONDS = 60.0

PROBE_KEYS = 16
"""Keys of one language's probes; together they cover all partitions."""
PROBE_REST_SECONDS = 0.002
"""Pause between two probes, so that they add little to the load."""
VISIBLE_NS = 30_000_000_000
"""Time after which a write that is still not visible is a failure."""
SAY_NS = 500_000_000

GETS_PER_BLOCK = 256
"""Gets between two clock readings: a reading costs as much as a get."""
BLOCKS = 1_000
BLOCKS_BEFORE = 100
GATHERS = 300
GATHERS_BEFORE = 30
SEED = 41
"""Arbitrary seed: each run reads the same keys."""

CANDIDATES = 500
TOP = 10
PRIOR_RATINGS = 5.0
PRIOR_MEAN = 3.5
GATHERED = (
    "year",
    "rating_count",
    "rating_sum",
    "rating_min",
    "rating_max",
    "last_rated",
    "high_count",
    "low_count",
)

EPOCH = datetime.fromtimestamp(0, timezone.utc)
MICROSECOND = timedelta(microseconds=1)

Figures = dict[str, Any]
Rows = dict[int, forebay.Document]
"""The documents of a scan, by key."""


@dataclass
class Times:
    """Durations in nanoseconds; a load is bounded, and a probe takes eight bytes here."""

    taken: array[int] = field(default_factory=lambda: array("q"))

    def nanos(self, quantile: float) -> int:
        """Return a quantile in nanoseconds; 0 if there are no durations."""
        if not self.taken:
            return 0
        return int(np.quantile(np.array(self.taken), quantile, method="inverted_cdf"))

    def micros(self, quantile: float) -> float:
        """Return a quantile in microseconds."""
        return self.nanos(quantile) / 1000.0


@dataclass(frozen=True)
class Readers:
    """The readers of this process."""

    movies: forebay.Reader
    users: forebay.Reader
    probes: forebay.Reader


class Probe:
    """Writes probes, and measures the time from the acknowledgement until each is visible."""

    def __init__(self, store: forebay.Store, reader: forebay.Reader, number: int) -> None:
        """Use the keys of this number, which no other language has."""
        self._store = store
        self._reader = reader
        self._value = reader.field("value", "int64")
        self._first_key = number * PROBE_KEYS
        self._written = 0
        self._times = Times()

    def run(self, heard: TextIO) -> None:
        """Probe until a message arrives; print the figures from time to time."""
        said = time.monotonic_ns()
        while not select.select([heard], [], [], PROBE_REST_SECONDS)[0]:
            self._probe()
            now = time.monotonic_ns()
            if now - said >= SAY_NS:
                said = now
                say("freshness", self.figures())

    def _probe(self) -> None:
        self._written += 1
        key, value = self._first_key + self._written % PROBE_KEYS, self._written
        self._store.upsert(key, {"value": value})
        acknowledged = time.monotonic_ns()
        while self._reader.get(key, self._value) != value:
            if time.monotonic_ns() - acknowledged > VISIBLE_NS:
                raise TimeoutError("an acknowledged write did not become visible in time")
            os.sched_yield()
        self._times.taken.append(time.monotonic_ns() - acknowledged)

    def figures(self) -> Figures:
        """Return the freshness of the reader so far."""
        return {
            "samples": len(self._times.taken),
            "p50_us": self._times.micros(0.5),
            "p99_us": self._times.micros(0.99),
        }


def main() -> None:
    """Follow the stores of a running `forebayd dev`."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--address", required=True, help="address of the node")
    parser.add_argument("--probe-key", required=True, type=int, help="number among the languages")
    settings = parser.parse_args()
    began = time.monotonic()
    with forebay.Client(settings.address) as client:
        readers = open_readers(client)
        say("ready", {"language": "python", "seconds": time.monotonic() - began})
        probe = Probe(client.store("probes"), readers.probes, settings.probe_key)
        probe.run(sys.stdin)
        finish = hear_finish()
        await_tokens(readers, finish["tokens"])
        say("figures", {"freshness": probe.figures(), **read_all(readers, finish)})


def open_readers(client: forebay.Client) -> Readers:
    """Open a reader per store and wait until each is ready."""
    movies, users, probes = (client.reader(store) for store in ("movies", "users", "probes"))
    for reader in (movies, users, probes):
        reader.await_ready(READY_SECONDS)
    return Readers(movies, users, probes)


def say(kind: str, details: Figures) -> None:
    """Print one message: a JSON object with one name and its details, in one line."""
    print(json.dumps({kind: details}), flush=True)


def hear_finish() -> Figures:
    """Wait for the demo's only message; the end of the input means that the demo is gone."""
    line = sys.stdin.readline()
    if not line:
        raise EOFError("the demo has gone away")
    finish: Figures = json.loads(line)["finish"]
    return finish


def await_tokens(readers: Readers, tokens: dict[str, str]) -> None:
    """Wait until this process has applied everything that the load has written."""
    for reader in (readers.movies, readers.users):
        reader.await_token(bytes.fromhex(tokens[reader.store]), TOKEN_SECONDS)


def read_all(readers: Readers, finish: Figures) -> Figures:
    """Dump, rank and measure; return the figures."""
    stores = (readers.movies, readers.users)
    documents = {reader.store: held(reader) for reader in stores}
    with Path(finish["dump"]).open("w", encoding="utf-8") as out:
        movies, users = (dump(reader, finish["keys"][reader.store], out) for reader in stores)
    candidates = np.array(most_rated(movies, CANDIDATES), np.int64)
    (user,) = most_rated(users, 1)
    return {
        "documents": documents,
        "get": measure_gets(readers.movies, list(movies)),
        "gather": measure_gathers(readers.movies, candidates),
        "user": user,
        "top": rank(readers, user, candidates),
    }


def held(reader: forebay.Reader) -> int:
    """Return the number of documents that the reader reports."""
    return sum(partition.documents for partition in reader.status().partitions)


def dump(reader: forebay.Reader, keys: str, out: TextIO) -> Rows:
    """Write every document, by key and by scan; return the documents of the scan."""
    asked = map(int, Path(keys).read_text(encoding="utf-8").splitlines())
    write(reader.store, "key", ((key, reader.get_document(key)) for key in asked), out)
    # Pairs, not yet a dict: a document that is seen twice must be reported twice.
    seen = list(reader.scan())
    write(reader.store, "scan", seen, out)
    return dict(seen)


def write(
    store: str, by: str, answers: Iterable[tuple[int, forebay.Document | None]], out: TextIO
) -> None:
    """Write a line per result; a timestamp becomes its microseconds."""
    for key, document in answers:
        answer = {"store": store, "by": by, "key": key, "document": document}
        out.write(json.dumps(answer, default=micros_of) + "\n")


def micros_of(value: object) -> int:
    """Return the microseconds of a timestamp, the one type that JSON does not have."""
    if not isinstance(value, datetime):
        raise TypeError(f"the demo's stores have no field of a {type(value).__name__}")
    return (value - EPOCH) // MICROSECOND


def most_rated(rows: Rows, count: int) -> list[int]:
    """Return the keys with the most ratings; of equal counts the smaller key is first."""
    return sorted(rows, key=lambda key: (-rows[key].get("rating_count", 0), key))[:count]


def plan_of(movies: forebay.Reader) -> forebay.GatherPlan:
    """Plan the gather. Counts and times are below 2^53, so a float64 holds them exactly."""
    fields = [(name, 0) if name == "year" else name for name in GATHERED]
    return movies.plan_gather(fields, "float64", lossy=True)


def rank(readers: Readers, user: int, candidates: npt.NDArray[np.int64]) -> list[tuple[int, float]]:
    """Rank the candidates for a user, best first; of equal scores the smaller key is first.

    A score is a movie's mean rating, pulled to 3.5 if ratings are few, times one plus the mean
    share of the user's ratings in the movie's genres.
    """
    matrix = readers.movies.gather(plan_of(readers.movies), candidates)
    counts, sums = (matrix[:, GATHERED.index(name)] for name in ("rating_count", "rating_sum"))
    means = (sums + PRIOR_RATINGS * PRIOR_MEAN) / (counts + PRIOR_RATINGS)
    genres = readers.movies.get_many(candidates, "genres")
    counted = readers.users.get_document(user) or {}
    shares = np.array([share(counted, of_movie) for of_movie in genres])
    scores = zip(candidates.tolist(), (means * (1.0 + shares)).tolist())
    return sorted(scores, key=lambda scored: (-scored[1], scored[0]))[:TOP]


def share(counts: forebay.Document, genres: list[str]) -> float:
    """Return the mean share of the user's ratings that fell to these genres."""
    fields = (f"genre_{genre.lower().replace('-', '_')}" for genre in genres)
    matched = sum(counts.get(name, 0) for name in fields)
    return float(matched) / (float(counts["rating_count"]) * float(max(len(genres), 1)))


def measure_gets(movies: forebay.Reader, keys: list[int]) -> Figures:
    """Measure gets of one field of random existing movies."""
    count = movies.field("rating_count", "int64")
    chosen, times, get = random.Random(SEED), Times(), movies.get
    for block in range(BLOCKS_BEFORE + BLOCKS):
        asked = chosen.choices(keys, k=GETS_PER_BLOCK)
        began = time.perf_counter_ns()
        found = [get(key, count) for key in asked]
        took = time.perf_counter_ns() - began
        if forebay.ABSENT in found:
            raise LookupError("a get did not find its movie")
        if block >= BLOCKS_BEFORE:
            times.taken.append(took // GETS_PER_BLOCK)
    return {"p50_ns": times.nanos(0.5), "p99_ns": times.nanos(0.99)}


def measure_gathers(movies: forebay.Reader, candidates: npt.NDArray[np.int64]) -> Figures:
    """Measure gathers of the candidates into one matrix, with a plan that is created once."""
    plan, times = plan_of(movies), Times()
    matrix = np.empty((len(candidates), plan.width), np.float64)
    for turn in range(GATHERS_BEFORE + GATHERS):
        began = time.perf_counter_ns()
        movies.gather(plan, candidates, out=matrix)
        took = time.perf_counter_ns() - began
        if turn >= GATHERS_BEFORE:
            times.taken.append(took)
    return {
        "keys": len(candidates),
        "fields": plan.width,
        "p50_us": times.micros(0.5),
        "p99_us": times.micros(0.99),
    }


if __name__ == "__main__":
    main()
