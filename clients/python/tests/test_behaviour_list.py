"""The list of behaviours is the same in every language: one test per name, here too."""

import ast
import sys
from collections import Counter
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TESTS = Path(__file__).absolute().parent
LIST = TESTS.parents[2] / "proto" / "vectors" / "behaviours.toml"


def test_every_behaviour_has_one_test_and_no_test_is_extra() -> None:
    """The names of the list and of tests/behaviours are the same, each once."""
    named = Counter(behaviour["name"] for behaviour in tomllib.loads(LIST.read_text())["behaviour"])
    tested: Counter[str] = Counter()
    for path in sorted((TESTS / "behaviours").glob("test_*.py")):
        functions = ast.parse(path.read_text()).body
        names = [node.name for node in functions if isinstance(node, ast.FunctionDef)]
        tests = (name for name in names if name.startswith("test_"))
        tested.update(name.removeprefix("test_") for name in tests)
    assert named and set(named.values()) == {1}
    assert tested == named


def test_every_behaviour_states_its_rule() -> None:
    """Each entry has a kind and a sentence."""
    for behaviour in tomllib.loads(LIST.read_text())["behaviour"]:
        kinds = {"writer", "reader", "schema", "lifecycle", "memory", "events", "selects"}
        assert behaviour["kind"] in kinds, behaviour
        assert behaviour["text"].endswith("."), behaviour
