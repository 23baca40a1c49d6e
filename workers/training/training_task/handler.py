"""The tasks of the job type training."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pool_worker.errors import TaskError
from pool_worker.fields import Fields
from pool_worker.places import inside_work_dir
from pool_worker.tasks import Context, Task
from training_worker.config import FRAMEWORKS, PARALLELISMS, variable_name
from training_worker.errors import EXIT_DATA, EXIT_OK, EXIT_USAGE

POLL_SECONDS = 0.1
# The worker writes a checkpoint when it is told to stop, which it may take this long for.
STOP_SECONDS = 30.0
LOG_TAIL_LINES = 20
MAX_HYPERPARAMETERS = 64


@dataclass(frozen=True)
class Training:
    """What to train."""

    environment: Mapping[str, str]
    epochs: int
    directory: Path


def read(task: Task) -> Training:
    """The training that the task's config asks for. Raises ConfigError."""
    fields = Fields(task.config)
    framework = fields.text("framework", "pytorch", choices=tuple(name for name in FRAMEWORKS if name != "mpi"))
    epochs = fields.integer("epochs", 10, minimum=1, maximum=100_000)
    # The files of a task that is tried again on the same worker are where it goes on.
    directory = _directory(fields, f"training-{task.id}")
    environment = {
        "FRAMEWORK": framework,
        "MODEL": fields.text("model", "gbtree" if framework == "xgboost" else "mlp"),
        "DATASET": fields.text("dataset", "digits"),
        "EPOCHS": str(epochs),
        "CHECKPOINT_DIR": str(directory),
        "CHECKPOINT_FREQUENCY": str(fields.integer("checkpoint_epochs", 1, minimum=1, maximum=100_000)),
        "CHECKPOINT_RETENTION": str(fields.integer("checkpoint_retention", 2, minimum=0, maximum=1000)),
        "PET_NPROC_PER_NODE": str(fields.integer("processes", 1, minimum=1, maximum=64)),
        "PARALLELISM": fields.text("parallelism", "ddp", choices=PARALLELISMS),
    }
    hyperparameters = fields.object("hyperparameters")
    document: dict[str, Any] = {}
    for name, value in hyperparameters.items():
        if isinstance(value, (dict, list)) or value is None or variable_name(name) == "EPOCHS":
            hyperparameters.problem(
                name, "must be a string, a number, true or false; epochs is a field of config itself"
            )
        document[name] = value
    if len(document) > MAX_HYPERPARAMETERS:
        fields.problem("hyperparameters", f"has {len(document)} entries, but must have at most {MAX_HYPERPARAMETERS}")
    environment["HYPERPARAMETERS"] = json.dumps(document)
    fields.finish()
    return Training(environment, epochs, directory)


def _directory(fields: Fields, default: str) -> Path:
    try:
        return inside_work_dir(fields.text("checkpoint_dir", default))
    except ValueError as error:
        fields.problem("checkpoint_dir", str(error))
        return Path(default)


def train(task: Task, context: Context) -> Mapping[str, Any]:
    """Train in a child process until it ends or the task must, and return the metrics and where the checkpoint is."""
    training = read(task)
    try:
        training.directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TaskError(f"{training.directory} cannot be made: {error}") from error
    with tempfile.TemporaryDirectory(prefix="training-task-") as scratch:
        message = Path(scratch) / "message"
        environment = {
            **os.environ,
            **training.environment,
            "TERMINATION_MESSAGE_PATH": str(message),
            "METRICS_PORT": "0",
            "LOG_FORMAT": "json",
            "TRAINING_JOB_NAME": task.id,
        }
        for name in ("JOB_SERVICE_TOKEN", "JOB_SERVICE_TOKEN_FILE", "QUEUE", "WORKER_ID"):
            environment.pop(name, None)
        child = subprocess.Popen(
            [sys.executable, "-m", "training_worker"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # its ranks are ended with it
        )
        assert child.stdout is not None
        output = _Output(child.stdout, context, training.epochs)
        try:
            while child.poll() is None and not context.wait(POLL_SECONDS):
                pass
        finally:
            _end(child)
            output.close()
        context.check()
        report = _read_message(message)
        if child.returncode != EXIT_OK:
            why = report.get("message") or output.tail()
            raise TaskError(
                f"training ended with code {child.returncode}: {why}",
                retryable=child.returncode not in (EXIT_USAGE, EXIT_DATA),
            )
        return _result(training, report)


def _result(training: Training, report: Mapping[str, Any]) -> dict[str, Any]:
    figures = {name.removeprefix("training_"): value for name, value in report.items() if name.startswith("training_")}
    checkpoint = {
        name.removeprefix("checkpoint_"): figures.pop(name) for name in list(figures) if name.startswith("checkpoint_")
    }
    return {
        "model": training.environment["MODEL"],
        "dataset": training.environment["DATASET"],
        "framework": training.environment["FRAMEWORK"],
        "reason": report.get("reason", ""),
        "message": report.get("message", ""),
        "metrics": figures,
        "checkpoint": checkpoint,
    }


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the child and all its processes: it may write a checkpoint first."""
    if child.poll() is None:
        _signal(child, signal.SIGTERM)
        try:
            child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            _signal(child, signal.SIGKILL)
            child.wait()
    _signal(child, signal.SIGKILL)  # ranks that outlived it


def _signal(child: subprocess.Popen[bytes], signum: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # all have ended
        os.killpg(child.pid, signum)


def _read_message(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


class _Output:
    """Reads the child's log lines: they go to the worker's own output, and say how far the training is."""

    def __init__(self, stream: IO[bytes], context: Context, epochs: int) -> None:
        self._stream = stream
        self._context = context
        self._epochs = epochs
        self._lines: list[str] = []
        self._thread = threading.Thread(target=self._read, name="training-output", daemon=True)
        self._thread.start()

    def tail(self) -> str:
        """The last lines, for when there is no better explanation."""
        return "\n".join(self._lines[-LOG_TAIL_LINES:])

    def close(self) -> None:
        """Wait until all is read."""
        self._thread.join(timeout=5.0)

    def _read(self) -> None:
        for raw in self._stream:
            line = raw.decode(errors="replace").rstrip()
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
            self._lines = [*self._lines[-LOG_TAIL_LINES:], line]
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict) and entry.get("event") == "epoch" and isinstance(entry.get("epoch"), int):
                self._context.progress(entry["epoch"] / self._epochs)
