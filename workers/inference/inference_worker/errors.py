"""Errors of locations and data, and the exit codes of ``python3 -m inference_worker``."""

from __future__ import annotations

from pool_worker.errors import ConfigError, TaskError

EXIT_OK = 0
EXIT_USAGE = 64  # EX_USAGE: a setting or a field of the config is wrong; trying again cannot help
EXIT_DATA = 65  # EX_DATAERR: a line of the input is wrong; trying again cannot help
EXIT_UNAVAILABLE = 69  # EX_UNAVAILABLE: a store does not answer; trying again can help
EXIT_SOFTWARE = 70  # EX_SOFTWARE: an unexpected error
EXIT_SIGNAL_BASE = 128  # plus the signal's number: 143 after SIGTERM


class LocationError(Exception):
    """A location cannot be read or written. ``retryable`` says whether another try can help."""

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable

    def of(self, field: str) -> TaskError:
        """The same as an error of the task, which names the field of its config."""
        message = f"config.{field}: {self}"
        return TaskError(message) if self.retryable else ConfigError(message)


class DataError(TaskError):
    """The input has something wrong in it, so that no other try can help. The text names the line."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retryable=False)
