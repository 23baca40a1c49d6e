"""What all models have in common: tensors go in, tensors come out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from pool_worker.errors import TaskError

from inference_worker.errors import DataError


class Predictor(Protocol):
    """A model that is ready to run."""

    @property
    def name(self) -> str:
        """The model's name or URI."""

    @property
    def device(self) -> torch.device:
        """Where it runs."""

    def run(self, tensors: list[torch.Tensor]) -> list[tuple[str, torch.Tensor]]:
        """The named outputs, in the memory of the host. Raises PredictionError."""


class PredictionError(Exception):
    """The model does not take the tensors. ``out_of_memory``: smaller ones may do, or the same on another device."""

    def __init__(self, message: str, *, out_of_memory: bool = False) -> None:
        super().__init__(message)
        self.out_of_memory = out_of_memory

    def of(self, what: str) -> TaskError:
        """The same as an error of a task; ``what`` names the input."""
        if self.out_of_memory:
            return TaskError(f"{what}: {self}: give a smaller batch_size, or the job more memory")
        return DataError(f"{what}: the model cannot take it: {self}")


@dataclass(frozen=True)
class ScriptPredictor:
    """A TorchScript module."""

    name: str
    module: torch.jit.ScriptModule
    device: torch.device

    def run(self, tensors: list[torch.Tensor]) -> list[tuple[str, torch.Tensor]]:
        """Call forward with ``tensors`` in their order."""
        return call(self.module, tensors, self.device)


def call(module: torch.nn.Module, tensors: list[torch.Tensor], device: torch.device) -> list[tuple[str, torch.Tensor]]:
    """Call ``module`` on ``device``, and name what it returns: a tensor, or a list, tuple or dict of them."""
    try:
        with torch.inference_mode():
            answer = module(*(tensor.to(device) for tensor in tensors))
            return [(name, _tensor(value).cpu()) for name, value in _named(answer)]
    except torch.cuda.OutOfMemoryError as error:
        raise PredictionError(_short(error), out_of_memory=True) from error
    except (RuntimeError, ValueError, TypeError, IndexError, torch.jit.Error) as error:
        raise PredictionError(_short(error), out_of_memory="can't allocate memory" in str(error)) from error


def _named(answer: object) -> list[tuple[str, object]]:
    if isinstance(answer, Mapping):
        return [(str(name), value) for name, value in answer.items()]
    if isinstance(answer, (list, tuple)):
        return [(f"output_{i}", value) for i, value in enumerate(answer)]
    return [("output_0", answer)]


def _tensor(value: object) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"forward returns {type(value).__name__}, but must return tensors, or a list or dict of them")
    return value


def _short(error: Exception) -> str:
    """The last line, since TorchScript has a trace of the model's code before it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:500]
