"""Checkpoints on disk: directories that appear complete or not at all.

A checkpoint is a directory ``checkpoint-epoch-<n>`` or ``checkpoint-step-<n>`` with ``manifest.json``, which lists the
other files with size and SHA-256. It is written under a hidden name beside its final place, flushed to the disk, and
renamed. Readers therefore never see a checkpoint that is still being written, and a crash leaves only hidden names.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from training_worker.errors import CheckpointWriteError, DataError
from training_worker.logs import Log, utc_now

MANIFEST = "manifest.json"
MANIFEST_VERSION = 1
NAME_PATTERN = re.compile(r"checkpoint-(epoch|step)-\d+")
WRITING_PREFIX = ".writing-"
DELETING_PREFIX = ".deleting-"
SEARCH_DEPTH = 2

FileWriter = Callable[[BinaryIO], object]


class InvalidCheckpointError(Exception):
    """A directory is no checkpoint, or a damaged one. The text says what is wrong with it."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose manifest could be read. ``created`` is in seconds since 1970."""

    path: Path
    epoch: int
    step: int
    created: float
    size_bytes: int
    manifest: Mapping[str, Any]

    @property
    def order(self) -> tuple[int, int, float]:
        """Sorting by this puts the newest checkpoint last."""
        return self.step, self.epoch, self.created


def epoch_name(epochs: int) -> str:
    """Name of the checkpoint taken when ``epochs`` epochs are done."""
    return f"checkpoint-epoch-{epochs}"


def step_name(step: int) -> str:
    """Name of the checkpoint taken after optimizer step ``step``, within an epoch."""
    return f"checkpoint-step-{step}"


def read(path: Path) -> Checkpoint:
    """The checkpoint at ``path``, checked as far as sizes tell. Raises InvalidCheckpointError."""
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
        files = {str(entry["path"]): int(entry["size"]) for entry in manifest["files"]}
        created = datetime.fromisoformat(str(manifest["createdTime"]).replace("Z", "+00:00")).timestamp()
        epoch, step = int(manifest["epoch"]), int(manifest["step"])
    except FileNotFoundError as error:
        raise InvalidCheckpointError(f"it has no {MANIFEST}") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidCheckpointError(f"its {MANIFEST} cannot be read: {error!r}") from error
    for name, size in files.items():
        file = path / name
        if file.is_absolute() and not file.is_relative_to(path) or ".." in Path(name).parts:
            raise InvalidCheckpointError(f"its {MANIFEST} names {name!r}, which lies outside")
        try:
            found = file.stat().st_size
        except OSError as error:
            raise InvalidCheckpointError(f"{name} is missing") from error
        if found != size:
            raise InvalidCheckpointError(f"{name} has {found} bytes instead of {size}")
    return Checkpoint(path, epoch, step, created, sum(files.values()), manifest)


def verify(path: Path) -> Checkpoint:
    """The checkpoint at ``path`` after reading and hashing every file. Raises InvalidCheckpointError."""
    checkpoint = read(path)
    for entry in checkpoint.manifest["files"]:
        try:
            digest = _sha256(path / entry["path"])
        except OSError as error:
            raise InvalidCheckpointError(f"{entry['path']} cannot be read: {error}") from error
        if digest != entry.get("sha256"):
            raise InvalidCheckpointError(f"{entry['path']} does not have the SHA-256 of its {MANIFEST}")
    return checkpoint


def newest_valid(directories: Iterable[Path], log: Log) -> Checkpoint | None:
    """The newest checkpoint directly in one of ``directories`` that passes verify(); damaged ones are logged."""
    for candidate in _candidates(directories, log):
        try:
            return verify(candidate.path)
        except InvalidCheckpointError as error:
            _log_skipped(log, candidate.path, error)
    return None


