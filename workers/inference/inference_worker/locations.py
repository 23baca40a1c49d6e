"""Reads and writes what a URI or a path below WORK_DIR names, in a stream: no file is in memory as a whole.

Schemes: ``s3://bucket/key``, ``https://host/path`` (read only), and a plain path.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from pool_worker.places import inside_work_dir

from inference_worker import access
from inference_worker.access import Access
from inference_worker.errors import LocationError


class Stream(Protocol):
    """Bytes of a location, one after the other."""

    def read(self, size: int, /) -> bytes:
        """At most ``size`` bytes; empty at the end."""

    def close(self) -> None:
        """Let go of the connection or file."""


@dataclass(frozen=True)
class Source:
    """A location that is open for reading."""

    stream: Stream
    size: int | None  # bytes, where the server says so
    version: str | None  # changes with the content; None: the server says nothing of the kind


class Sink(Protocol):
    """A location that is open for writing. It is there once it is complete, never a part of it."""

    def write(self, data: bytes, /) -> None:
        """Take more bytes. Raises LocationError."""

    def commit(self) -> None:
        """Make all that was written visible at once, in place of what was there. Raises LocationError."""

    def abort(self) -> None:
        """Throw away what was written; after commit it does nothing. Never raises."""


class Location(Protocol):
    """One place."""

    name: str

    def open(self) -> Source:
        """Open it for reading. Raises LocationError."""

    def create(self) -> Sink:
        """Open it for writing. Raises LocationError."""


def find(name: str, allowed: Access) -> Location:
    """The location of that name. Raises LocationError when it has a wrong form or may not be used."""
    if not access.is_uri(name):
        from inference_worker.location_path import PathLocation

        try:
            return PathLocation(name, inside_work_dir(name))
        except ValueError as error:
            raise LocationError(f"{error}, or a URI that begins with s3:// or https://") from error
    uri = access.parse(name)
    allowed.check(uri)
    if not uri.path or uri.path.endswith("/"):
        raise LocationError(f"{name} names no object: it ends with / or with the host")
    # What a scheme needs is loaded when one is used: other tasks start faster without.
    if uri.scheme == "s3":
        from inference_worker.location_s3 import S3Location

        return S3Location(uri)
    from inference_worker.location_https import HttpsLocation

    return HttpsLocation(uri, allowed)


@contextlib.contextmanager
def reading(location: Location) -> Iterator[Source]:
    """The open location, closed in the end. A stream that ends before its size raises LocationError."""
    source = location.open()
    try:
        whole = _Whole(location.name, source)
        yield Source(whole, source.size, source.version)
    finally:
        source.stream.close()


@contextlib.contextmanager
def writing(sink: Sink) -> Iterator[Sink]:
    """The sink. Without commit() nothing is left of what was written."""
    try:
        yield sink
    finally:
        sink.abort()


class Lines(io.RawIOBase):
    """A stream as io.BufferedReader takes it, for ``readline``."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill ``buffer`` as far as one read does."""
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class _Whole:
    """Counts the bytes of a stream: a connection that ends early looks like the end of the file otherwise."""

    def __init__(self, name: str, source: Source) -> None:
        self._name = name
        self._source = source
        self._seen = 0

    def read(self, size: int, /) -> bytes:
        data = self._source.stream.read(size)
        self._seen += len(data)
        if not data and size and self._source.size is not None and self._seen != self._source.size:
            raise LocationError(f"{self._name} ended after {self._seen} of {self._source.size} bytes", retryable=True)
        return data

    def close(self) -> None:
        self._source.stream.close()
