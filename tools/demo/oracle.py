"""The oracle: computes every document from the ratings in pandas, and compares it with the
documents that each language read. The oracle shares only the field names with the loader and the
readers, and no code.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pandas

Document = dict[str, Any]
Documents = dict[int, Document]

NO_GENRES = "(no genres listed)"
HIGH_RATING = 4.0
LOW_RATING = 2.0
CANDIDATES = 500
TOP = 10
PRIOR_RATINGS = 5
PRIOR_MEAN = 3.5
SHOWN_MAX = 10
WAYS = ("key", "scan")
POSITIONS = {"movies": "movie_ratings_position", "users": "user_ratings_position"}
"""The field, by store, with the view's position in its log. Only its type is known."""


@dataclass(frozen=True)
class Mismatch:
    """A difference between a reader's answer and the expected document."""

    store: str
    key: int | str
    field: str
    expected: Any
    found: Any
    where: str

    def __str__(self) -> str:
        """Return the location, the expected and the found value."""
        return (
            f"oracle: mismatch {self.store} {self.key} {self.field} "
            f"expected {self.expected!r} found {self.found!r} ({self.where})"
        )


@dataclass
class Verdict:
    """The counts of compared items, and the mismatches."""

    documents: int = 0
    fields: int = 0
    absent_keys: int = 0
    mismatches: list[Mismatch] = field(default_factory=list)

    def add(self, other: "Verdict") -> None:
        """Add the result of another comparison."""
        self.documents += other.documents
        self.fields += other.fields
        self.absent_keys += other.absent_keys
        self.mismatches.extend(other.mismatches)

    def lines(self, language: str) -> Iterator[str]:
        """Yield one language's first mismatches and the number of others, or the counts."""
        yield from map(str, self.mismatches[:SHOWN_MAX])
        if len(self.mismatches) > SHOWN_MAX:
            yield f"oracle: and {len(self.mismatches) - SHOWN_MAX:,} mismatches more in {language}"
        if not self.mismatches:
            yield (
                f"oracle: {language} read {self.documents:,} documents with {self.fields:,} "
                f"fields, by key and by scan, and {self.absent_keys:,} absent keys as expected"
            )


@dataclass(frozen=True)
class ExpectedAnswers:
    """Everything that the readers must answer."""

    stores: dict[str, Documents]
    user: int
    top: list[tuple[int, float]]


def replay(ratings: pandas.DataFrame) -> ExpectedAnswers:
    """Compute the stores' documents after all ratings (columns of data.COLUMNS, oldest first)."""
    stores = {"movies": movies(ratings), "users": users(ratings)}
    user = favourite(stores["users"], 1)[0]
    return ExpectedAnswers(stores, user, top(stores["movies"], stores["users"][user]))


def genre_list(text: str) -> list[str]:
    """Split the genres of one movie."""
    return [] if text == NO_GENRES else text.split("|")


def genre_field(genre: str) -> str:
    """Name the field that counts a user's ratings of this genre."""
    return "genre_" + genre.lower().replace("-", "_")


def movies(ratings: pandas.DataFrame) -> Documents:
    """Compute a document per movie; a missing title or year is absent, a count of nothing is 0."""
    frame = ratings.assign(
        high=ratings["rating"] >= HIGH_RATING, low=ratings["rating"] <= LOW_RATING
    )
    totals = frame.groupby("movie", sort=True).agg(
        title=("title", "first"),
        year=("year", "first"),
        genres=("genres", "first"),
        rating_count=("rating", "size"),
        rating_sum=("rating", "sum"),
        rating_min=("rating", "min"),
        rating_max=("rating", "max"),
        last_rated=("time_s", "max"),
        high_count=("high", "sum"),
        low_count=("low", "sum"),
    )
    return {int(key): movie(row) for key, row in totals.to_dict("index").items()}


def movie(row: dict[str, Any]) -> Document:
    """Compute one movie's document from its totals."""
    document: Document = {
        "genres": genre_list(row["genres"]),
        "rating_count": int(row["rating_count"]),
        "rating_sum": float(row["rating_sum"]),
        "rating_min": float(row["rating_min"]),
        "rating_max": float(row["rating_max"]),
        "last_rated": int(row["last_rated"]) * 1_000_000,
        "high_count": int(row["high_count"]),
        "low_count": int(row["low_count"]),
    }
    if not pandas.isna(row["title"]):
        document["title"] = str(row["title"])
    if not pandas.isna(row["year"]):
        document["year"] = int(row["year"])
    return document


def users(ratings: pandas.DataFrame) -> Documents:
    """Compute a document per user; a genre that others rated, but the user never did, counts 0."""
    totals = ratings.groupby("user", sort=True).agg(
        rating_count=("rating", "size"), rating_sum=("rating", "sum"), last_rated=("time_s", "last")
    )
    rated = ratings.assign(genre=ratings["genres"].map(genre_list)).explode("genre")
    rated = rated.dropna(subset=["genre"])
    uncounted = {genre_field(genre): 0 for genre in rated["genre"].unique()}
    documents: Documents = {
        int(row.Index): {
            "rating_count": int(row.rating_count),
            "rating_sum": float(row.rating_sum),
            "last_rated": int(row.last_rated) * 1_000_000,
            **uncounted,
        }
        for row in totals.itertuples()
    }
    for (user, genre), count in rated.groupby(["user", "genre"]).size().items():
        documents[int(user)][genre_field(genre)] = int(count)
    return documents


