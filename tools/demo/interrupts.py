"""Signals that end the demo in order: every started program is stopped."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class InterruptError(Exception):
    """A signal stopped the demo; the text names the signal."""


class Interrupts:
    """Raises InterruptError in the main thread at the first signal; later signals do nothing."""

    def __init__(self) -> None:
        """Start without a deferred signal."""
        self._held = False
        self._pending: str | None = None

    def install(self) -> None:
        """Handle the signals from now on."""
        for number in SIGNALS:
            signal.signal(number, self._handle)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        self._pending = signal.Signals(number).name
        if not self._held:
            raise InterruptError(self._pending)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Defer a signal, so that no program starts without being remembered for the stop."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self._pending is not None:
            raise InterruptError(self._pending)