def find_to_resume(path: Path, log: Log, *, optional: bool = False) -> Checkpoint | None:
    """The checkpoint at ``path``, or the newest valid one at most two levels below it.

    Without any it is None when ``optional``. Raises DataError otherwise, and when ``path`` itself is a damaged checkpoint.
    """
    if not path.is_dir():
        if optional:
            return None
        raise DataError(f"RESUME_FROM {path}: there is no such directory")
    if (path / MANIFEST).exists() or NAME_PATTERN.fullmatch(path.name):
        try:
            return verify(path)
        except InvalidCheckpointError as error:
            raise DataError(f"RESUME_FROM {path}: this checkpoint is not valid: {error}") from error
    found = newest_valid(_directories_to(path, SEARCH_DEPTH - 1), log)
    if found is None and not optional:
        raise DataError(f"RESUME_FROM {path}: there is no valid checkpoint in it")
    return found


class CheckpointDirectory:
    """The directory in which one job keeps its checkpoints. Only one process may write to it at a time."""

    def __init__(self, path: Path, retention: int, log: Log) -> None:
        """``retention`` newest checkpoints are kept, all of them with 0. ``path`` is made when it is missing."""
        self.path = path
        self._retention = retention
        self._log = log
        self._written: Path | None = None
        try:
            path.mkdir(parents=True, exist_ok=True)
            if not os.access(path, os.W_OK | os.X_OK):
                raise PermissionError("it is not writable for this user")
        except OSError as error:
            raise DataError(f"CHECKPOINT_DIR {path} cannot be used: {error}") from error

    def clean(self) -> None:
        """Remove what a predecessor left half written or half deleted.

        One that is not dead yet cannot make it visible any more: it is renamed before the first file goes.
        """
        for leftover in self.path.glob(WRITING_PREFIX + "*"):
            with contextlib.suppress(OSError):
                os.rename(leftover, leftover.with_name(DELETING_PREFIX + leftover.name.removeprefix(WRITING_PREFIX)))
        for leftover in self.path.glob(DELETING_PREFIX + "*"):
            shutil.rmtree(leftover, ignore_errors=True)

    def newest_valid(self) -> Checkpoint | None:
        """The newest checkpoint that passes verification, or None."""
        return newest_valid([self.path], self._log)

    def save(self, name: str, files: Mapping[str, FileWriter], manifest: Mapping[str, Any]) -> Checkpoint:
        """Write a checkpoint ``name`` and return it once it is durable.

        ``manifest`` must have ``epoch`` and ``step``; version, name, createdTime, files and sizeBytes are added. A
        damaged checkpoint of the same name is replaced. Raises CheckpointWriteError; nothing is then visible.
        """
        writing = self.path / f"{WRITING_PREFIX}{name}-{os.urandom(4).hex()}"  # a predecessor may be at the same one
        target = self.path / name
        try:
            writing.mkdir(parents=True)
            entries = [_write_file(writing / file, write) for file, write in files.items()]
            document = {
                "version": MANIFEST_VERSION,
                "name": name,
                "createdTime": utc_now(),
                **manifest,
                "sizeBytes": sum(entry["size"] for entry in entries),
                "files": entries,
            }
            text = json.dumps(document, indent=2, allow_nan=False).encode()
            _write_file(writing / MANIFEST, lambda stream: stream.write(text))
            _sync_directory(writing)
            self._put(writing, target)
            _sync_directory(self.path)
            self._written = target
            return read(target)
        except (OSError, ValueError, RuntimeError, InvalidCheckpointError) as error:
            shutil.rmtree(writing, ignore_errors=True)
            raise CheckpointWriteError(f"checkpoint {target} could not be written: {error}") from error

    def prune(self, protected: Collection[Path] = ()) -> list[Path]:
        """Delete all but the newest valid checkpoints and return what was deleted.

        Never deleted are the newest valid checkpoint and those in ``protected``. Damaged checkpoints do not count,
        and go once they are older than everything that is kept.
        """
        if self._retention <= 0:
            return []
        valid: list[Checkpoint] = []
        damaged: list[Path] = []
        for path in _checkpoint_paths(self.path):
            try:
                valid.append(read(path))
            except InvalidCheckpointError:
                damaged.append(path)
        valid.sort(key=lambda checkpoint: checkpoint.order, reverse=True)
        kept, surplus = self._split_kept(valid)
        doomed = [checkpoint.path for checkpoint in surplus]
        if kept:
            oldest = min(_modified(checkpoint.path) for checkpoint in kept)
            doomed += [path for path in damaged if _modified(path) < oldest]
        spared = {path.resolve() for path in protected}
        doomed = [path for path in doomed if path.resolve() not in spared]
        return [path for path in doomed if self._discard(path)]

    def _split_kept(self, valid: list[Checkpoint]) -> tuple[list[Checkpoint], list[Checkpoint]]:
        """Split newest-first checkpoints into those to keep and the rest.

        Sizes alone do not prove a checkpoint whole, so the newest that truly verifies is kept even beyond the number.
        """
        kept, surplus = valid[: self._retention], valid[self._retention :]
        if any(self._is_whole(checkpoint.path) for checkpoint in kept):
            return kept, surplus
        for position, checkpoint in enumerate(surplus):
            if self._is_whole(checkpoint.path):
                return [*kept, checkpoint], surplus[:position] + surplus[position + 1 :]
        return kept, surplus

    def _is_whole(self, path: Path) -> bool:
        """Whether ``path`` verifies; what this process wrote last was hashed when it was written."""
        if path == self._written:
            return True
        try:
            verify(path)
        except InvalidCheckpointError:
            return False
        return True

    def _put(self, writing: Path, target: Path) -> None:
        """Make ``writing`` visible as ``target``, in the place of what is there."""
        replaced = self._hide(target)
        try:
            os.rename(writing, target)
        except OSError:  # a successor has removed it, and what is there may be the successor's
            if replaced:
                os.rename(replaced, target)
            raise
        if replaced:
            shutil.rmtree(replaced, ignore_errors=True)

    def _discard(self, path: Path) -> bool:
        """Make ``path`` vanish at once, then free its space; False when it was gone: the agent deletes old ones, too."""
        hidden = self._hide(path)
        if hidden:
            shutil.rmtree(hidden, ignore_errors=True)
        return hidden is not None

    def _hide(self, path: Path) -> Path | None:
        """Rename ``path`` so that no reader takes it for a checkpoint; None when it does not exist."""
        hidden = path.with_name(DELETING_PREFIX + path.name)
        shutil.rmtree(hidden, ignore_errors=True)
        try:
            os.rename(path, hidden)
        except FileNotFoundError:
            return None
        return hidden


