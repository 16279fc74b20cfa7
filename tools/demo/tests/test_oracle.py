"""Proves that the oracle computes the ratings correctly, and notices every kind of difference."""

import json
from typing import Any

import data
import oracle
import pandas
import pytest

ROWS = [
    # user, movie, rating, time_s, title, year, genres
    (7, 10, 4.0, 100, "A", 1999, "Action|Sci-Fi"),
    (9, 40, 0.5, 200, None, None, "(no genres listed)"),
    (7, 31, 2.5, 300, "B", 1995, "Drama"),
    (8, 31, 3.0, 300, "B", 1995, "Drama"),
    (8, 10, 2.0, 350, "A", 1999, "Action|Sci-Fi"),
]
GENRES = ("genre_action", "genre_drama", "genre_sci_fi")
ASKED = {"movies": [10, 31, 40, 41], "users": [6, 7, 8, 9]}


def expected() -> oracle.ExpectedAnswers:
    return oracle.replay(pandas.DataFrame(ROWS, columns=list(data.COLUMNS)))


def answers(of: oracle.ExpectedAnswers) -> list[dict[str, Any]]:
    """Return the dump of a reader without a fault."""
    lines = []
    for place, (store, expected_documents) in enumerate(of.stores.items()):
        position = {oracle.POSITIONS[store]: 1 << 16 | place}
        documents = {key: known | position for key, known in expected_documents.items()}
        for key in ASKED[store]:
            lines.append({"store": store, "by": "key", "key": key, "document": documents.get(key)})
        for key, document in reversed(documents.items()):
            lines.append({"store": store, "by": "scan", "key": key, "document": document})
    copy: list[dict[str, Any]] = json.loads(json.dumps(lines))
    return copy


def judge(lines: list[dict[str, Any]]) -> oracle.Verdict:
    return oracle.compare(expected(), "rust", [json.dumps(line) for line in lines], ASKED)


def answer(lines: list[dict[str, Any]], store: str, by: str, key: int) -> dict[str, Any]:
    wanted = (store, by, key)
    return next(line for line in lines if (line["store"], line["by"], line["key"]) == wanted)


def test_oracle_computes_documents_from_ratings() -> None:
    stores = expected().stores
    assert stores["movies"][10] == {
        "title": "A",
        "year": 1999,
        "genres": ["Action", "Sci-Fi"],
        "rating_count": 2,
        "rating_sum": 6.0,
        "rating_min": 2.0,
        "rating_max": 4.0,
        "last_rated": 350_000_000,
        "high_count": 1,
        "low_count": 1,
    }
    assert stores["users"][8] == {
        "rating_count": 2,
        "rating_sum": 5.0,
        "last_rated": 350_000_000,
        "genre_drama": 1,
        "genre_action": 1,
        "genre_sci_fi": 1,
    }


def test_missing_values_are_absent_and_empty_counts_are_0() -> None:
    stores = expected().stores
    assert stores["movies"][40] == {
        "genres": [],
        "rating_count": 1,
        "rating_sum": 0.5,
        "rating_min": 0.5,
        "rating_max": 0.5,
        "last_rated": 200_000_000,
        "high_count": 0,
        "low_count": 1,
    }
    assert stores["users"][9] == {
        "rating_count": 1,
        "rating_sum": 0.5,
        "last_rated": 200_000_000,
        **dict.fromkeys(GENRES, 0),
    }


def test_user_with_most_ratings_is_chosen_and_the_smaller_key_wins_ties() -> None:
    assert expected().user == 7


def test_ranking_follows_the_formula() -> None:
    shares = {10: 2 / (2 * 2), 31: 1 / (2 * 1), 40: 0.0}
    sums = {10: (6.0, 2), 31: (5.5, 2), 40: (0.5, 1)}
    scores = [
        (key, (total + 17.5) / (count + 5) * (1.0 + shares[key]))
        for key, (total, count) in sums.items()
    ]
    assert expected().top == sorted(scores, key=lambda pair: -pair[1])


def test_correct_dump_passes_and_its_answers_are_counted() -> None:
    verdict = judge(answers(expected()))
    assert verdict.mismatches == []
    assert (verdict.documents, verdict.absent_keys) == (12, 2)
    assert verdict.fields > verdict.documents
    assert next(iter(verdict.lines("rust"))).startswith("oracle: rust read 12 documents")


