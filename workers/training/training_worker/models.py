"""Models by name. None of them keeps running statistics, so replicas need no buffers in step."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

from training_worker.errors import UsageError


def create(name: str, sample_shape: tuple[int, ...], classes: int, dropout: float) -> nn.Module:
    """Build the model ``name`` with freshly drawn weights. Raises UsageError when it is unknown or does not fit."""
    if name not in _REGISTRY:
        raise UsageError(f"MODEL {name!r} is unknown: known are {', '.join(sorted(_REGISTRY))}")
    needs_images, build = _REGISTRY[name]
    if needs_images and len(sample_shape) != 3:
        raise UsageError(f"MODEL {name!r} needs images, but the samples have shape {sample_shape}; use mlp")
    return build(sample_shape, classes, dropout)


def check_name(name: str) -> None:
    """Raise UsageError when there is no model ``name``."""
    if name not in _REGISTRY:
        raise UsageError(f"MODEL {name!r} is unknown: known are {', '.join(sorted(_REGISTRY))}")


def _mlp(sample_shape: tuple[int, ...], classes: int, dropout: float) -> nn.Module:
    """Two hidden layers on the flattened sample."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(math.prod(sample_shape), 128),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(128, 64),
        nn.ReLU(),
        nn.Linear(64, classes),
    )


def _cnn(sample_shape: tuple[int, ...], classes: int, dropout: float) -> nn.Module:
    """Two convolutions, pooled to 4 x 4, and one linear layer."""
    return nn.Sequential(
        nn.Conv2d(sample_shape[0], 16, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(4),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(32 * 16, classes),
    )


class _GroupNorm(nn.GroupNorm):
    """Group normalization in float32, since PyTorch 1.13 has no mixed precision for it on CPUs."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.float())


class _ResidualBlock(nn.Module):
    """Two convolutions beside a shortcut, with group normalization."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False),
            _GroupNorm(4, channels_out),
            nn.ReLU(),
            nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False),
            _GroupNorm(4, channels_out),
        )
        same = channels_in == channels_out and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(channels_in, channels_out, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def _resnet_tiny(sample_shape: tuple[int, ...], classes: int, dropout: float) -> nn.Module:
    """Three residual blocks of 16, 32 and 64 channels."""
    return nn.Sequential(
        nn.Conv2d(sample_shape[0], 16, kernel_size=3, padding=1, bias=False),
        _GroupNorm(4, 16),
        nn.ReLU(),
        _ResidualBlock(16, 16, stride=1),
        _ResidualBlock(16, 32, stride=2),
        _ResidualBlock(32, 64, stride=2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(64, classes),
    )


_Builder = Callable[[tuple[int, ...], int, float], nn.Module]
_REGISTRY: dict[str, tuple[bool, _Builder]] = {
    "cnn": (True, _cnn),
    "mlp": (False, _mlp),
    "resnet-tiny": (True, _resnet_tiny),
}
