"""Inputs of a batch as JSON Lines: a list of numbers in each line, or ``{"id": ..., "input": [...]}``."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from inference_worker import numbers
from inference_worker.errors import DataError
from inference_worker.locations import Lines, Stream

BUFFER_BYTES = 1 << 20
MAX_LINE_BYTES = 16 << 20
MAX_GROUP_BYTES = 64 << 20


@dataclass
class Group:
    """Lines that go through the model together. ``ids`` are JSON texts, ``offset`` is where the last line ends."""

    first: int
    last: int
    ids: list[str]
    values: list[np.ndarray]
    offset: int


def groups(stream: Stream, name: str, size: int) -> Iterator[Group]:
    """The lines of ``stream`` in groups of ``size``, or of fewer when they are very long. Empty lines are left out.

    All inputs have the shape of the first. Raises DataError that names the line.
    """
    reader = io.BufferedReader(Lines(stream), BUFFER_BYTES)
    shape: tuple[int, ...] | None = None
    group = Group(1, 0, [], [], 0)
    began = number = offset = 0
    while line := reader.readline(MAX_LINE_BYTES + 1):
        number += 1
        offset += len(line)
        if len(line) > MAX_LINE_BYTES:
            raise DataError(f"config.input: line {number} of {name} is longer than {MAX_LINE_BYTES} bytes")
        if line.isspace():
            continue
        try:
            identity, values = _parse(line, number)
            if shape is None:
                shape = values.shape
            elif values.shape != shape:
                raise ValueError(f"has the shape {list(values.shape)}, but the first input has {list(shape)}")
        except ValueError as error:
            raise DataError(f"config.input: line {number} of {name} is wrong: {error}") from error
        group.ids.append(identity)
        group.values.append(values)
        group.last, group.offset = number, offset
        if len(group.ids) == size or offset - began >= MAX_GROUP_BYTES:
            yield group
            began = offset
            group = Group(number + 1, number, [], [], offset)
    if group.ids:
        yield group


def _parse(line: bytes, number: int) -> tuple[str, np.ndarray]:
    """The id as JSON, and the input."""
    value: Any = numbers.parse(line)
    if not isinstance(value, dict):
        return str(number), numbers.array(value)
    if unknown := sorted(value.keys() - {"id", "input"}):
        raise ValueError(f"{unknown[0]} is unknown: known are id and input")
    if "input" not in value:
        raise ValueError("input is missing")
    try:
        values = numbers.array(value["input"])
    except ValueError as error:
        raise ValueError(f"input: {error}") from error
    return json.dumps(value.get("id", number), ensure_ascii=False), values
