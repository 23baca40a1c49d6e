"""Runs a model over all lines of one location and writes what it says to another."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from pool_worker.errors import ConfigError
from pool_worker.fields import Fields
from pool_worker.tasks import Context

from inference_worker import lines, numbers, selection
from inference_worker.access import Access
from inference_worker.errors import DataError, LocationError
from inference_worker.lines import Group
from inference_worker.locations import Location, Sink, Source, reading, writing
from inference_worker.predictor import PredictionError, Predictor
from inference_worker.selection import Choice


@dataclass(frozen=True)
class Batch:
    """What to run over what."""

    choice: Choice
    source: Location
    target: Location
    batch_size: int
    postprocess: str


def read(fields: Fields, allowed: Access) -> Batch:
    """Read the config of a batch. Raises ConfigError that names every wrong field."""
    choice = selection.choose(fields, allowed)
    batch_size = fields.integer("batch_size", 64, minimum=1, maximum=1024)
    postprocess = fields.text("postprocess", "none", choices=numbers.POSTPROCESS)
    source = selection.location(fields, "input", allowed)
    target = selection.location(fields, "output", allowed)
    fields.finish()
    assert source is not None and target is not None
    return Batch(choice, source, target, batch_size, postprocess)


def run(batch: Batch, context: Context) -> dict[str, Any]:
    """Write the output, as a whole or not at all, and return the figures. Raises TaskError or TaskStoppedError."""
    predictor = batch.choice.load(context.check)
    began = time.monotonic()
    try:
        with reading(batch.source) as source:
            count, latencies = _through(batch, predictor, source, context)
    except LocationError as error:
        raise error.of("input") from error
    took = time.monotonic() - began
    return {
        "model": predictor.name,
        "device": predictor.device.type,
        "count": count,
        "bytes": source.size,
        "output": batch.target.name,
        "latency_ms": latency(latencies),
        "items_per_second": round(count / max(took, 1e-9), 1),
    }


def predict(predictor: Predictor, values: Sequence[np.ndarray], how: str, what: str) -> list[str]:
    """What the model says of each of ``values``, as JSON. Raises TaskError with ``what`` for the input."""
    try:
        outputs = predictor.run([torch.from_numpy(np.stack(values))])
    except PredictionError as error:
        raise error.of(what) from error
    if len(outputs) != 1:
        raise ConfigError(f"config.model: forward returns {len(outputs)} tensors, but a batch needs one")
    ((_, tensor),) = outputs
    if tensor.ndim == 0 or len(tensor) != len(values):
        raise ConfigError(
            f"config.model: forward returns the shape {list(tensor.shape)} for {len(values)} inputs, but its first "
            "dimension must be that of the inputs"
        )
    try:
        return numbers.rows(numbers.postprocess(how, tensor))
    except ValueError as error:
        raise DataError(f"{what}: {error}") from error


def latency(milliseconds: list[float]) -> dict[str, float]:
    """Figures of the time that batches took."""
    return {
        "mean": round(float(np.mean(milliseconds)), 3),
        "p50": round(float(np.percentile(milliseconds, 50)), 3),
        "p99": round(float(np.percentile(milliseconds, 99)), 3),
        "batches": len(milliseconds),
    }


def _through(batch: Batch, predictor: Predictor, source: Source, context: Context) -> tuple[int, list[float]]:
    count, latencies = 0, []
    try:
        target = batch.target.create()
    except LocationError as error:
        raise error.of("output") from error
    with writing(target) as sink:
        for group in lines.groups(source.stream, batch.source.name, batch.batch_size):
            context.check()
            began = time.perf_counter()
            said = predict(predictor, group.values, batch.postprocess, _where(batch, group))
            latencies.append(1000 * (time.perf_counter() - began))
            _write(sink, group, said)
            count += len(said)
            if source.size:
                context.progress(group.offset / source.size)
        if not count:
            raise DataError(f"config.input: {batch.source.name} has no lines")
        context.check()
        try:
            sink.commit()
        except LocationError as error:
            raise error.of("output") from error
    context.progress(1.0)
    return count, latencies


def _write(sink: Sink, group: Group, said: list[str]) -> None:
    text = "".join(
        f'{{"id":{identity},"output":{output}}}\n' for identity, output in zip(group.ids, said, strict=True)
    )
    try:
        sink.write(text.encode())
    except LocationError as error:
        raise error.of("output") from error


def _where(batch: Batch, group: Group) -> str:
    lines_named = f"line {group.last}" if len(group.ids) == 1 else f"lines {group.first} to {group.last}"
    return f"config.input: {lines_named} of {batch.source.name}"
