"""Errors of tasks and of the job service."""

from __future__ import annotations


class TaskError(Exception):
    """The task failed. ``retryable`` says whether another try can help."""

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.retryable = retryable


class ConfigError(TaskError):
    """The job's config is wrong, so that no other try can help. The text names the fields."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retryable=False)


class TaskStoppedError(Exception):
    """The task has to end now: it was cancelled, timed out, lost its lease, or the worker ends."""


class ServiceError(Exception):
    """The job service could not do what it was asked for."""


class UnavailableError(ServiceError):
    """It does not answer, or says that it cannot now. ``retry_after`` seconds are what it asked to wait, if it did."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class LeaseLostError(ServiceError):
    """The lease is over: the task is another's, has ended, or is gone."""


class RejectedError(ServiceError):
    """The service refuses the request with ``status``; the same request would be refused again."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class SettingsError(Exception):
    """The environment of the worker is wrong. The text names every wrong variable."""
