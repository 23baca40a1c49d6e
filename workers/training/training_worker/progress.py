"""What the worker reports about itself: one record, read by the metrics server and the termination message."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class CheckpointReport:
    """The newest checkpoint. ``timestamp`` is in seconds since 1970, ``size_bytes`` sums all of its files."""

    path: str
    epoch: int
    step: int
    timestamp: float
    size_bytes: int


@dataclass(frozen=True)
class Report:
    """A consistent view of the training at one moment. None means not known yet.

    How far the training is, is not known before its checkpoint was read: a zero would look as if all were lost.
    """

    epochs: int = 0
    epoch: int | None = None
    step: int | None = None
    progress_ratio: float | None = None
    world_size: int = 1
    restored_step: int | None = None
    loss: float | None = None
    accuracy: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    checkpoint: CheckpointReport | None = None
    checkpoint_failures: int = 0


class Progress:
    """Holds the present Report. Threads may read while the training loop writes."""

    def __init__(self, report: Report | None = None) -> None:
        self._report = report or Report()
        self._lock = threading.Lock()

    def read(self) -> Report:
        """The present report."""
        with self._lock:
            return self._report

    def update(self, **changes: Any) -> None:
        """Replace fields of the report in one step. ``metrics`` is merged, not replaced."""
        with self._lock:
            if "metrics" in changes:
                changes["metrics"] = {**self._report.metrics, **changes["metrics"]}
            self._report = replace(self._report, **changes)
