"""Files below WORK_DIR."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from inference_worker.errors import LocationError
from inference_worker.locations import Sink, Source


class PathLocation:
    """A file."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self._path = path

    def open(self) -> Source:
        """Raises LocationError when there is no such file."""
        try:
            stream = open(self._path, "rb")
        except OSError as error:
            raise LocationError(f"{self.name} cannot be read: {error.strerror}") from error
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode):  # a pipe
            return Source(stream, None, None)
        return Source(stream, status.st_size, f"{status.st_mtime_ns}-{status.st_ino}")

    def create(self) -> Sink:
        """Raises LocationError when it cannot be written."""
        return _FileSink(self.name, self._path)


class _FileSink:
    """Writes beside the file and renames in the end."""

    def __init__(self, name: str, path: Path) -> None:
        self._name = name
        self._path = path
        try:
            if path.is_dir():
                raise IsADirectoryError(0, "it is a folder")
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".partial-")
        except OSError as error:
            raise self._problem(error) from error
        self._temporary: Path | None = Path(temporary)
        self._file = os.fdopen(descriptor, "wb")

    def write(self, data: bytes, /) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            raise self._problem(error) from error

    def commit(self) -> None:
        try:
            self._file.flush()
            os.fchmod(self._file.fileno(), 0o644)
            os.fsync(self._file.fileno())
            self._file.close()
            if self._temporary is not None:
                os.replace(self._temporary, self._path)
                self._temporary = None
        except OSError as error:
            raise self._problem(error) from error

    def abort(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
        if self._temporary is not None:
            with contextlib.suppress(OSError):
                self._temporary.unlink()
            self._temporary = None

    def _problem(self, error: OSError) -> LocationError:
        return LocationError(f"{self._name} cannot be written: {error.strerror or error}")
