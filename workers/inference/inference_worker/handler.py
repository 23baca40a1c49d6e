"""The tasks of the job types inference and evaluation."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from pool_worker.errors import ConfigError
from pool_worker.fields import Fields
from pool_worker.places import inside_work_dir
from pool_worker.tasks import Context, Task

from inference_worker import model
from inference_worker.model import Classifier

MAX_IMAGES = 2000
CHECKPOINT_MODELS = ("cnn", "mlp", "resnet-tiny")


def infer(task: Task, context: Context) -> Mapping[str, Any]:
    """Classify the images of ``config.inputs``, or the bundled ones that ``config.indices`` names."""
    fields = Fields(task.config)
    chosen = _model(fields)
    batch_size = fields.integer("batch_size", 64, minimum=1, maximum=1024)
    with_probabilities = fields.boolean("probabilities", True)
    images, labels = _images(fields)
    fields.finish()
    classifier = _load(chosen)
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
        "latency_ms": _latency(latencies),
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
    chosen = _model(fields)
    batch_size = fields.integer("batch_size", 64, minimum=1, maximum=1024)
    fields.text("dataset", "digits", choices=("digits",))
    fields.finish()
    classifier = _load(chosen)
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
        "latency_ms": _latency(latencies),
    }


def _model(fields: Fields) -> tuple[str, Path | None]:
    """The name of a bundled model; or the name of a network, and the checkpoint of a training that has its weights."""
    if "checkpoint" not in fields:
        fields.raw("checkpoint")
        return fields.text("model", model.bundled_names()[0], choices=model.bundled_names()), None
    path = None
    try:
        path = inside_work_dir(fields.text("checkpoint"))
    except ValueError as error:
        fields.problem("checkpoint", str(error))
    return fields.text("model", "cnn", choices=CHECKPOINT_MODELS), path


def _load(chosen: tuple[str, Path | None]) -> Classifier:
    name, checkpoint = chosen
    return model.bundled(name) if checkpoint is None else model.from_checkpoint(name, checkpoint)


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


def _latency(milliseconds: list[float]) -> dict[str, float]:
    """Figures of the time that batches took."""
    return {
        "mean": round(float(np.mean(milliseconds)), 3),
        "p50": round(float(np.percentile(milliseconds, 50)), 3),
        "p99": round(float(np.percentile(milliseconds, 99)), 3),
        "batches": len(milliseconds),
    }
