"""Counts what the server did, as Prometheus text."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Callable, Sequence

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Histogram:
    """Values by the bounds that they do not exceed. Not safe for several threads by itself."""

    def __init__(self, name: str, meaning: str, bounds: Sequence[float]) -> None:
        self._name = name
        self._meaning = meaning
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect.bisect_left(self._bounds, value)] += 1
        self._sum += value

    def render(self) -> list[str]:
        """Its lines."""
        lines, total = [f"# HELP {self._name} {self._meaning}", f"# TYPE {self._name} histogram"], 0
        for bound, count in zip((*(f"{bound:g}" for bound in self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            lines.append(f'{self._name}_bucket{{le="{bound}"}} {total}')
        return [*lines, f"{self._name}_sum {self._sum:.6f}", f"{self._name}_count {total}"]


class ServingMetrics:
    """Figures of the requests for inference. Safe for several threads."""

    def __init__(self, depth: Callable[[], int], ready: Callable[[], bool]) -> None:
        self._depth = depth
        self._ready = ready
        self._lock = threading.Lock()
        self._requests: dict[int, int] = {}
        self._seconds = Histogram(
            "inference_server_request_duration_seconds", "Time from a request's head to its answer.", SECONDS
        )
        self._rows = Histogram("inference_server_batch_size", "Rows of a call of the model.", ROWS)

    def request(self, status: int, seconds: float) -> None:
        """Count a request that was answered with ``status``."""
        with self._lock:
            self._requests[status] = self._requests.get(status, 0) + 1
            self._seconds.observe(seconds)

    def call(self, rows: int) -> None:
        """Count a call of the model."""
        with self._lock:
            self._rows.observe(rows)

    def render(self) -> str:
        """All figures in the Prometheus text format 0.0.4."""
        name = "inference_server_requests_total"
        with self._lock:
            lines = [f"# HELP {name} Requests for inference, by HTTP status.", f"# TYPE {name} counter"]
            lines += [f'{name}{{code="{status}"}} {count}' for status, count in sorted(self._requests.items())]
            lines += [*self._seconds.render(), *self._rows.render()]
        for name, meaning, value in (
            ("inference_server_queue_depth", "Requests that wait for the model.", self._depth()),
            ("inference_server_ready", "Whether the model is loaded and requests are wanted.", int(self._ready())),
        ):
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} gauge", f"{name} {value}"]
        return "\n".join(lines) + "\n"
