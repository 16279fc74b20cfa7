"""How the client that waits makes a call: it waits for the answer."""

from typing import TypeVar

from forebay import _native

T = TypeVar("T")


class Calls:
    """Makes calls from any number of threads."""

    def run(self, call: "_native.Call[T]") -> T:
        """Make a call and return its answer; Ctrl-C ends the wait."""
        return call.wait()
