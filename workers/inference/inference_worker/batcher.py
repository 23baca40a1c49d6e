"""Gathers requests that come at the same time into one call of the model."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from pool_worker.logs import Log

from inference_worker.predictor import Predictor

Outputs = list[tuple[str, torch.Tensor]]
Key = tuple[tuple[torch.dtype, tuple[int, ...]], ...]


class QueueFullError(Exception):
    """As many requests wait as may."""


@dataclass
class Pending:
    """A request that waits. ``done`` is set once there are outputs or an error."""

    tensors: list[torch.Tensor]
    rows: int  # 0: its tensors have different first dimensions, so that it shares no call
    key: Key
    arrived: float = field(default_factory=time.monotonic)
    done: threading.Event = field(default_factory=threading.Event)
    outputs: Outputs = field(default_factory=list)
    error: Exception | None = None
    abandoned: bool = False


class Batcher:
    """Calls the model in the thread that runs ``run``. The other methods are for any thread.

    A call has at most ``max_rows`` rows, unless one request alone has more. The first request of a call waits up to
    ``max_delay`` seconds for others, but not when as many wait as there are ``peers``, connections that may bring one.
    """

    def __init__(
        self,
        max_rows: int,
        max_delay: float,
        max_queue: int,
        peers: Callable[[], int],
        count_call: Callable[[int], None],
        log: Log,
    ) -> None:
        self._max_rows = max_rows
        self._max_delay = max_delay
        self._max_queue = max_queue
        self._peers = peers
        self._count_call = count_call
        self._log = log
        self._waiting: deque[Pending] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._mixable = True  # False once the model has been seen to mix up the rows of a call

    @property
    def depth(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    def submit(self, tensors: list[torch.Tensor]) -> Pending:
        """Queue a request. Raises QueueFullError."""
        lengths = {len(tensor) for tensor in tensors}
        key = tuple((tensor.dtype, tuple(tensor.shape[1:])) for tensor in tensors)
        pending = Pending(tensors, lengths.pop() if len(lengths) == 1 else 0, key)
        with self._changed:
            if len(self._waiting) >= self._max_queue:
                raise QueueFullError
            self._waiting.append(pending)
            self._changed.notify()
        return pending

    def look_again(self) -> None:
        """Say that there are fewer peers."""
        with self._changed:
            self._changed.notify()

    def close(self) -> None:
        """Let ``run`` return once nothing waits any longer."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def run(self, predictor: Predictor) -> None:
        """Answer requests until close()."""
        while calls := self._next():
            self._call(predictor, [pending for pending in calls if not pending.abandoned])

    def _next(self) -> list[Pending]:
        """The requests of the next call; none: it is closed."""
        with self._changed:
            while not self._waiting:
                if self._closed:
                    return []
                self._changed.wait()
            first = self._waiting[0]
            until = first.arrived + self._max_delay
            while not self._full(first) and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)
            return self._take(first)

    def _full(self, first: Pending) -> bool:
        """Whether waiting brings nothing more into the call of ``first``."""
        if self._closed or not self._mixable or not first.rows or len(self._waiting) >= self._peers():
            return True
        return sum(pending.rows for pending in self._waiting if pending.key == first.key) >= self._max_rows

    def _take(self, first: Pending) -> list[Pending]:
        taken, rows, left = [self._waiting.popleft()], first.rows, deque[Pending]()
        while self._waiting and self._mixable and first.rows:
            pending = self._waiting.popleft()
            if pending.key == first.key and pending.rows and rows + pending.rows <= self._max_rows:
                taken.append(pending)
                rows += pending.rows
            else:
                left.append(pending)
        self._waiting.extendleft(reversed(left))
        return taken

    def _call(self, predictor: Predictor, calls: list[Pending]) -> None:
        if len(calls) > 1 and not self._together(predictor, calls):
            for pending in calls:
                self._call(predictor, [pending])
        elif len(calls) == 1:
            (pending,) = calls
            self._count_call(pending.rows or len(pending.tensors[0]))
            try:
                pending.outputs = predictor.run(pending.tensors)
            except Exception as error:  # noqa: BLE001 (the request's own thread tells the client)
                pending.error = error
            pending.done.set()

    def _together(self, predictor: Predictor, calls: list[Pending]) -> bool:
        """Answer all in one call. False: they have to be called one by one, so that one cannot fail the others."""
        rows = [pending.rows for pending in calls]
        try:
            outputs = predictor.run([torch.cat(parts) for parts in zip(*(one.tensors for one in calls), strict=True)])
        except Exception:  # noqa: BLE001 (each of them is told by itself what is wrong)
            return False
        if any(tensor.ndim == 0 or len(tensor) != sum(rows) for _, tensor in outputs):
            self._mixable = False
            self._log.warning(
                "no-batching", "the model's outputs do not have the inputs' first dimension: requests share no call"
            )
            return False
        self._count_call(sum(rows))
        split = [(name, tensor.split(rows)) for name, tensor in outputs]
        for i, pending in enumerate(calls):
            pending.outputs = [(name, parts[i]) for name, parts in split]
            pending.done.set()
        return True
