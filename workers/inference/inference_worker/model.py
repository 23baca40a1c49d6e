"""Models that the worker knows, and what they say of a batch of images."""

from __future__ import annotations

import functools
import io
import pickle
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from pool_worker.errors import ConfigError
from training_worker import checkpoints, data, models
from training_worker.config import BUNDLED_DATA_DIR
from training_worker.errors import WorkerError

from inference_worker.predictor import PredictionError, call

SIDE = 8
CLASSES = 10
WHITE = 16.0
SPLIT_SEED = 42
VALIDATION_FRACTION = 0.2
BUNDLED = {"digits-cnn": ("cnn", Path(__file__).resolve().parent / "digits-cnn.npz")}


@dataclass(frozen=True)
class Classifier:
    """A network and how its inputs are scaled."""

    name: str
    network: torch.nn.Module
    mean: float
    deviation: float
    device: torch.device

    def probabilities(self, images: np.ndarray) -> np.ndarray:
        """The probability of each class for each image of ``images``, of shape (count, 8, 8) with values 0 to 16."""
        ((_, logits),) = self.run([torch.from_numpy(images)])
        return torch.softmax(logits.double(), dim=1).numpy()

    def run(self, tensors: list[torch.Tensor]) -> list[tuple[str, torch.Tensor]]:
        """The logits of the images in one tensor, of 8 x 8 or 64 values each. Raises PredictionError."""
        if len(tensors) != 1 or tensors[0].ndim < 2 or tensors[0][0].numel() != SIDE * SIDE:
            raise PredictionError("it takes one tensor, of images of 8 x 8 or 64 numbers from 0 to 16")
        scaled = (tensors[0].float().reshape(-1, 1, SIDE, SIDE) - self.mean) / self.deviation
        return call(self.network, [scaled], self.device)


def bundled_names() -> tuple[str, ...]:
    """The names of the models that come with the worker."""
    return tuple(sorted(BUNDLED))


@functools.lru_cache(maxsize=4)
def bundled(name: str) -> Classifier:
    """The model ``name``, which train_model.py has made. It is read once in a process."""
    architecture, path = BUNDLED[name]
    with np.load(path, allow_pickle=False) as archive:
        weights = {key: torch.from_numpy(archive[key]) for key in archive.files if key not in ("mean", "deviation")}
        return _classifier(name, architecture, weights, float(archive["mean"]), float(archive["deviation"]))


def from_checkpoint(architecture: str, path: Path) -> Classifier:
    """The model in a checkpoint that the training worker wrote. Raises ConfigError when it cannot be used."""
    try:
        checkpoints.verify(path)
        document = torch.load(io.BytesIO((path / "state.pt").read_bytes()), map_location="cpu", weights_only=True)
        mean, deviation = digits_scale()
        return _classifier(f"{architecture} of {path.name}", architecture, document["model"], mean, deviation)
    except (
        OSError,
        KeyError,
        RuntimeError,
        TypeError,
        pickle.UnpicklingError,
        checkpoints.InvalidCheckpointError,
        WorkerError,
    ) as error:
        raise ConfigError(f"config.checkpoint: {path} cannot be used with model {architecture}: {error}") from error


def _classifier(
    name: str, architecture: str, weights: dict[str, torch.Tensor], mean: float, deviation: float
) -> Classifier:
    network = models.create(architecture, (1, SIDE, SIDE), CLASSES, dropout=0.0)
    network.load_state_dict(weights)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return Classifier(name, network.eval().to(device), mean, deviation, device)


@functools.lru_cache(maxsize=1)
def digits() -> tuple[np.ndarray, np.ndarray]:
    """All 1,797 bundled images, of shape (count, 8, 8) with values 0 to 16, and the digit that each shows."""
    table = np.loadtxt(BUNDLED_DATA_DIR / data.BUNDLED["digits"], delimiter=",", dtype=np.float32)
    return table[:, :-1].reshape(-1, SIDE, SIDE), table[:, -1].astype(np.int64)


@functools.lru_cache(maxsize=1)
def digits_validation() -> np.ndarray:
    """The numbers of the images that no bundled model has seen: those that the training worker validates with."""
    images, _ = digits()
    order = np.random.default_rng([SPLIT_SEED]).permutation(len(images))
    return order[: round(len(images) * VALIDATION_FRACTION)]


def digits_scale() -> tuple[float, float]:
    """Mean and deviation of the training part, by which the training worker scales."""
    images, _ = digits()
    seen = np.delete(images, digits_validation(), axis=0)
    return float(seen.mean()), float(seen.std())
