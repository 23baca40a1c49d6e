"""Training with FullyShardedDataParallel: each rank keeps its share of the parameters, gradients and optimizer's state.

Checkpoints are the same as without it: all of the state, which is brought together on rank 0 for them.
"""

from __future__ import annotations

import functools
import io
import json
import pickle
import warnings
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from training_worker.errors import DataError, UsageError
from training_worker.state import TrainingState

# Parts of a model from this size on are brought together and set free one by one, smaller ones with what they are in.
UNIT_PARAMETERS = 8_000


def check_available() -> None:
    """Raise UsageError when this PyTorch has no FullyShardedDataParallel.

    Every rank asks before it joins the others, so that none takes one that gave up for a peer that was lost.
    """
    try:
        from torch.distributed import fsdp  # noqa: F401
    except (ImportError, ValueError) as error:  # ValueError: PyTorch 1.13 under Python 3.11
        raise UsageError(
            f"PARALLELISM fsdp: PyTorch {torch.__version__} has no FullyShardedDataParallel that can be loaded here: "
            "use an image with PyTorch 2, or PARALLELISM zero"
        ) from error


def shard(model: nn.Module, device: torch.device) -> nn.Module:
    """The model, sharded over all ranks; check_available() first.

    All ranks must have the same model, with the same values, on ``device``.
    """
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy

    # PyTorch 2.6 says at each checkpoint that there are newer calls for the state.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed\.fsdp")
    units = functools.partial(size_based_auto_wrap_policy, min_num_params=UNIT_PARAMETERS)
    return FullyShardedDataParallel(model, auto_wrap_policy=units, device_id=device, use_orig_params=True)


def scaler(enabled: bool) -> Any:
    """Gradient scaling for float16 on GPUs, where each rank sees its share of the gradients only."""
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

    return ShardedGradScaler(enabled=enabled)


@dataclass
class ShardedState(TrainingState):
    """The state of a training whose model is from shard()."""

    # The model's parameters in their order, under the names that they have without shard().
    names: list[str] = field(default_factory=list)
    _model: dict[str, Any] = field(default_factory=dict)
    _optimizer: dict[str, Any] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether rank 0 has all of the state of this step; only after complete_on_master()."""
        return self._completed == self.position.step

    def complete_on_master(self) -> None:
        """Bring all of the state together on rank 0. Every rank must call it after the same step."""
        if self.complete:
            return
        from torch.distributed.fsdp import FullyShardedDataParallel

        with self._whole(master_only=True):
            model = self.model.state_dict()
            optimizer = FullyShardedDataParallel.optim_state_dict(self.model, self.optimizer)
        # What came together may share memory with what trains on.
        self._model = {name: value.clone() for name, value in model.items()}
        self._optimizer = optimizer.get("state", {})
        self._completed = self.position.step

    def dump(self, stream: Any) -> None:
        """Write what complete_on_master() has brought together, in the form that TrainingState has."""
        number = {name: index for index, name in enumerate(self.names)}
        document = {
            "position": self.position.dump(),
            "model": self._model,
            "optimizer": {number[name]: state for name, state in self._optimizer.items()},
            "scaler": json.dumps(self.scaler.state_dict()),
        }
        torch.save(document, stream)

    def load(self, data: bytes) -> None:
        """Take over the state that dump() of this class or of TrainingState wrote. Every rank must call it.

        Raises DataError when it does not fit the model or the optimizer.
        """
        from torch.distributed.fsdp import FullyShardedDataParallel

        try:
            document = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
            settings = [{**group, "params": list(self.names)} for group in self.optimizer.param_groups]
            states = {self.names[number]: state for number, state in document["optimizer"].items()}
            with self._whole(master_only=False):
                self.model.load_state_dict(document["model"])
                mine = FullyShardedDataParallel.optim_state_dict_to_load(
                    self.model, self.optimizer, {"state": states, "param_groups": settings}
                )
            self.optimizer.load_state_dict(mine)
            scaling = json.loads(document["scaler"])
            if scaling:
                self.scaler.load_state_dict(scaling)
            self.position.load(document["position"])
        except (RuntimeError, ValueError, LookupError, TypeError, AttributeError, pickle.UnpicklingError) as error:
            raise DataError(f"the checkpoint does not fit this job: {error}") from error

    def _whole(self, master_only: bool) -> Any:
        """Within this context, states are whole, and not shares of them."""
        from torch.distributed.fsdp import (
            FullOptimStateDictConfig,
            FullStateDictConfig,
            FullyShardedDataParallel,
            StateDictType,
        )

        # Into main memory, unless the model lies there: PyTorch 2.6 frees what it would copy to where it is.
        away = master_only and next(self.model.parameters()).device.type != "cpu"
        return FullyShardedDataParallel.state_dict_type(
            self.model,
            StateDictType.FULL_STATE_DICT,
            FullStateDictConfig(offload_to_cpu=away, rank0_only=master_only),
            FullOptimStateDictConfig(offload_to_cpu=away, rank0_only=master_only),
        )
