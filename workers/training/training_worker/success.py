"""Success policies: a target that is reached, or epochs without improvement."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from training_worker.config import SuccessPolicy

COMPLETED = "Completed"
TARGET_REACHED = "TargetReached"
EARLY_STOPPED = "EarlyStopped"


@dataclass(frozen=True)
class Verdict:
    """Why training ends: a reason of the termination message, and words."""

    reason: str
    message: str


class SuccessTracker:
    """Judges the metrics of one epoch after the other. ``best`` and ``stale_epochs`` belong into a checkpoint."""

    def __init__(self, policy: SuccessPolicy) -> None:
        self._policy = policy
        self._metric = policy.metric or "accuracy"
        self.best: float | None = None
        self.stale_epochs = 0

    def judge(self, metrics: Mapping[str, float]) -> Verdict | None:
        """Take in the metrics of a finished epoch; a verdict when training should end."""
        value = metrics[self._metric]
        policy = self._policy
        has_target = policy.metric is not None and not math.isnan(policy.value)
        if has_target and (value == policy.value or self._better(value, policy.value)):
            return Verdict(TARGET_REACHED, f"{self._metric} is {value:.4g}, and {policy.value:g} was the target")
        if self.best is None or self._better(value, self.best):
            self.best, self.stale_epochs = value, 0
        else:
            self.stale_epochs += 1
        if 0 < policy.patience <= self.stale_epochs:
            return Verdict(
                EARLY_STOPPED,
                f"{self._metric} has not been better than {self.best:.4g} for {self.stale_epochs} epochs",
            )
        return None

    def _better(self, value: float, than: float) -> bool:
        return value < than if self._policy.mode == "min" else value > than