def _candidates(directories: Iterable[Path], log: Log) -> list[Checkpoint]:
    found = []
    for directory in directories:
        for path in _checkpoint_paths(directory):
            try:
                found.append(read(path))
            except InvalidCheckpointError as error:
                _log_skipped(log, path, error)
    return sorted(found, key=lambda checkpoint: checkpoint.order, reverse=True)


def _checkpoint_paths(directory: Path) -> list[Path]:
    try:
        entries = list(directory.iterdir())
    except OSError:
        return []
    return sorted(entry for entry in entries if NAME_PATTERN.fullmatch(entry.name) and entry.is_dir())


def _directories_to(path: Path, depth: int) -> Iterator[Path]:
    """``path`` and the visible directories below it that are no checkpoints, ``depth`` levels down."""
    yield path
    if depth == 0:
        return
    try:
        entries = sorted(path.iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.is_dir() and not entry.name.startswith(".") and not NAME_PATTERN.fullmatch(entry.name):
            yield from _directories_to(entry, depth - 1)


def _log_skipped(log: Log, path: Path, error: Exception) -> None:
    """Log why a checkpoint is passed over, unless it was deleted while it was read."""
    if path.exists():
        log.warning("checkpoint-skipped", f"checkpoint {path} is skipped: {error}", path=str(path))


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return float("inf")


def _write_file(path: Path, write: FileWriter) -> dict[str, Any]:
    """Write and flush one file; the result is its entry in the manifest."""
    with open(path, "wb") as stream:
        write(stream)
        stream.flush()
        os.fsync(stream.fileno())
    return {"path": path.name, "size": path.stat().st_size, "sha256": _sha256(path)}


def _sha256(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
