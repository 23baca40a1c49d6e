"""The loop of a pooled worker: lease a task, run it, say how it ended."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import traceback
from collections.abc import Mapping
from typing import Any

from pool_worker.backoff import Backoff
from pool_worker.client import JobService
from pool_worker.errors import (
    LeaseLostError,
    RejectedError,
    ServiceError,
    TaskError,
    TaskStoppedError,
    UnavailableError,
)
from pool_worker.heartbeat import Heartbeat
from pool_worker.logs import Log
from pool_worker.metrics import Metrics
from pool_worker.settings import Settings
from pool_worker.tasks import CANCELLED, LEASE_LOST, SHUTTING_DOWN, TIMED_OUT, Context, Handler, Task

# How long the end of a task is told to a service that does not answer; then its lease ends by itself.
REPORT_SECONDS = 900.0
# How long handlers may take to stop when the worker ends.
STOP_SECONDS = 25.0
# How often the worker looks whether it has lost a slot.
LOOK_SECONDS = 1.0


class Worker:
    """Takes tasks until it is told to stop. ``handlers`` are by type of job."""

    def __init__(self, settings: Settings, handlers: Mapping[str, Handler], log: Log, metrics: Metrics) -> None:
        self._settings = settings
        self._handlers = dict(handlers)
        self._log = log
        self._metrics = metrics
        self._service = JobService(settings)
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._running: dict[str, tuple[Task, Context]] = {}
        self._slots: list[threading.Thread] = []

    @property
    def alive(self) -> bool:
        """Whether every thread that takes tasks still does, and none is held by a handler that does not stop."""
        return all(slot.is_alive() for slot in self._slots) and not self._abandoned()

    def stop(self) -> None:
        """Take no further task. Those that run have the grace period to end."""
        self._stopping.set()

    def run(self) -> bool:
        """Take tasks until stop() is called, and return when none runs any longer.

        False: stop() was not called, but a thread that takes tasks has been lost, and only a new process has them all.
        """
        for number in range(self._settings.concurrency):
            slot = threading.Thread(target=self._take_tasks, name=f"slot-{number}", daemon=True)
            self._slots.append(slot)
            slot.start()
        self._log.info(
            "start",
            f"taking tasks of queue {self._settings.queue}: {', '.join(sorted(self._handlers))}",
            queue=self._settings.queue,
            job_types=sorted(self._handlers),
            concurrency=self._settings.concurrency,
        )
        while whole := self.alive:
            if self._stopping.wait(LOOK_SECONDS):
                break
        if not whole:
            self._log.error("slot-lost", "a slot is lost: the worker ends, so that it is restarted")
        self.stop()
        self._log.info(
            "stopping", f"taking no further task; {len(self._running)} running have {self._settings.grace:g} s"
        )
        deadline = time.monotonic() + self._settings.grace
        if not self._join(deadline):
            for _, context in self._contexts():
                context.stop(SHUTTING_DOWN)
            if not self._join(time.monotonic() + STOP_SECONDS):
                self._give_back()
        self._log.info("end", "the worker ends")
        return whole

    def _join(self, deadline: float) -> bool:
        """Wait for the slots to end. One that only waits for tasks has nothing to lose and is not waited for, nor is one
        whose handler was given up."""
        while time.monotonic() < deadline:
            if sum(slot.is_alive() for slot in self._slots) <= self._abandoned():
                return True
            time.sleep(0.02)
        return len(self._contexts()) <= self._abandoned()

    def _abandoned(self) -> int:
        """The number of handlers that were given up and still run. Each holds a slot."""
        return sum(context.abandoned for _, context in self._contexts())

    def _give_back(self) -> None:
        """Give back the tasks whose handlers do not stop; the process ends with them."""
        for task, context in self._contexts():
            context.stop(LEASE_LOST)  # whatever the handler still returns is not reported
            with contextlib.suppress(ServiceError):
                self._service.fail(task, "the worker had to end before the task did", retryable=True)
            self._log.warning("given-back", "the task did not stop in time and was given back", task=task.id)

    def _contexts(self) -> list[tuple[Task, Context]]:
        with self._lock:
            return list(self._running.values())

    def _take_tasks(self) -> None:
        backoff = Backoff()
        while not self._stopping.is_set():
            asked_at = time.monotonic()
            try:
                tasks = self._service.lease(sorted(self._handlers), self._settings.lease_wait)
            except ServiceError as error:
                self._metrics.service_answers(False)
                after = error.retry_after if isinstance(error, UnavailableError) else None
                delay = backoff.delay(after)
                say = self._log.warning if isinstance(error, UnavailableError) else self._log.error
                say("lease", f"no task could be asked for, again in {delay:.1f} s: {error}")
                self._stopping.wait(delay)
                continue
            backoff.reset()
            self._metrics.service_answers(True)
            # The lease began at some time while we waited. When it was long, only the end of the wait is near it.
            for task in tasks:
                waited = time.monotonic() - asked_at
                self._run_task(task, leased_at=asked_at if waited < task.visibility_seconds / 3 else time.monotonic())
        self._service.close()

    def _run_task(self, task: Task, leased_at: float) -> None:
        context = Context()
        with self._lock:
            self._running[task.id] = (task, context)
        began = time.monotonic()
        self._metrics.started(task.id, task.job_type, context.read_progress)
        self._log.info(
            "task",
            f"{task.job_type} task {task.id}, attempt {task.attempt}",
            task=task.id,
            job_type=task.job_type,
            attempt=task.attempt,
        )
        status = "failed"
        try:
            with Heartbeat(self._service, task, context, self._log, leased_at):
                status = self._run_and_report(task, context)
        finally:
            took = time.monotonic() - began
            self._metrics.ended(task.id, task.job_type, status, took)
            with self._lock:
                self._running.pop(task.id, None)
            self._log.info(
                "task-end",
                f"task {task.id}: {status} after {took:.3f} s",
                task=task.id,
                status=status,
                seconds=round(took, 6),
            )

    def _run_and_report(self, task: Task, context: Context) -> str:
        try:
            result = self._handle(task, context)
        except TaskStoppedError:
            return self._report_stopped(task, context)
        except TaskError as error:
            message, retryable = str(error), error.retryable
            return self._report(
                task, context, "failed", lambda: self._service.fail(task, message, retryable=retryable)
            )
        except Exception as error:  # noqa: BLE001 (whatever a handler does wrong is the task's failure)
            self._log.error("traceback", traceback.format_exc(), task=task.id)
            message = f"{type(error).__name__}: {error}"
            return self._report(task, context, "failed", lambda: self._service.fail(task, message, retryable=True))
        if context.reason in (LEASE_LOST, CANCELLED, TIMED_OUT):
            return self._report_stopped(task, context)
        return self._report(task, context, "succeeded", lambda: self._service.complete(task, result))

    def _handle(self, task: Task, context: Context) -> Mapping[str, Any]:
        handler = self._handlers.get(task.job_type)
        if handler is None:
            known = ", ".join(sorted(self._handlers))
            raise TaskError(f"job_type {task.job_type!r} is none of this worker's: {known}", retryable=False)
        result = handler(task, context)
        if not isinstance(result, Mapping):
            raise TaskError(f"the handler returned {type(result).__name__}, not an object", retryable=False)
        try:
            json.dumps(result, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise TaskError(f"the result cannot be written as JSON: {error}", retryable=False) from error
        return result

    def _report_stopped(self, task: Task, context: Context) -> str:
        if context.reason == TIMED_OUT:
            message = f"timed out after {task.timeout_seconds:g} s"
            return self._report(task, context, "failed", lambda: self._service.fail(task, message, retryable=True))
        if context.reason == SHUTTING_DOWN:
            message = "the worker had to end before the task did"
            return self._report(task, context, "returned", lambda: self._service.fail(task, message, retryable=True))
        return "cancelled" if context.reason == CANCELLED else "lost"

    def _report(self, task: Task, context: Context, status: str, say: Any) -> str:
        """Say how a task ended, again and again while the service does not answer."""
        backoff, until = Backoff(), time.monotonic() + REPORT_SECONDS
        while context.reason not in (LEASE_LOST, CANCELLED):
            try:
                say()
                return status
            except LeaseLostError as error:
                self._log.warning("lease-lost", f"the result is thrown away: {error}", task=task.id)
                return "lost"
            except RejectedError as error:
                if error.status in (401, 403):  # a token may be replaced meanwhile
                    problem: ServiceError = error
                elif status == "succeeded":
                    return self._refused(task, context, error)
                else:
                    self._log.error("report", f"the end of the task is refused: {error}", task=task.id)
                    return "failed"
            except UnavailableError as error:
                problem = error
            if time.monotonic() > until:
                break
            self._log.warning("report", f"the end of the task could not be reported yet: {problem}", task=task.id)
            # The context of a task that has to end is over, so that waiting for it would not wait.
            pause = time.sleep if context.stopped else context.wait
            pause(backoff.delay(getattr(problem, "retry_after", None)))
        return "cancelled" if context.reason == CANCELLED else "lost"

    def _refused(self, task: Task, context: Context, error: RejectedError) -> str:
        """The service does not take the result, as when it is too large: no other try can help."""
        message = f"the job service refused the result: {error}"
        return self._report(task, context, "failed", lambda: self._service.fail(task, message, retryable=False))
