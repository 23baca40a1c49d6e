"""What the commands have in common: their config, their last words, and their exit codes."""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from pool_worker.errors import ConfigError, TaskError, TaskStoppedError
from pool_worker.fields import Fields
from pool_worker.logs import Log
from training_worker import termination
from training_worker.config import DEFAULT_TERMINATION_MESSAGE_PATH
from training_worker.signals import StopRequest

from inference_worker.errors import (
    EXIT_DATA,
    EXIT_OK,
    EXIT_SIGNAL_BASE,
    EXIT_SOFTWARE,
    EXIT_UNAVAILABLE,
    EXIT_USAGE,
    DataError,
)

MAX_MESSAGE_BYTES = 2000
# How long a command may take to stop. Kubernetes kills it after 30 seconds.
STOP_SECONDS = 20.0


class Process:
    """One run of a command. Make it in the main thread, before other threads start: it takes the stop signals."""

    def __init__(self, on_stop: Callable[[], None]) -> None:
        self.log = Log(json_lines=os.environ.get("LOG_FORMAT", "json").strip().lower() != "text")
        self._ending = threading.Lock()
        self._on_stop = on_stop
        self._stop = StopRequest(self._on_signal)

    def run(self, work: Callable[[], Mapping[str, Any]]) -> NoReturn:
        """Do ``work`` and end the process: its result is the termination message, its error the exit code."""
        try:
            result = work()
        except TaskStoppedError:
            self.end(EXIT_SIGNAL_BASE + self._stop.signum, {"message": "stopped by a signal"})
        except ConfigError as error:
            self.end(EXIT_USAGE, {"message": str(error)})
        except DataError as error:
            self.end(EXIT_DATA, {"message": str(error)})
        except TaskError as error:
            self.end(EXIT_UNAVAILABLE if error.retryable else EXIT_USAGE, {"message": str(error)})
        except Exception as error:  # noqa: BLE001 (the last resort: whatever happens is reported)
            self.log.error("traceback", traceback.format_exc())
            self.end(EXIT_SOFTWARE, {"message": f"{type(error).__name__}: {error}"})
        self.end(EXIT_OK, result)

    def end(self, code: int, last_words: Mapping[str, Any]) -> NoReturn:
        """End the process, whichever thread comes first. Threads of PyTorch are not waited for."""
        if not self._ending.acquire(blocking=False):
            threading.Event().wait()
        say = self.log.info if code in (EXIT_OK, EXIT_SIGNAL_BASE + 15, EXIT_SIGNAL_BASE + 2) else self.log.error
        message = str(last_words.get("message", "done"))
        say("end", f"exit code {code}: {message}", code=code, result=dict(last_words) if code == EXIT_OK else None)
        try:
            termination.write(_termination_log(), _encode(last_words))
        except OSError as error:
            self.log.warning("termination-log", f"the termination message could not be written: {error}")
        sys.stdout.flush()
        os._exit(code)

    def _on_signal(self, signum: int) -> None:
        self.log.info("signal", f"signal {signum} received: stopping")
        self._on_stop()
        threading.Event().wait(STOP_SECONDS)
        self.end(EXIT_SIGNAL_BASE + signum, {"message": f"a signal; it did not stop within {STOP_SECONDS:g} s"})


def config() -> Fields:
    """The fields of the variable CONFIG. Raises ConfigError."""
    text = os.environ.get("CONFIG", "").strip()
    if not text:
        raise ConfigError("CONFIG is not set: give the job a config")
    try:
        return Fields(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"CONFIG is no JSON: {error}") from error


def _termination_log() -> Path:
    return Path(os.environ.get("TERMINATION_LOG", "").strip() or DEFAULT_TERMINATION_MESSAGE_PATH)


def _encode(document: Mapping[str, Any]) -> str:
    """The JSON text, of at most 4096 bytes."""
    shortened = {
        name: value.encode()[:MAX_MESSAGE_BYTES].decode(errors="ignore") if isinstance(value, str) else value
        for name, value in document.items()
    }
    return json.dumps(shortened, separators=(",", ":"), ensure_ascii=False)
