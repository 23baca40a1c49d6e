"""Requests to stop: SIGTERM and SIGINT, noticed even while the main thread is inside a blocking call."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """Becomes set at the first stop signal; a second one ends the process at once.

    The signals are blocked in every thread and taken by one that waits for them, since Python runs signal handlers
    only between instructions of the main thread, which may be stuck in a collective operation.
    """

    def __init__(self, on_signal: Callable[[int], None]) -> None:
        """Call in the main thread before any other thread starts. ``on_signal`` runs in the waiting thread."""
        self._on_signal = on_signal
        self._event = threading.Event()
        self.signum = 0
        for signum in STOP_SIGNALS:
            signal.signal(signum, _ignore)
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        threading.Thread(target=self._listen, name="signals", daemon=True).start()

    def __bool__(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait until a signal arrives, at most ``seconds``; True when it has."""
        return self._event.wait(seconds)

    def _listen(self) -> None:
        self.signum = signal.sigwait(STOP_SIGNALS)
        self._event.set()
        threading.Thread(target=self._on_signal, args=(self.signum,), name="stop", daemon=True).start()
        os._exit(128 + signal.sigwait(STOP_SIGNALS))


def _ignore(*_: object) -> None:
    """Stands in for the default action, which the kernel does not apply to process 1 of a container."""
