"""The state of a training with PyTorch: how it becomes a checkpoint and comes back."""

from __future__ import annotations

import io
import json
import pickle
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from training_worker.errors import DataError
from training_worker.position import Position


@dataclass
class TrainingState:
    """Everything that a checkpoint holds."""

    file = "state.pt"
    framework = "pytorch"
    framework_version = str(torch.__version__)

    position: Position
    model: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: Any
    _completed: int = -1

    @property
    def _is_shared_out(self) -> bool:
        """Whether the optimizer is a ZeroRedundancyOptimizer. Its module is imported only where one is made: that takes 0.2 s."""
        return hasattr(self.optimizer, "consolidate_state_dict")

    @property
    def complete(self) -> bool:
        """Whether this rank has all of the state; with a sharded optimizer only after complete_on_master()."""
        return not self._is_shared_out or self._completed == self.position.step

    def complete_on_master(self) -> None:
        """Bring the parts of a sharded optimizer's state together on rank 0. Every rank must call it after the same step."""
        if self._is_shared_out and not self.complete:
            self.optimizer.consolidate_state_dict(to=0)
            self._completed = self.position.step

    def dump(self, stream: Any) -> None:
        """Write the state to ``stream``: tensors, and everything else as JSON.

        Such a file loads without running code from it (weights_only), which PyTorch 1.13 does not allow for floats.
        """
        document = {
            "position": self.position.dump(),
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
            numbers = list(range(sum(len(group["params"]) for group in self.optimizer.param_groups)))
            settings = [{**group, "params": numbers} for group in self.optimizer.param_groups]
            self.optimizer.load_state_dict({"state": document["optimizer"], "param_groups": settings})
            scaler = json.loads(document["scaler"])
            if scaler:
                self.scaler.load_state_dict(scaler)
            self.position.load(document["position"])
        except (RuntimeError, ValueError, KeyError, TypeError, AttributeError, pickle.UnpicklingError) as error:
            raise DataError(f"the checkpoint does not fit this job: {error}") from error