@pytest.mark.parametrize("by", oracle.WAYS)
@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("rating_count", 3),
        ("rating_count", 2.0),
        ("rating_sum", 6.5),
        ("rating_sum", 6),
        ("rating_min", None),
        ("genres", ["Sci-Fi", "Action"]),
        ("title", "a"),
        ("unknown", 1),
        ("low_count", 0),
        ("movie_ratings_position", -1),
        ("movie_ratings_position", 1.0),
        ("movie_ratings_position", None),
        ("user_ratings_position", 1),
    ],
)
def test_wrong_field_is_named(by: str, name: str, wrong: object) -> None:
    lines = answers(expected())
    answer(lines, "movies", by, 10)["document"][name] = wrong
    (mismatch,) = judge(lines).mismatches
    assert str(mismatch).startswith(f"oracle: mismatch movies 10 {name} expected ")
    assert str(mismatch).endswith(f"found {wrong!r} (rust, by {by})")


def test_absent_field_is_noticed() -> None:
    lines = answers(expected())
    del answer(lines, "users", "key", 8)["document"]["genre_drama"]
    del answer(lines, "users", "key", 8)["document"]["user_ratings_position"]
    count, position = judge(lines).mismatches
    assert (count.field, count.expected, count.found) == ("genre_drama", 1, "absent")
    assert (position.field, position.found) == ("user_ratings_position", "absent")


def test_any_position_passes() -> None:
    lines = answers(expected())
    answer(lines, "users", "key", 8)["document"]["user_ratings_position"] = 7 << 40
    assert judge(lines).mismatches == []


@pytest.mark.parametrize("by", oracle.WAYS)
def test_missing_answer_is_noticed(by: str) -> None:
    lines = answers(expected())
    lines.remove(answer(lines, "users", by, 9))
    (mismatch,) = judge(lines).mismatches
    assert (mismatch.key, mismatch.expected, mismatch.found) == (9, "an answer", "none")


@pytest.mark.parametrize("by", oracle.WAYS)
def test_document_answered_twice_is_noticed(by: str) -> None:
    lines = answers(expected())
    lines.append(answer(lines, "movies", by, 31))
    assert [mismatch.found for mismatch in judge(lines).mismatches] == ["again"]


def test_unexpected_document_is_noticed() -> None:
    lines = answers(expected())
    answer(lines, "movies", "key", 41)["document"] = {"title": "ghost"}
    (mismatch,) = judge(lines).mismatches
    assert (mismatch.expected, mismatch.found) == ("absent", "a document")


def test_document_answered_as_absent_is_noticed() -> None:
    lines = answers(expected())
    answer(lines, "movies", "key", 31)["document"] = None
    (mismatch,) = judge(lines).mismatches
    assert (mismatch.expected, mismatch.found) == ("a document", "absent")


def right_figures() -> dict[str, Any]:
    of = expected()
    figures: dict[str, Any] = json.loads(
        json.dumps({"documents": {"movies": 3, "users": 3}, "user": of.user, "top": of.top})
    )
    return figures


def test_right_figures_pass() -> None:
    assert oracle.compare_figures(expected(), "rust", right_figures()).mismatches == []


def test_wrong_count_user_or_ranking_is_noticed() -> None:
    def found(**wrong: object) -> list[str]:
        figures = right_figures() | wrong
        return [m.field for m in oracle.compare_figures(expected(), "rust", figures).mismatches]

    top = right_figures()["top"]
    assert found(documents={"movies": 3, "users": 4}) == ["document count"]
    assert found(user=8) == ["most ratings"]
    assert found(top=[top[1], top[0], top[2]]) == ["place 1", "place 2"]
    assert found(top=top[:2]) == ["place 3"]
    assert found(top=[*top, [99, 0.1]]) == ["ranking length"]


def test_only_the_first_mismatches_are_shown() -> None:
    many = [oracle.Mismatch("users", key, "f", 1, 2, "x") for key in range(30)]
    lines = list(oracle.Verdict(mismatches=many).lines("rust"))
    assert len(lines) == oracle.SHOWN_MAX + 1
    assert lines[-1] == "oracle: and 20 mismatches more in rust"
