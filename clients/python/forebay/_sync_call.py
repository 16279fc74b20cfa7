"""Calls of the blocking client: the calling thread waits for the result."""

from typing import TypeVar

from forebay import _native

T = TypeVar("T")


class Calls:
    """Makes calls from any number of threads."""

    def run(self, call: "_native.Call[T]") -> T:
        """Make a call and return its result; Ctrl-C ends the wait."""
        return call.wait()
