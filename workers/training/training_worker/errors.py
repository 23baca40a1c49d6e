"""Errors of the worker and the exit codes they end it with.

Codes follow sysexits.h, so that a failure policy can tell a wrong setting from a lost machine.
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_USAGE = 64  # EX_USAGE: a setting is wrong; trying again cannot help
EXIT_DATA = 65  # EX_DATAERR: a checkpoint or data set cannot be used; trying again cannot help
EXIT_SOFTWARE = 70  # EX_SOFTWARE: an unexpected error, or a loss that is no longer a number
EXIT_IO = 74  # EX_IOERR: the last checkpoint could not be written
EXIT_PEER_LOST = 75  # EX_TEMPFAIL: another rank is gone; a restart resumes from the newest checkpoint
EXIT_SIGNAL_BASE = 128  # plus the signal's number: 143 after SIGTERM


class WorkerError(Exception):
    """An error that ends the worker with ``exit_code`` and whose text is meant for the job's owner."""

    exit_code = EXIT_SOFTWARE
    reason = "Error"


class UsageError(WorkerError):
    """A setting in the environment is wrong."""

    exit_code = EXIT_USAGE


class DataError(WorkerError):
    """A checkpoint or a data set is missing, corrupt, or does not fit the model."""

    exit_code = EXIT_DATA


class CheckpointWriteError(WorkerError):
    """A checkpoint could not be written."""

    exit_code = EXIT_IO


class DivergedError(WorkerError):
    """The training loss is infinite or not a number."""


class PeerLostError(WorkerError):
    """Another rank ended, or could not be reached in time."""

    exit_code = EXIT_PEER_LOST
    reason = "PeerLost"


class StoppedError(WorkerError):
    """A signal asked this or another rank to stop. ``signum`` is that signal."""

    reason = "Terminated"

    def __init__(self, message: str, signum: int) -> None:
        super().__init__(message)
        self.exit_code = EXIT_SIGNAL_BASE + signum
