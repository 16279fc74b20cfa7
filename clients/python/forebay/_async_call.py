"""Calls of the client for asyncio: the event loop awaits the result.

A native thread never touches the event loop: it appends the result to a list and wakes the loop
through a socket, and the loop takes all available results.
"""

import asyncio
from typing import Any, TypeVar

from forebay import _native
from forebay._errors import ClosedError

T = TypeVar("T")


class AsyncCalls:
    """The calls that one event loop awaits."""

    def __init__(self) -> None:
        """Listen for results on the running loop, until closed."""
        self._loop = asyncio.get_running_loop()
        self._completions = _native.Completions()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._tickets = 0
        self._is_open = True
        self._loop.add_reader(self._completions.fileno(), self._take)

    async def run(self, call: "_native.Call[T]") -> T:
        """Make a call and return its result; a cancellation gives the call up."""
        if not self._is_open:
            raise ClosedError("Closed: the client was closed; open another one")
        self._tickets += 1
        ticket = self._tickets
        answer: asyncio.Future[T] = self._loop.create_future()
        self._waiting[ticket] = answer
        started = call.start(self._completions, ticket)
        try:
            return await answer
        finally:
            # The call is answered, cancelled or closed, so no code awaits it any more.
            self._waiting.pop(ticket, None)
            started.cancel()

    def _take(self) -> None:
        for ticket, answer, error in self._completions.take():
            future = self._waiting.pop(ticket, None)
            if future is None or future.done():
                continue
            if error is None:
                future.set_result(answer)
            else:
                future.set_exception(error)

    def close(self) -> None:
        """End the calls in flight with `ClosedError`; a second call changes nothing."""
        if not self._is_open:
            return
        self._is_open = False
        if not self._loop.is_closed():
            self._loop.remove_reader(self._completions.fileno())
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ClosedError("Closed: the client was closed during the call"))
