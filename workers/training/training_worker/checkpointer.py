"""When checkpoints of a training are taken, and where a training resumes.

Only rank 0 touches the disk: it reads a checkpoint and gives it to the others, and what it writes holds for all ranks,
since they are equal after every step.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any, Protocol

from training_worker import checkpoints
from training_worker.checkpoint_request import Request, RequestFile
from training_worker.checkpoints import Checkpoint, CheckpointDirectory
from training_worker.config import Config
from training_worker.errors import CheckpointWriteError, DataError
from training_worker.logs import Log
from training_worker.position import Position, check_manifest, manifest
from training_worker.progress import CheckpointReport, Progress
from training_worker.ranks import Sharing


class State(Protocol):
    """What is saved: a position and a file of the framework."""

    position: Position
    file: str
    framework: str
    framework_version: str

    def dump(self, stream: Any) -> None:
        """Write the file."""

    def load(self, data: bytes) -> None:
        """Take over a file. Raises DataError."""


class Checkpointer:
    """Takes and restores the checkpoints of one job. Without CHECKPOINT_DIR, and on other ranks, it saves nothing."""

    def __init__(self, config: Config, ranks: Sharing, progress: Progress, log: Log) -> None:
        self._config = config
        self._ranks = ranks
        self._progress = progress
        self._log = log
        self._directory: CheckpointDirectory | None = None
        self._requests: RequestFile | None = None
        self._restored_from: Path | None = None
        self._saved: Checkpoint | None = None
        self._last_attempt = time.monotonic()
        self._request: Request | None = None
        self._late = False

    @property
    def saved_step(self) -> int | None:
        """Step of the newest checkpoint in CHECKPOINT_DIR that this run knows of."""
        return self._saved.step if self._saved else None

    def restore(self, state: State) -> None:
        """Take over the newest valid checkpoint, else that of RESUME_FROM, on every rank.

        Raises DataError, on every rank, when RESUME_FROM has none or the checkpoint does not fit.
        """
        header, payload = self._ranks.share(lambda: self._find(state))
        if not header:
            self._progress.update(restored_step=0)
            return
        state.load(payload)
        position = state.position
        if not header["own"]:
            position.outcome = position.outcome_message = ""
        self._progress.update(restored_step=position.step)
        self._log.info(
            "restored",
            f"restored at epoch {position.epoch} step {position.step} from {header['path']}",
            epoch=position.epoch,
            step=position.step,
            path=header["path"],
        )
        if position.seed != self._config.hyperparameters.seed:
            self._log.warning("seed", f"going on with seed {position.seed} of the checkpoint")

    def due(self) -> bool:
        """Whether after_step() will take a checkpoint, because one is asked for or due by time."""
        if self._directory is None:
            return False
        self._request = self._requests.pending() if self._requests else None
        interval = self._config.checkpoints.every_seconds
        self._late = bool(interval) and time.monotonic() - self._last_attempt >= interval
        return self._request is not None or self._late

    def after_step(self, state: State) -> None:
        """Take the checkpoint that due() has found. Training goes on when that fails."""
        request, late = self._request, self._late
        self._request, self._late = None, False
        if request is not None:
            self._serve(request, state)
        elif late:
            with contextlib.suppress(CheckpointWriteError):
                self.save(state)

    def save(self, state: State) -> Checkpoint | None:
        """Take a checkpoint, unless there is one of this position already. Raises CheckpointWriteError."""
        if self._directory is None:
            return None
        self._last_attempt = time.monotonic()
        position = state.position
        in_epoch = position.offset > 0
        name = checkpoints.step_name(position.step) if in_epoch else checkpoints.epoch_name(position.epoch)
        if self._saved and self._saved.path.name == name:
            return self._saved
        started = time.monotonic()
        document = manifest(
            self._config, position, self._ranks.world_size, state.framework, state.framework_version
        )
        try:
            saved = self._directory.save(name, {state.file: state.dump}, document)
        except CheckpointWriteError as error:
            self._progress.update(checkpoint_failures=self._progress.read().checkpoint_failures + 1)
            self._log.warning("checkpoint-failed", str(error))
            raise
        took = time.monotonic() - started
        self._note_saved(saved)
        self._log.info(
            "checkpoint",
            f"checkpoint {name} saved: epoch {saved.epoch} step {saved.step}, {saved.size_bytes} bytes in {took:.2f} s",
            path=str(saved.path),
            epoch=saved.epoch,
            step=saved.step,
            bytes=saved.size_bytes,
        )
        self._prune(self._directory)
        return saved

    def _find(self, state: State) -> tuple[dict[str, Any], bytes]:
        """On rank 0: the checkpoint to restore, as where it lies and what it holds; nothing when training begins."""
        settings = self._config.checkpoints
        found, own = None, True
        if settings.directory is not None:
            self._directory = CheckpointDirectory(settings.directory, settings.retention, self._log)
            self._directory.clean()
            self._requests = RequestFile(settings.directory)
            found = self._directory.newest_valid()
        if found is None and settings.resume_from:
            own = False
            if "://" in settings.resume_from:
                raise DataError(f"RESUME_FROM {settings.resume_from}: must be a directory, not a URI")
            found = checkpoints.find_to_resume(
                Path(settings.resume_from), self._log, optional=settings.resume_optional
            )
        if found is None:
            return {}, b""
        check_manifest(self._config, found.manifest, str(found.path), state.framework)
        self._restored_from = found.path
        if own:
            self._note_saved(found)
        try:
            return {"path": str(found.path), "own": own}, (found.path / state.file).read_bytes()
        except OSError as error:
            raise DataError(f"checkpoint {found.path} cannot be read: {error}") from error

    def _serve(self, request: Request, state: State) -> None:
        saved, problem = None, ""
        try:
            saved = self.save(state)
        except CheckpointWriteError as error:
            problem = str(error)
        try:
            if self._requests:
                self._requests.answer(request, saved, problem)
        except OSError as error:
            self._log.warning("request", f"the checkpoint request could not be answered: {error}")

    def _prune(self, directory: CheckpointDirectory) -> None:
        protected = [self._restored_from] if self._restored_from else []
        try:
            removed = directory.prune(protected)
        except OSError as error:
            self._log.warning("retention", f"old checkpoints could not be deleted: {error}")
            return
        for path in removed:
            self._log.info("retention", f"checkpoint {path.name} deleted", path=str(path))

    def _note_saved(self, saved: Checkpoint) -> None:
        self._saved = saved
        self._progress.update(
            checkpoint=CheckpointReport(str(saved.path), saved.epoch, saved.step, saved.created, saved.size_bytes)
        )