def favourite(documents: Documents, count: int) -> list[int]:
    """Find the keys with the most ratings; ties are ordered by key."""
    return sorted(documents, key=lambda key: (-documents[key]["rating_count"], key))[:count]


def top(movie_documents: Documents, user: Document) -> list[tuple[int, float]]:
    """Rank the most rated movies for one user: the mean, pulled to 3.5 if ratings are few, times
    one plus the mean share of the user's ratings in the movie's genres.
    """
    scored = []
    for key in favourite(movie_documents, CANDIDATES):
        document = movie_documents[key]
        genres = document["genres"]
        matched = sum(user.get(genre_field(genre), 0) for genre in genres)
        share = matched / (user["rating_count"] * max(len(genres), 1))
        mean = (document["rating_sum"] + PRIOR_RATINGS * PRIOR_MEAN) / (
            document["rating_count"] + PRIOR_RATINGS
        )
        scored.append((key, mean * (1.0 + share)))
    return sorted(scored, key=lambda pair: (-pair[1], pair[0]))[:TOP]


def compare(
    expected: ExpectedAnswers, language: str, dump: Iterable[str], asked: dict[str, list[int]]
) -> Verdict:
    """Compare one language's dump: a JSON object per line with store, by, key and document."""
    verdict = Verdict()
    seen: dict[tuple[str, str], set[int]] = {
        (store, by): set() for store in expected.stores for by in WAYS
    }
    for line in dump:
        answer = json.loads(line)
        store, by, key = answer["store"], answer["by"], answer["key"]
        where = f"{language}, by {by}"
        keys = seen[store, by]
        if key in keys:
            verdict.mismatches.append(Mismatch(store, key, "document", "once", "again", where))
        keys.add(key)
        wanted = expected.stores[store].get(key)
        verdict.add(compare_document(Place(store, key, where), wanted, answer["document"]))
    for store, documents in expected.stores.items():
        for by, wanted_keys in (("key", set(asked[store])), ("scan", set(documents))):
            missing = sorted(wanted_keys - seen[store, by])
            where = f"{language}, by {by}"
            verdict.mismatches.extend(
                Mismatch(store, key, "document", "an answer", "none", where) for key in missing
            )
    return verdict


@dataclass(frozen=True)
class Place:
    """A document as one language read it."""

    store: str
    key: int
    where: str


def compare_document(place: Place, wanted: Document | None, found: Document | None) -> Verdict:
    """Compare one document, or its absence; a field's type must be right, too. The view's position
    in each document is only checked to be a position.
    """
    if wanted is None and found is None:
        return Verdict(absent_keys=1)
    if wanted is None or found is None:
        told = ("a document", "absent") if found is None else ("absent", "a document")
        mismatch = Mismatch(place.store, place.key, "document", *told, place.where)
        return Verdict(mismatches=[mismatch])
    verdict = Verdict(documents=1)
    wanted = with_position(place.store, wanted, found)
    for name in sorted(wanted.keys() | found.keys()):
        verdict.fields += 1
        want, have = wanted.get(name, "absent"), found.get(name, "absent")
        if type(want) is not type(have) or want != have:
            verdict.mismatches.append(
                Mismatch(place.store, place.key, name, want, have, place.where)
            )
    return verdict


def with_position(store: str, wanted: Document, found: Document) -> Document:
    """Return the expected document with the found position, if that can be a position, else with a
    text that differs from it.
    """
    have = found.get(POSITIONS[store])
    is_one = type(have) is int and have >= 0
    return {**wanted, POSITIONS[store]: have if is_one else "a position"}


def compare_figures(expected: ExpectedAnswers, language: str, figures: dict[str, Any]) -> Verdict:
    """Compare the counts of documents, the chosen user and the ranking."""
    verdict = Verdict()
    for store, documents in expected.stores.items():
        found = figures["documents"][store]
        if found != len(documents):
            verdict.mismatches.append(
                Mismatch(store, "all", "document count", len(documents), found, language)
            )
    if figures["user"] != expected.user:
        verdict.mismatches.append(
            Mismatch("users", "all", "most ratings", expected.user, figures["user"], language)
        )
    ranking = [(key, score) for key, score in figures["top"]]
    for place, wanted in enumerate(expected.top):
        have = ranking[place] if place < len(ranking) else None
        if wanted != have:
            verdict.mismatches.append(
                Mismatch("movies", wanted[0], f"place {place + 1}", wanted, have, language)
            )
    if len(ranking) > len(expected.top):
        count = len(expected.top)
        verdict.mismatches.append(
            Mismatch("movies", "all", "ranking length", count, len(ranking), language)
        )
    return verdict
