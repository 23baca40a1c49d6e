"""The termination message: the worker's last report, which outlives the container."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from training_worker.config import DEFAULT_TERMINATION_MESSAGE_PATH
from training_worker.logs import Log, redact
from training_worker.progress import Report

MAX_BYTES = 4096
MAX_TEXT_BYTES = 1024


def compose(reason: str, message: str, report: Report | None = None) -> str:
    """The message as JSON of at most 4096 bytes: keys are the names of the metrics, plus reason and message.

    Numbers that are not finite are left out, since JSON has none.
    """
    document: dict[str, Any] = {"reason": reason, "message": _shorten(redact(message))}
    if report is not None:
        document = {**_figures(report), **document}
    text = _encode(document)
    for dispensable in ("training_metrics", "message", "training_checkpoint_path"):
        if len(text.encode()) <= MAX_BYTES:
            break
        document.pop(dispensable, None)
        text = _encode(document)
    return text


def write(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` in place, since the file is a mount point inside a container.

    The default path is written only where the container runtime made it. Raises OSError.
    """
    if str(path) == DEFAULT_TERMINATION_MESSAGE_PATH and not path.exists():
        return
    path.write_text(text)


class MessageFile:
    """The termination message of a replica whose ranks come and go."""

    def __init__(self, path: Path, log: Log) -> None:
        self._path = path
        self._log = log

    def clear(self) -> None:
        """Forget what ranks said that have ended, so that it is not taken for the last words of later ones."""
        self._write("")

    def write(self, reason: str, message: str) -> None:
        """Say why the replica ends."""
        self._write(compose(reason, message))

    def _write(self, text: str) -> None:
        try:
            write(self._path, text)
        except OSError as error:
            self._log.warning("termination-message", f"the termination message could not be written: {error}")


def _figures(report: Report) -> dict[str, Any]:
    saved = report.checkpoint
    figures: dict[str, Any] = {
        "training_epoch": report.epoch,
        "training_epochs": report.epochs,
        "training_progress_ratio": report.progress_ratio,
        "training_step": report.step,
        "training_loss": report.loss,
        "training_accuracy": report.accuracy,
        "training_metrics": {name: value for name, value in report.metrics.items() if math.isfinite(value)},
        "training_world_size": report.world_size,
        "training_restored_step": report.restored_step,
    }
    if saved is not None:
        figures |= {
            "training_checkpoint_path": saved.path,
            "training_checkpoint_epoch": saved.epoch,
            "training_checkpoint_step": saved.step,
            "training_checkpoint_size_bytes": saved.size_bytes,
            "training_checkpoint_timestamp_seconds": saved.timestamp,
        }
    return {
        key: value
        for key, value in figures.items()
        if value is not None and not (isinstance(value, float) and not math.isfinite(value))
    }


def _shorten(text: str) -> str:
    return text.encode()[:MAX_TEXT_BYTES].decode(errors="ignore")


def _encode(document: dict[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
