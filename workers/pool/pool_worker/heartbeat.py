"""Keeps the lease of a running task."""

from __future__ import annotations

import threading
import time

from pool_worker.backoff import Backoff
from pool_worker.client import JobService
from pool_worker.errors import LeaseLostError, ServiceError
from pool_worker.logs import Log
from pool_worker.tasks import CANCELLED, LEASE_LOST, TIMED_OUT, Context, Task

# How long a handler may take to end after it was asked to. Then it is given up, and its lease, so that another can try.
# Longer than a training may take to write its last checkpoint (STOP_SECONDS of training_task).
STUBBORN_SECONDS = 45.0


class Heartbeat:
    """Sends a heartbeat each third of the visibility timeout, in a thread; stops the task when it is no longer ours.

    Whether the lease still runs is reckoned from when the last good heartbeat was *sent*, by this machine's own
    monotonic clock: so the work stops before the service can give the task to another.
    """

    def __init__(self, service: JobService, task: Task, context: Context, log: Log, leased_at: float) -> None:
        self._service = service
        self._task = task
        self._context = context
        self._log = log
        self._leased_at = leased_at
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"heartbeat-{task.id}", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        try:
            self._keep()
            # Without the end of the task, the handler was asked to stop.
            if not self._context.abandoned and not self._done.wait(STUBBORN_SECONDS):
                self._abandon(f"the task went on {STUBBORN_SECONDS:.0f} s after it had to stop: {self._context.reason}")
        finally:
            self._service.close()

    def _keep(self) -> None:
        interval = self._task.visibility_seconds / 3
        began = time.monotonic()
        good_until = self._leased_at + self._task.visibility_seconds
        backoff = Backoff(first=min(0.2, interval / 4), most=max(0.2, interval / 2))
        pause = self._within_timeout(interval, began)
        while not self._done.wait(pause):
            if self._timed_out(began) and self._stubborn(began):
                self._context.stop(LEASE_LOST)
                self._abandon(f"the task went on {STUBBORN_SECONDS:.0f} s after its timeout; its lease is let go")
                return
            sent = time.monotonic()
            try:
                beat = self._service.heartbeat(self._task)
            except LeaseLostError as error:
                if not self._done.is_set():
                    self._lost(str(error))
                return
            except ServiceError as error:
                left = good_until - time.monotonic()
                if left <= 0:
                    self._lost(f"no heartbeat reached the job service in time: {error}")
                    return
                self._log.warning("heartbeat", f"heartbeat failed, {left:.0f} s are left: {error}", task=self._task.id)
                pause = min(backoff.delay(), left)
                continue
            backoff.reset()
            good_until = sent + self._task.visibility_seconds
            if beat.cancel:
                self._context.stop(CANCELLED)
                self._log.info("cancelled", "the task was cancelled", task=self._task.id)
                return
            pause = self._within_timeout(interval, began)

    def _lost(self, why: str) -> None:
        self._context.stop(LEASE_LOST)
        self._log.warning("lease-lost", f"the lease is lost, the work stops: {why}", task=self._task.id)

    def _abandon(self, why: str) -> None:
        self._context.abandon()
        self._log.error("stubborn", why, task=self._task.id)

    def _timed_out(self, began: float) -> bool:
        if not self._task.timeout_seconds or time.monotonic() - began < self._task.timeout_seconds:
            return False
        self._context.stop(TIMED_OUT)
        return True

    def _stubborn(self, began: float) -> bool:
        return time.monotonic() - began >= self._task.timeout_seconds + STUBBORN_SECONDS

    def _within_timeout(self, interval: float, began: float) -> float:
        """The interval, or less when the task's time is over sooner."""
        left = self._task.timeout_seconds - (time.monotonic() - began)
        return min(interval, left) if 0 < left else interval
