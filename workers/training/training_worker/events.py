"""Event files for TensorBoard, written without TensorBoard: the package is in neither Debian nor PyTorch.

A file is a sequence of TFRecords (length, its checksum, data, its checksum), each an Event in protobuf's wire format.
Field numbers are those of tensorflow/core/util/event.proto and tensorflow/core/framework/summary.proto.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from training_worker.logs import Log

_MASK_DELTA = 0xA282EAD8
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class EventWriter:
    """Appends the metrics of a training to an event file of its own below ``directory``.

    ``directory`` None writes nothing. Training does not end for a file that cannot be written: it is logged, once.
    """

    def __init__(self, directory: Path | None, log: Log, step: int = 0) -> None:
        self._log = log
        self._file: BinaryIO | None = None
        if directory is None:
            return
        try:
            directory.mkdir(parents=True, exist_ok=True)
            name = f"events.out.tfevents.{time.time_ns() // 1000:019d}.{socket.gethostname()}.{os.getpid()}"
            self._file = open(directory / name, "xb")  # noqa: SIM115 (it is open as long as the training runs)
        except OSError as error:
            self._give_up(error)
        self._append(_text(3, "brain.Event:2"))
        # A training that resumes does the steps after its checkpoint again: those that are there are dropped.
        self._append(_number(2, step) + _message(7, _number(1, 1)))

    def scalars(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write the values of ``metrics`` after ``step`` optimizer steps."""
        values = b"".join(_message(1, _text(1, tag) + _float(2, value)) for tag, value in metrics.items())
        self._append(_number(2, step) + _message(5, values))

    def _append(self, fields: bytes) -> None:
        if self._file is None:
            return
        try:
            self._file.write(record(_double(1, time.time()) + fields))
            self._file.flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self._file = None
        self._log.warning("events", f"no more event files for TensorBoard: {error}")


def record(data: bytes) -> bytes:
    """``data`` as a TFRecord."""
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc(length)) + data + struct.pack("<I", masked_crc(data))


def records(data: bytes) -> Iterator[bytes]:
    """The records in ``data``, up to the first that is incomplete or whose checksums are wrong."""
    while len(data) >= 12:
        (length,), (crc,) = struct.unpack("<Q", data[:8]), struct.unpack("<I", data[8:12])
        end = 12 + length + 4
        if crc != masked_crc(data[:8]) or len(data) < end:
            return
        content = data[12 : end - 4]
        if struct.unpack("<I", data[end - 4 : end])[0] != masked_crc(content):
            return
        yield content
        data = data[end:]


def fields(data: bytes) -> Iterator[tuple[int, int | float | bytes]]:
    """The fields of a protobuf message: numbers and values. Fixed-size fields are taken for floating-point numbers."""
    position = 0
    while position < len(data):
        key, position = _read_varint(data, position)
        number, kind = key >> 3, key & 7
        value: int | float | bytes
        if kind == _VARINT:
            value, position = _read_varint(data, position)
        elif kind == _FIXED64:
            (value,), position = struct.unpack_from("<d", data, position), position + 8
        elif kind == _FIXED32:
            (value,), position = struct.unpack_from("<f", data, position), position + 4
        elif kind == _BYTES:
            length, position = _read_varint(data, position)
            value, position = data[position : position + length], position + length
        else:
            raise ValueError(f"field {number} has the unknown wire type {kind}")
        yield number, value


def masked_crc(data: bytes) -> int:
    """The checksum of a TFRecord: CRC-32C, rotated, so that the checksum of data with checksums in them is sound."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli) as in RFC 3720."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _table()


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3 | _VARINT) + _varint(value)


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | _FIXED64) + struct.pack("<d", value)


def _float(field: int, value: float) -> bytes:
    return _varint(field << 3 | _FIXED32) + struct.pack("<f", value)


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | _BYTES) + _varint(len(content)) + content


def _text(field: int, value: str) -> bytes:
    return _message(field, value.encode())
