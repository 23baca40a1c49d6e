"""Checkpoints on demand: a file ``checkpoint.request`` in CHECKPOINT_DIR asks for one now.

The file may hold an id on its first line. When the checkpoint is durable, ``checkpoint.request.done`` appears with a
JSON object that repeats the id and names the checkpoint, or has ``error``; then the request file is removed. A request
that outlives its worker is served by the next one.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from training_worker.checkpoints import Checkpoint
from training_worker.logs import utc_now

REQUEST = "checkpoint.request"
DONE = "checkpoint.request.done"
POLL_SECONDS = 0.25
MAX_ID_BYTES = 256


@dataclass(frozen=True)
class Request:
    """One request. ``identity`` tells its file from one that replaces it."""

    id: str
    identity: tuple[int, int]


class RequestFile:
    """Looks for requests in ``directory``, a few times a second at most."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / REQUEST
        self._done = directory / DONE
        self._next_look = 0.0

    def pending(self) -> Request | None:
        """The request that waits, if any."""
        if time.monotonic() < self._next_look:
            return None
        self._next_look = time.monotonic() + POLL_SECONDS
        try:
            with open(self._file, "rb") as stream:
                status = os.fstat(stream.fileno())
                lines = stream.read(MAX_ID_BYTES).decode(errors="replace").splitlines()
        except OSError:
            return None
        return Request(lines[0].strip() if lines else "", (status.st_ino, status.st_mtime_ns))

    def answer(self, request: Request, checkpoint: Checkpoint | None, error: str = "") -> None:
        """Write the answer and remove the request, unless a new one has taken its place. Raises OSError."""
        document: dict[str, str | int] = {"id": request.id, "time": utc_now()}
        if checkpoint is None:
            document["error"] = error
        else:
            document |= {"checkpoint": checkpoint.path.name, "epoch": checkpoint.epoch, "step": checkpoint.step}
        temporary = self._done.with_name(f".{DONE}.tmp")
        temporary.write_text(json.dumps(document) + "\n")
        os.replace(temporary, self._done)
        try:
            status = self._file.stat()
            if (status.st_ino, status.st_mtime_ns) == request.identity:
                self._file.unlink()
        except FileNotFoundError:
            pass
