"""A task, and what its handler can ask while it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pool_worker.errors import TaskStoppedError

CANCELLED = "cancelled"
LEASE_LOST = "lease lost"
TIMED_OUT = "timed out"
SHUTTING_DOWN = "shutting down"


@dataclass(frozen=True)
class Task:
    """One task as the job service gave it. ``attempt`` counts from 1; ``timeout_seconds`` 0 means no limit."""

    id: str
    lease_token: int
    job_type: str
    config: Mapping[str, Any]
    visibility_seconds: float
    timeout_seconds: float = 0.0
    attempt: int = 1
    resources: Mapping[str, Any] = field(default_factory=dict)


class Context:
    """Tells the handler of a task whether to go on. Safe for several threads."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._reason = ""
        self._progress = 0.0
        self._abandoned = threading.Event()

    @property
    def reason(self) -> str:
        """Why the task must end: one of the constants of this module, or empty while it may go on."""
        with self._lock:
            return self._reason

    @property
    def stopped(self) -> bool:
        """Whether the task must end."""
        return self._stopped.is_set()

    def check(self) -> None:
        """Raise TaskStoppedError when the task must end. Call it often: between batches, not between epochs."""
        if self.stopped:
            raise TaskStoppedError(self.reason)

    def wait(self, seconds: float) -> bool:
        """Wait until the task must end, but no longer than ``seconds``. Returns whether it must."""
        return self._stopped.wait(seconds)

    def progress(self, ratio: float) -> None:
        """Say which share of the task is done, 0 to 1; it is a metric of the worker."""
        with self._lock:
            self._progress = min(1.0, max(0.0, ratio))

    def read_progress(self) -> float:
        """The share that is done."""
        with self._lock:
            return self._progress

    def stop(self, reason: str) -> None:
        """Ask the handler to end. What says that the task is another's by now counts more than an earlier reason."""
        with self._lock:
            if not self._reason or reason in (LEASE_LOST, CANCELLED):
                self._reason = reason
        self._stopped.set()

    @property
    def abandoned(self) -> bool:
        """Whether nothing waits for the handler any more, which was asked to end and did not."""
        return self._abandoned.is_set()

    def abandon(self) -> None:
        """Give the handler up. A thread cannot be ended from outside: the worker has to end for its sake."""
        self._abandoned.set()


Handler = Callable[[Task, Context], Mapping[str, Any]]
