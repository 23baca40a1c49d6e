"""Data sets: the bundled digits, or NumPy archives under DATA_DIR."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from training_worker.config import BUNDLED_DATA_DIR
from training_worker.errors import DataError, UsageError

BUNDLED = {"digits": "digits.csv.gz"}
DIGITS_SIDE = 8


@dataclass(frozen=True)
class Dataset:
    """Samples as float32 of shape (count, channels, height, width) or (count, features), and labels from 0."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_validation: np.ndarray
    y_validation: np.ndarray
    classes: int

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return self.x_train.shape[1:]


def load(name: str, data_dir: Path, validation_fraction: float, seed: int) -> Dataset:
    """Load data set ``name``, scaled by the mean and deviation of its training part.

    The split into training and validation part depends only on ``seed``, unless the archive brings its own validation
    part. Raises UsageError for an unknown name and DataError for a file that cannot be used.
    """
    if name in BUNDLED:
        arrays = _load_digits(_bundled_file(BUNDLED[name], data_dir))
    else:
        arrays = _load_archive(_archive(name, data_dir))
    return _prepare(arrays, validation_fraction, seed, name)


def epoch_order(count: int, seed: int, epoch: int) -> np.ndarray:
    """The order in which the samples of ``epoch`` (from 0) are visited: the same on every rank and in every run."""
    return np.random.default_rng([seed, epoch]).permutation(count)


def _bundled_file(file: str, data_dir: Path) -> Path:
    own = data_dir / file
    return own if own.exists() else BUNDLED_DATA_DIR / file


def _load_digits(path: Path) -> dict[str, np.ndarray]:
    try:
        table = np.loadtxt(path, delimiter=",", dtype=np.float32)
    except (OSError, ValueError) as error:
        raise DataError(f"data set digits: {path} cannot be read: {error}") from error
    return {"x": table[:, :-1].reshape(-1, DIGITS_SIDE, DIGITS_SIDE), "y": table[:, -1].astype(np.int64)}


def _archive(name: str, data_dir: Path) -> Path:
    relative = Path(name)
    if not relative.is_absolute() and ".." not in relative.parts:
        base = data_dir / relative
        for candidate in (base, base.with_name(base.name + ".npz")):
            if candidate.is_file():
                return candidate
        if base.is_dir():
            archives = sorted(base.glob("*.npz"))
            if len(archives) == 1:
                return archives[0]
            raise DataError(f"data set {name!r}: {base} holds {len(archives)} .npz files, but must hold one")
    known = sorted({*BUNDLED, *(path.stem for path in data_dir.glob("*.npz"))})
    raise UsageError(f"DATASET {name!r} is unknown: known are {', '.join(known)}, and .npz files under {data_dir}")


def _load_archive(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except (OSError, ValueError) as error:
        raise DataError(f"data set {path} cannot be read as a NumPy archive: {error}") from error


def _prepare(arrays: dict[str, np.ndarray], validation_fraction: float, seed: int, name: str) -> Dataset:
    if "x" not in arrays or "y" not in arrays:
        raise DataError(f"data set {name!r}: the arrays x and y are needed, but it has {', '.join(sorted(arrays))}")
    x, y = _samples(arrays["x"], name), _labels(arrays["y"], name)
    if "x_validation" in arrays and "y_validation" in arrays:
        x_validation, y_validation = _samples(arrays["x_validation"], name), _labels(arrays["y_validation"], name)
    else:
        order = np.random.default_rng([seed]).permutation(len(x))
        cut = max(1, round(len(x) * validation_fraction))
        x_validation, y_validation = x[order[:cut]], y[order[:cut]]
        x, y = x[order[cut:]], y[order[cut:]]
    if len(x) == 0 or len(x) != len(y) or len(x_validation) != len(y_validation):
        raise DataError(f"data set {name!r}: samples and labels differ in number, or too few are left for training")
    mean, deviation = float(x.mean()), float(x.std()) or 1.0
    return Dataset(
        x_train=(x - mean) / deviation,
        y_train=y,
        x_validation=(x_validation - mean) / deviation,
        y_validation=y_validation,
        classes=int(max(y.max(), y_validation.max(initial=0))) + 1,
    )


def _samples(x: np.ndarray, name: str) -> np.ndarray:
    if x.ndim not in (2, 3, 4) or x.dtype.kind not in "biuf":
        raise DataError(f"data set {name!r}: x must be numbers in 2 to 4 dimensions, but is {x.dtype} {x.shape}")
    x = x.astype(np.float32)
    return x[:, np.newaxis] if x.ndim == 3 else x


def _labels(y: np.ndarray, name: str) -> np.ndarray:
    if y.ndim != 1 or y.dtype.kind not in "biu" or len(y) == 0 or y.min() < 0:
        raise DataError(f"data set {name!r}: y must be a list of class numbers from 0, but is {y.dtype} {y.shape}")
    return y.astype(np.int64)
