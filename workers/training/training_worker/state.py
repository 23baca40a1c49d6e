"""The state of a training: where it stands, and how that becomes a checkpoint and comes back."""

from __future__ import annotations

import io
import json
import math
import pickle
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import torch
from torch import nn

from training_worker.config import Config
from training_worker.errors import DataError

STATE_FILE = "state.pt"


@dataclass
class Position:
    """Where the training stands, always at the end of an optimizer step.

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


@dataclass
class TrainingState:
    """Everything that a checkpoint holds."""

    position: Position
    model: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: Any

    def dump(self, stream: Any) -> None:
        """Write the state to ``stream``: tensors, and everything else as JSON.

        Such a file loads without running code from it (weights_only), which PyTorch 1.13 does not allow for floats.
        """
        document = {
            "position": json.dumps(asdict(self.position)),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict()["state"],
            "scaler": json.dumps(self.scaler.state_dict()),
        }
        torch.save(document, stream)

    def load(self, data: bytes) -> None:
        """Take over the state that dump() wrote. Settings of the optimizer stay those of this run.

        Raises DataError when it does not fit the model or the optimizer.
        """
        try:
            document = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
            self.model.load_state_dict(document["model"])
            settings = self.optimizer.state_dict()["param_groups"]
            self.optimizer.load_state_dict({"state": document["optimizer"], "param_groups": settings})
            scaler = json.loads(document["scaler"])
            if scaler:
                self.scaler.load_state_dict(scaler)
            known = {item.name for item in fields(Position)}
            saved = {name: value for name, value in json.loads(document["position"]).items() if name in known}
            self.position.__dict__.update(saved)
        except (RuntimeError, ValueError, KeyError, TypeError, AttributeError, pickle.UnpicklingError) as error:
            raise DataError(f"the checkpoint does not fit this job: {error}") from error


def manifest(config: Config, position: Position, world_size: int) -> dict[str, Any]:
    """What the manifest says about the training."""
    parameters = config.hyperparameters
    return {
        "epoch": position.epoch,
        "step": position.step,
        "framework": "pytorch",
        "frameworkVersion": str(torch.__version__),
        "worldSize": world_size,
        "job": {"namespace": config.job_namespace, "name": config.job_name},
        "model": config.model,
        "dataset": config.dataset,
        "optimizer": parameters.optimizer,
        "seed": position.seed,
        "epochs": parameters.epochs,
        "metrics": {name: value for name, value in position.metrics.items() if math.isfinite(value)},
    }


def check_manifest(config: Config, saved: Mapping[str, Any], where: str) -> None:
    """Raise DataError when a checkpoint belongs to another model, data set or optimizer than this job's."""
    expected = {"model": config.model, "dataset": config.dataset, "optimizer": config.hyperparameters.optimizer}
    for key, value in expected.items():
        if saved.get(key) not in (None, value):
            raise DataError(f"checkpoint {where} was made with {key} {saved[key]!r}, but this job has {value!r}")
