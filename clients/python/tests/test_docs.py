"""The examples in the package's documentation run, and print what they show."""

import doctest

from forebay import _memory


def test_examples_of_readers_in_memory_pass() -> None:
    """The class's example is a test of a program that reads."""
    # Doctest compares the class of an error, but not its module and its text.
    result = doctest.testmod(_memory, optionflags=doctest.IGNORE_EXCEPTION_DETAIL)
    assert result.attempted > 0
    assert result.failed == 0
