"""Requests and answers of the Open Inference Protocol, version 2, with tensors as JSON."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from inference_worker import numbers

DATATYPES = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "FP16": np.dtype(np.float16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
}
NAMES = {
    torch.bool: "BOOL",
    torch.uint8: "UINT8",
    torch.int8: "INT8",
    torch.int16: "INT16",
    torch.int32: "INT32",
    torch.int64: "INT64",
    torch.float16: "FP16",
    torch.bfloat16: "FP32",
    torch.float32: "FP32",
    torch.float64: "FP64",
}
MAX_INPUTS = 64


class RequestError(Exception):
    """The request is wrong. The text names the field."""


@dataclass(frozen=True)
class Request:
    """Tensors for one call. ``outputs`` are the names that the client wants; empty: all."""

    id: str | None
    tensors: list[torch.Tensor]
    outputs: list[str]


def read(body: bytes) -> Request:
    """Read a request. Raises RequestError."""
    try:
        document = numbers.parse(body)
    except ValueError as error:
        raise RequestError(f"the body is no JSON: {error}") from error
    if not isinstance(document, dict):
        raise RequestError("the body must be a JSON object")
    identity = document.get("id")
    if identity is not None and not isinstance(identity, str):
        raise RequestError("id must be a string")
    inputs = _objects(document, "inputs")
    if not inputs:
        raise RequestError(f"inputs must be a list of 1 to {MAX_INPUTS} tensors")
    outputs = [entry.get("name") for entry in _objects(document, "outputs")]
    if not all(isinstance(name, str) for name in outputs):
        raise RequestError("outputs: each must have a name")
    return Request(identity, [_tensor(entry, f"inputs[{i}]") for i, entry in enumerate(inputs)], outputs)


def write(model: str, request: Request, outputs: list[tuple[str, torch.Tensor]]) -> bytes:
    """The answer to a request. Raises RequestError when it asks for an output that the model does not have."""
    known = dict(outputs)
    if missing := [name for name in request.outputs if name not in known]:
        raise RequestError(f"outputs: the model has no {missing[0]!r}, but {', '.join(known)}")
    head = {"model_name": model} | ({} if request.id is None else {"id": request.id})
    written = ",".join(_output(name, known[name]) for name in request.outputs or known)
    return f'{json.dumps(head)[:-1]},"outputs":[{written}]}}'.encode()


def _objects(document: dict[str, Any], name: str) -> list[dict[str, Any]]:
    value = document.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > MAX_INPUTS or not all(isinstance(entry, dict) for entry in value):
        raise RequestError(f"{name} must be a list of 1 to {MAX_INPUTS} tensors")
    return value


def _tensor(entry: dict[str, Any], where: str) -> torch.Tensor:
    if not isinstance(entry.get("name"), str):
        raise RequestError(f"{where}.name must be a string")
    datatype = entry.get("datatype")
    wanted = DATATYPES.get(datatype) if isinstance(datatype, str) else None
    if wanted is None:
        raise RequestError(f"{where}.datatype is {datatype!r}, but must be one of {', '.join(DATATYPES)}")
    shape = _shape(entry.get("shape"), where)
    data = entry.get("data")
    if not isinstance(data, list):
        raise RequestError(f"{where}.data must be a list; binary data is not supported")
    return torch.from_numpy(_array(data, wanted, where, math.prod(shape)).reshape(shape))


def _shape(value: Any, where: str) -> list[int]:
    whole = isinstance(value, list) and all(type(length) is int and 0 < length < 2**31 for length in value)
    if not whole or not 1 <= len(value) <= 16:
        raise RequestError(f"{where}.shape must be a list of whole numbers from 1, the first for the batch")
    return value


def _array(data: list[Any], wanted: np.dtype[Any], where: str, size: int) -> np.ndarray:
    try:
        found = np.asarray(data)
    except (ValueError, TypeError, OverflowError):
        raise RequestError(f"{where}.data has lists of different lengths") from None
    if found.size != size:
        raise RequestError(f"{where}.data has {found.size} values, but the shape needs {size}")
    kinds = {"b": "b", "f": "iuf"}.get(wanted.kind, "iu")
    if found.dtype.kind not in kinds:
        what = {"b": "true and false", "f": "numbers"}.get(wanted.kind, "whole numbers")
        raise RequestError(f"{where}.data must have only {what}")
    if wanted.kind in "iu" and found.dtype != wanted:
        bounds = np.iinfo(wanted)
        if found.min() < bounds.min or found.max() > bounds.max:
            raise RequestError(f"{where}.data has numbers outside {bounds.min} to {bounds.max}")
    with np.errstate(over="ignore"):
        narrow = found.astype(wanted, copy=False)
    if wanted.kind == "f" and not np.isfinite(narrow).all():
        raise RequestError(f"{where}.data has numbers that are too large for the datatype")
    return narrow


def _output(name: str, tensor: torch.Tensor) -> str:
    datatype = NAMES.get(tensor.dtype)
    if datatype is None:
        raise ValueError(f"the model gives {tensor.dtype}, which the protocol does not have")
    flat = tensor.reshape(-1)
    if tensor.dtype == torch.bool:
        data = json.dumps(flat.tolist())
    else:
        (data,) = numbers.rows(flat.unsqueeze(0))
    shape = json.dumps(list(tensor.shape))
    return f'{{"name":{json.dumps(name)},"shape":{shape},"datatype":"{datatype}","data":{data}}}'
