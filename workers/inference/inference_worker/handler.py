"""The tasks of the job types inference and evaluation."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from pool_worker.errors import ConfigError
from pool_worker.fields import Fields
from pool_worker.tasks import Context, Task

from inference_worker import access, batch, model, numbers, selection
from inference_worker.access import Access
from inference_worker.errors import LocationError
from inference_worker.model import Classifier

MAX_IMAGES = 2000


def infer(task: Task, context: Context) -> Mapping[str, Any]:
    """Run a model over ``config.inputs``, over bundled images, or from ``config.input`` to ``config.output``."""
    fields = Fields(task.config)
    try:
        allowed = access.pooled(os.environ)
    except LocationError as error:
        raise ConfigError(str(error)) from error
    if "input" in fields or "output" in fields:
        return batch.run(batch.read(fields, allowed), context)
    if selection.by_location(fields.raw("model"), allowed):
        return _predict(fields, allowed, context)
    return _classify_images(fields, context)


def _classify_images(fields: Fields, context: Context) -> Mapping[str, Any]:
    """Classify the images of ``config.inputs``, or the bundled ones that ``config.indices`` names."""
    chosen = selection.of_the_worker(fields)
    batch_size = fields.integer("batch_size", 64, minimum=1, maximum=1024)
    with_probabilities = fields.boolean("probabilities", True)
    images, labels = _images(fields)
    fields.finish()
    classifier = chosen.classifier()
    began = time.monotonic()
    probabilities, latencies = _classify(classifier, images, batch_size, context)
    took = time.monotonic() - began
    predictions = probabilities.argmax(axis=1)
    result: dict[str, Any] = {
        "model": classifier.name,
        "device": classifier.device.type,
        "count": len(images),
        "predictions": predictions.tolist(),
        "confidences": [round(float(value), 6) for value in probabilities.max(axis=1)],
        "latency_ms": batch.latency(latencies),
        "images_per_second": round(len(images) / max(took, 1e-9), 1),
    }
    if with_probabilities:
        result["probabilities"] = [[round(float(value), 6) for value in row] for row in probabilities]
    if labels is not None:
        result |= {"labels": labels.tolist(), "accuracy": round(float((predictions == labels).mean()), 6)}
    return result


def evaluate(task: Task, context: Context) -> Mapping[str, Any]:
    """Say how good a model is on the validation part of the bundled digits, which it has not seen."""
    fields = Fields(task.config)
    chosen = selection.of_the_worker(fields)
    batch_size = fields.integer("batch_size", 64, minimum=1, maximum=1024)
    fields.text("dataset", "digits", choices=("digits",))
    fields.finish()
    classifier = chosen.classifier()
    images, labels = model.digits()
    unseen = model.digits_validation()
    labels = labels[unseen]
    probabilities, latencies = _classify(classifier, images[unseen], batch_size, context)
    predictions = probabilities.argmax(axis=1)
    confusion = np.zeros((model.CLASSES, model.CLASSES), dtype=np.int64)
    np.add.at(confusion, (labels, predictions), 1)
    loss = -np.log(np.clip(probabilities[np.arange(len(labels)), labels], 1e-12, 1.0)).mean()
    return {
        "model": classifier.name,
        "device": classifier.device.type,
        "dataset": "digits",
        "samples": len(labels),
        "accuracy": round(float((predictions == labels).mean()), 6),
        "loss": round(float(loss), 6),
        "accuracy_by_class": [round(float(row[i] / max(1, row.sum())), 6) for i, row in enumerate(confusion)],
        "confusion": confusion.tolist(),
        "latency_ms": batch.latency(latencies),
    }


def _predict(fields: Fields, allowed: Access, context: Context) -> Mapping[str, Any]:
    """Run a model of the user's own over ``config.inputs``, which have one shape."""
    chosen = selection.choose(fields, allowed)
    batch_size = fields.integer("batch_size", 64, minimum=1, maximum=1024)
    how = fields.text("postprocess", "none", choices=numbers.POSTPROCESS)
    values = _arrays(fields)
    fields.finish()
    predictor = chosen.load(context.check)
    began, said, latencies = time.monotonic(), [], []
    for start in range(0, len(values), batch_size):
        context.check()
        some = values[start : start + batch_size]
        before = time.perf_counter()
        said += batch.predict(predictor, some, how, f"config.inputs[{start}] to [{start + len(some) - 1}]")
        latencies.append(1000 * (time.perf_counter() - before))
        context.progress((start + len(some)) / len(values))
    took = time.monotonic() - began
    return {
        "model": predictor.name,
        "device": predictor.device.type,
        "count": len(values),
        "outputs": json.loads(f"[{','.join(said)}]"),
        "latency_ms": batch.latency(latencies),
        "items_per_second": round(len(values) / max(took, 1e-9), 1),
    }


def _arrays(fields: Fields) -> list[np.ndarray]:
    values: list[np.ndarray] = []
    if fields.raw("inputs") is None:
        fields.problem("inputs", "is missing: give a list of inputs, or input and output, locations of JSON Lines")
    for i, entry in enumerate(fields.array("inputs", maximum=MAX_IMAGES) or []):
        try:
            values.append(numbers.array(entry))
        except ValueError as error:
            fields.problem(f"inputs[{i}]", str(error))
            break
        if values[i].shape != values[0].shape:
            shape = list(values[i].shape)
            fields.problem(f"inputs[{i}]", f"has the shape {shape}, but inputs[0] has {list(values[0].shape)}")
            break
    return values


def _images(fields: Fields) -> tuple[np.ndarray, np.ndarray | None]:
    """The images, and what they show where that is known."""
    inputs, indices = fields.array("inputs", maximum=MAX_IMAGES), fields.array("indices", maximum=MAX_IMAGES)
    nothing = np.zeros((0, model.SIDE, model.SIDE), dtype=np.float32)
    if (fields.raw("inputs") is None) == (fields.raw("indices") is None):
        fields.problem("inputs", "give either inputs, images of 8 x 8 numbers, or indices of bundled images")
    elif inputs is not None:
        images = [_image(fields, i, entry) for i, entry in enumerate(inputs)]
        return (np.stack(images) if all(image is not None for image in images) else nothing), None
    elif indices is not None:
        known, labels = model.digits()
        for i, index in enumerate(indices):
            if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(known):
                fields.problem(f"indices[{i}]", f"is {index!r}, but must be a whole number from 0 to {len(known) - 1}")
                return nothing, None
        return known[indices], labels[indices]
    return nothing, None


def _image(fields: Fields, i: int, entry: Any) -> np.ndarray | None:
    """One image from 64 numbers, or from 8 rows of 8."""
    try:
        image = np.asarray(entry, dtype=np.float32).reshape(model.SIDE, model.SIDE)
    except (TypeError, ValueError):
        fields.problem(f"inputs[{i}]", "must be 64 numbers, or 8 rows of 8")
        return None
    if not np.isfinite(image).all() or image.min() < 0 or image.max() > model.WHITE:
        fields.problem(f"inputs[{i}]", f"has numbers outside 0 to {model.WHITE:g}")
        return None
    return image


def _classify(
    classifier: Classifier, images: np.ndarray, batch_size: int, context: Context
) -> tuple[np.ndarray, list[float]]:
    if len(images) == 0:
        raise ConfigError("config.inputs: there are no images")
    rows, latencies = [], []
    for start in range(0, len(images), batch_size):
        context.check()
        began = time.perf_counter()
        rows.append(classifier.probabilities(images[start : start + batch_size]))
        latencies.append(1000 * (time.perf_counter() - began))
        context.progress((start + batch_size) / len(images))
    return np.concatenate(rows), latencies
