"""TorchScript models for tests."""

from __future__ import annotations

import io

import torch


class Scale(torch.nn.Module):
    """Gives its input, times a factor."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


class Affine(torch.nn.Module):
    """A layer from three numbers to two, with fixed weights."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)
        with torch.no_grad():
            self.layer.weight.copy_(torch.tensor([[1.0, 2.0, 3.0], [0.5, -1.0, 0.25]]))
            self.layer.bias.copy_(torch.tensor([0.1, -0.2]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


class Total(torch.nn.Module):
    """Adds up all that it gets, so that requests cannot share a call."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum()


def saved(module: torch.nn.Module) -> bytes:
    """The module as a TorchScript file."""
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(module.eval()), file)
    return file.getvalue()
