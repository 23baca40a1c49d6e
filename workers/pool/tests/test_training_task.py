"""The task training: a child process that trains for real."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from inference_worker.handler import evaluate
from pool_worker.errors import ConfigError, TaskError, TaskStoppedError
from pool_worker.tasks import CANCELLED, Context, Task
from training_task.handler import read, train

from conftest import PACKAGES


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WORK_DIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", ":".join(PACKAGES))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")


def task(config: dict[str, Any], identity: str = "id") -> Task:
    return Task(identity, 1, "training", config, visibility_seconds=30)


def test_what_was_trained_can_be_evaluated() -> None:
    context = Context()
    result = train(
        task({"model": "cnn", "epochs": 3, "hyperparameters": {"learningRate": 0.005}, "checkpoint_dir": "runs/a"}),
        context,
    )
    assert context.read_progress() == 1.0
    assert result["metrics"]["epoch"] == 3
    assert result["metrics"]["accuracy"] > 0.9
    path = Path(result["checkpoint"]["path"])
    assert path.is_dir()
    evaluated = evaluate(Task("e", 1, "evaluation", {"model": "cnn", "checkpoint": str(path)}, 30), Context())
    assert evaluated["accuracy"] == pytest.approx(result["metrics"]["accuracy"], abs=0.003)
    with pytest.raises(ConfigError, match=r"config.checkpoint: .* cannot be used with model mlp"):
        evaluate(Task("e", 1, "evaluation", {"model": "mlp", "checkpoint": str(path)}, 30), Context())


def test_two_ranks_train_together() -> None:
    result = train(task({"model": "mlp", "epochs": 1, "processes": 2}), Context())
    assert result["metrics"]["world_size"] == 2


def test_trees_are_trained_too() -> None:
    result = train(task({"framework": "xgboost", "epochs": 5}), Context())
    assert result["metrics"]["accuracy"] > 0.8


def test_a_cancelled_training_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEP_DELAY_SECONDS", "0.05")
    context = Context()
    threading.Timer(3.0, lambda: context.stop(CANCELLED)).start()
    with pytest.raises(TaskStoppedError):
        train(task({"epochs": 100_000}), context)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"epochs": 0}, "config.epochs: is 0"),
        ({"framework": "keras"}, "config.framework: is 'keras'"),
        ({"checkpoint_dir": "/etc"}, "config.checkpoint_dir: .* below WORK_DIR"),
        ({"hyperparameters": {"layers": [1]}}, "config.hyperparameters.layers: must be"),
        ({"hyperparameters": {"epochs": 3}}, "config.hyperparameters.epochs: must be"),
        ({"command": "sh"}, "config.command: is unknown"),
    ],
)
def test_wrong_configs_are_refused(config: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read(task(config))


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model": "gpt"}, "MODEL 'gpt' is unknown"),
        ({"dataset": "imagenet"}, "DATASET 'imagenet' is unknown"),
        ({"hyperparameters": {"learningRate": -1}}, "LEARNING_RATE is -1"),
    ],
)
def test_what_the_training_worker_refuses_is_not_tried_again(config: dict[str, Any], words: str) -> None:
    with pytest.raises(TaskError, match=words) as caught:
        train(task(config), Context())
    assert caught.value.retryable is False
