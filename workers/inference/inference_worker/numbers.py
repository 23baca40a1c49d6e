"""Nested lists of numbers, as JSON has them, and tensors."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import torch

from inference_worker.errors import DataError

POSTPROCESS = ("none", "softmax", "argmax")


def parse(text: bytes | str) -> Any:
    """The value of a JSON text. Raises ValueError, also for NaN and Infinity, which are no JSON."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def array(value: Any) -> np.ndarray:
    """A list of numbers, or nested lists of them that have one shape, as 32-bit floats. Raises ValueError."""
    try:
        found = np.asarray(value)
    except (ValueError, TypeError, OverflowError):
        raise ValueError("its lists have different lengths") from None
    if not isinstance(value, list) or found.dtype.kind not in "iuf":
        raise ValueError("must be a list of numbers, or lists of them")
    if found.size == 0:
        raise ValueError("has no numbers")
    with np.errstate(over="ignore"):
        narrow = found.astype(np.float32)
    if not np.isfinite(narrow).all():
        raise ValueError("has a number that is too large for 32 bits")
    return narrow


def postprocess(how: str, outputs: torch.Tensor) -> torch.Tensor:
    """``none``: as it is; ``softmax``: probabilities; ``argmax``: the index of the largest. Of the last dimension."""
    if how == "none":
        return outputs
    if outputs.ndim < 2:
        raise DataError(f"config.postprocess: is {how}, but the model gives one number for each input: give none")
    return torch.softmax(outputs.double(), dim=-1).float() if how == "softmax" else outputs.argmax(dim=-1)


def rows(outputs: torch.Tensor) -> list[str]:
    """Each entry of the first dimension as JSON, with as many digits as the values have. Raises ValueError."""
    if outputs.is_complex():
        raise ValueError("the model gives complex numbers, which JSON cannot have")
    if outputs.dtype == torch.float64:
        digits = "%.17g"
    elif outputs.is_floating_point():
        outputs, digits = outputs.float(), "%.9g"
    else:
        digits = "%d"
    if outputs.is_floating_point() and not bool(torch.isfinite(outputs).all()):
        raise ValueError("the model gives a number that is infinite or not a number, which JSON cannot have")
    form = _form(list(outputs.shape[1:]), digits)
    return [form % tuple(row) for row in outputs.reshape(len(outputs), math.prod(outputs.shape[1:])).tolist()]


def _form(shape: list[int], digits: str) -> str:
    """What one entry of that shape looks like, with ``digits`` for each number."""
    form = digits
    for length in reversed(shape):
        form = "[" + ",".join([form] * length) + "]"
    return form


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
