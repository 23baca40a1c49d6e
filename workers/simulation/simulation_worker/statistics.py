"""Figures of readings that come in chunks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


class Statistics:
    """Mean, deviation and extremes of all values that were added. Missing ones are counted apart."""

    def __init__(self) -> None:
        self._count = 0
        self._missing = 0
        self._mean = 0.0
        self._squares = 0.0  # sum of squared differences from the mean
        self._low = math.inf
        self._high = -math.inf

    def add(self, values: np.ndarray) -> None:
        """Take values in; the figures are merged by Chan's formula, which stays exact over many chunks."""
        present = values[~np.isnan(values)]
        self._missing += len(values) - len(present)
        if len(present) == 0:
            return
        mean, squares = float(present.mean()), float(((present - present.mean()) ** 2).sum())
        total = self._count + len(present)
        delta = mean - self._mean
        self._squares += squares + delta**2 * self._count * len(present) / total
        self._mean += delta * len(present) / total
        self._count = total
        self._low, self._high = min(self._low, float(present.min())), max(self._high, float(present.max()))

    def figures(self) -> dict[str, Any]:
        """The figures; without a value there are only counts."""
        if self._count == 0:
            return {"count": 0, "missing": self._missing}
        variance = self._squares / self._count
        return {
            "count": self._count,
            "missing": self._missing,
            "mean": round(self._mean, 9),
            "std": round(math.sqrt(variance), 9),
            "rms": round(math.sqrt(variance + self._mean**2), 9),
            "min": round(self._low, 9),
            "max": round(self._high, 9),
        }
