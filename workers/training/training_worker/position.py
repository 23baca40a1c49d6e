"""Where a training stands, and what the manifest of a checkpoint says about it; the same for every framework."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from training_worker.config import Config
from training_worker.errors import DataError


@dataclass
class Position:
    """Where the training stands, always at the end of a step.

    ``offset`` counts the samples of the present epoch that all ranks together have used; ``loss_sum`` adds up
    the losses of ``loss_samples`` of them. ``metrics``, ``best`` and ``stale_epochs`` are of the epochs that are done.
    ``outcome`` and ``outcome_message`` say why training ended, once a success policy has ended it.
    """

    epoch: int = 0
    step: int = 0
    offset: int = 0
    loss_sum: float = 0.0
    loss_samples: int = 0
    seed: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    best: float | None = None
    stale_epochs: int = 0
    outcome: str = ""
    outcome_message: str = ""

    def dump(self) -> str:
        """The position as JSON."""
        return json.dumps(asdict(self))

    def load(self, text: str) -> None:
        """Take over what dump() gave, as far as this version knows it. Raises ValueError."""
        known = {item.name for item in fields(Position)}
        self.__dict__.update({name: value for name, value in json.loads(text).items() if name in known})


def manifest(
    config: Config, position: Position, world_size: int, framework: str, framework_version: str
) -> dict[str, Any]:
    """What the manifest says about the training."""
    parameters = config.hyperparameters
    return {
        "epoch": position.epoch,
        "step": position.step,
        "framework": framework,
        "frameworkVersion": framework_version,
        "worldSize": world_size,
        "job": {"namespace": config.job_namespace, "name": config.job_name},
        "model": config.model,
        "dataset": config.dataset,
        "optimizer": parameters.optimizer,
        "seed": position.seed,
        "epochs": parameters.epochs,
        "metrics": {name: value for name, value in position.metrics.items() if math.isfinite(value)},
    }


def check_manifest(config: Config, saved: Mapping[str, Any], where: str, framework: str) -> None:
    """Raise DataError when a checkpoint belongs to another model, data set, optimizer or framework than this job's."""
    expected = {
        "model": config.model,
        "dataset": config.dataset,
        "optimizer": config.hyperparameters.optimizer,
        "framework": framework,
    }
    for key, value in expected.items():
        if saved.get(key) not in (None, value):
            raise DataError(f"checkpoint {where} was made with {key} {saved[key]!r}, but this job has {value!r}")
