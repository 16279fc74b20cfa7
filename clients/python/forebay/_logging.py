"""Passes records of the native side to the logger `forebay`.

The native side appends records to a list; one thread of this package takes them and passes them to
`logging`. No native code ever waits for `logging` or for the interpreter. Records that the logger
would refuse are not created: the native side learns the logger's level when an object is opened and
once a second.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading

from forebay import _native

LOGGER = logging.getLogger("forebay")
# If there is no handler, `logging` prints warnings that no application wants.
LOGGER.addHandler(logging.NullHandler())

TRACE = logging.DEBUG - 5
"""Level of the native side's finest records."""

_LOOK_SECONDS = 1.0
_JOIN_SECONDS = 5.0
# Levels by their numbers on the native side, from 1.
_LEVELS = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG, TRACE)


class _Pump:
    """The thread that takes records; one per process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_over = False

    def start(self) -> None:
        """Pass the logger's level to the native side, and start the thread unless it runs."""
        with self._lock:
            if self._is_over:
                return
            set_level()
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=_run, name="forebay-logging", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Pass on the last records, and end: no thread of this package may run during shutdown."""
        with self._lock:
            self._is_over = True
            thread = self._thread
        _native.close_log()
        if thread is not None:
            thread.join(_JOIN_SECONDS)


def set_level() -> None:
    """Set the native side's level to the logger's."""
    enabled = (number for number, level in enumerate(_LEVELS, 1) if LOGGER.isEnabledFor(level))
    _native.set_log_level(max(enabled, default=0))


def _run() -> None:
    while (taken := _native.next_records(_LOOK_SECONDS)) is not None:
        records, lost = taken
        set_level()
        for record in records:
            _hand_over(*record)
        if lost:
            LOGGER.warning("%d records dropped, because they arrived faster than logging", lost)


def _hand_over(
    number: int, target: str, text: str, now_us: int, file: str | None, line: int
) -> None:
    level = _LEVELS[number - 1]
    if not LOGGER.isEnabledFor(level):
        return
    made = LOGGER.makeRecord(
        LOGGER.name, level, file or "", line, text, (), None, extra={"target": target}
    )
    made.created = now_us / 1_000_000
    made.msecs = now_us // 1000 % 1000
    try:
        LOGGER.handle(made)
    except Exception:
        # A filter of the application's failed; later records are unaffected.
        failed = (*sys.exc_info(), threading.current_thread())
        threading.excepthook(threading.ExceptHookArgs(failed))


_pump = _Pump()


def start() -> None:
    """Start passing records; the native side calls this when an object is opened."""
    _pump.start()


def _stop() -> None:
    _pump.stop()


def _after_fork_in_child() -> None:
    # The thread exists only in the parent, perhaps with the lock.
    global _pump
    _pump = _Pump()


atexit.register(_stop)
os.register_at_fork(after_in_child=_after_fork_in_child)
