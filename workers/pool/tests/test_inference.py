"""The tasks inference and evaluation, and the model that comes with the worker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inference_worker import model, train_model
from inference_worker.handler import evaluate, infer
from pool_worker.errors import ConfigError, TaskStoppedError
from pool_worker.tasks import CANCELLED, Context, Task


def task(job_type: str, config: dict[str, Any]) -> Task:
    return Task("id", 1, job_type, config, visibility_seconds=30)


def test_images_are_classified() -> None:
    images, labels = model.digits()
    unseen = model.digits_validation()[:100]
    nested, flat = images[unseen[:50]].tolist(), images[unseen[50:]].reshape(-1, 64).tolist()
    result = infer(task("inference", {"inputs": nested + flat, "batch_size": 30}), Context())
    assert np.mean(result["predictions"] == labels[unseen]) > 0.95
    assert result["count"] == 100
    assert result["latency_ms"]["batches"] == 4
    assert np.allclose(np.sum(result["probabilities"], axis=1), 1, atol=1e-4)
    assert [int(np.argmax(row)) for row in result["probabilities"]] == result["predictions"]


def test_the_largest_result_is_below_what_the_job_service_takes() -> None:
    result = infer(task("inference", {"indices": [i % 1797 for i in range(2000)]}), Context())
    assert len(json.dumps(result, separators=(",", ":"))) < 256 * 1024


def test_a_batch_says_what_its_images_say_alone() -> None:
    together = infer(task("inference", {"indices": list(range(20)), "batch_size": 20}), Context())
    alone = infer(task("inference", {"indices": list(range(20)), "batch_size": 1}), Context())
    assert together["predictions"] == alone["predictions"]
    assert np.allclose(together["probabilities"], alone["probabilities"], atol=1e-5)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "config.inputs: give either"),
        ({"inputs": [[0] * 64], "indices": [0]}, "config.inputs: give either"),
        ({"inputs": []}, "config.inputs: has 0 entries"),
        ({"inputs": [[0] * 64, [0] * 63]}, r"config.inputs\[1\]: must be 64 numbers"),
        ({"inputs": [["a"] * 64]}, r"config.inputs\[0\]: must be 64 numbers"),
        ({"inputs": [[17] * 64]}, r"config.inputs\[0\]: has numbers outside 0 to 16"),
        ({"inputs": [[0] * 64] * 2001}, "config.inputs: has 2001 entries"),
        ({"indices": [1797]}, r"config.indices\[0\]: is 1797"),
        ({"indices": [True]}, r"config.indices\[0\]: is True"),
        ({"indices": [0], "model": "gpt"}, "config.model: is 'gpt', but must be one of digits-cnn"),
        ({"indices": [0], "batch_size": 0}, "config.batch_size"),
        ({"indices": [0], "checkpoint": "../../etc"}, "config.checkpoint: .* below WORK_DIR"),
        ({"indices": [0], "checkpoint": "nothing", "model": "cnn"}, "config.checkpoint: .* cannot be used"),
    ],
)
def test_wrong_configs_are_refused(config: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        infer(task("inference", config), Context())


def test_evaluation_is_over_images_that_the_model_has_not_seen() -> None:
    result = evaluate(task("evaluation", {}), Context())
    assert result["samples"] == 359
    assert result["accuracy"] > 0.97
    assert result["loss"] < 0.2
    confusion = np.array(result["confusion"])
    assert confusion.sum() == 359
    assert confusion.trace() / 359 == pytest.approx(result["accuracy"], abs=1e-6)


def test_a_cancelled_task_stops_between_batches() -> None:
    context = Context()
    context.stop(CANCELLED)
    with pytest.raises(TaskStoppedError):
        infer(task("inference", {"indices": [0]}), context)


def test_the_bundled_model_is_what_its_script_makes() -> None:
    """A few epochs are enough to see that the script learns; the file has what all of them give."""
    weights, accuracy = train_model.train(epochs=3)
    assert accuracy > 0.8
    with np.load(model.BUNDLED["digits-cnn"][1]) as archive:
        assert set(archive.files) == {*weights, "mean", "deviation"}
        assert {name: archive[name].shape for name in weights} == {name: value.shape for name, value in weights.items()}
        assert (float(archive["mean"]), float(archive["deviation"])) == pytest.approx(model.digits_scale(), rel=1e-5)
    assert Path(model.BUNDLED["digits-cnn"][1]).stat().st_size < 100_000
