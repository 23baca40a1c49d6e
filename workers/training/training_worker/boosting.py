"""Distributed training with XGBoost: each rank has its share of the samples, and an epoch is a round of boosting."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from typing import Any

import numpy as np
import xgboost

from training_worker import data
from training_worker.boosting_ranks import BoostingRanks
from training_worker.checkpointer import Checkpointer
from training_worker.config import Config
from training_worker.errors import CheckpointWriteError, DataError, DivergedError, PeerLostError, StoppedError, UsageError
from training_worker.logs import Log
from training_worker.position import Position
from training_worker.progress import Progress
from training_worker.signals import StopRequest
from training_worker.success import COMPLETED, SuccessTracker, Verdict

MODELS = ("gbtree", "dart")
DEFAULT_LEARNING_RATE = 0.3


class BoostingState:
    """Everything that a checkpoint holds: the trees so far, and where the training stands."""

    file = "model.ubj"
    framework = "xgboost"
    framework_version = xgboost.__version__

    def __init__(self, position: Position, booster: xgboost.Booster) -> None:
        self.position = position
        self.booster = booster

    def dump(self, stream: Any) -> None:
        """Write the model in XGBoost's own format, which any program can load, with the position as an attribute."""
        self.booster.set_attr(training_worker_position=self.position.dump())
        stream.write(self.booster.save_raw("ubj"))

    def load(self, content: bytes) -> None:
        """Take over what dump() wrote. Raises DataError."""
        try:
            self.booster.load_model(bytearray(content))
            self.position.load(self.booster.attr("training_worker_position") or "")
        except (xgboost.core.XGBoostError, ValueError) as error:
            raise DataError(f"the checkpoint does not fit this job: {error}") from error


class BoostingTrainer:
    """Trains one model on one rank. prepare() once, then run()."""

    def __init__(
        self, config: Config, dataset: data.Dataset, ranks: BoostingRanks, progress: Progress, stop: StopRequest, log: Log
    ) -> None:
        self._config = config
        self._dataset = dataset
        self._ranks = ranks
        self._progress = progress
        self._stop = stop
        self._log = log
        self._success = SuccessTracker(config.success)
        self._checkpoints = Checkpointer(config, ranks, progress, log)
        # Held while trees are added, and while they are written.
        self._consistent = threading.RLock()
        self._half_applied = False
        self._trained_here = 0

    def prepare(self, threads: int) -> None:
        """Take the samples of this rank, and the newest checkpoint where there is one. Raises UsageError and DataError."""
        self._training = self._share_of(self._dataset.x_train, self._dataset.y_train, threads)
        self._validation = self._share_of(self._dataset.x_validation, self._dataset.y_validation, threads)
        try:
            booster = xgboost.Booster(self._parameters(threads), [self._training, self._validation])
        except (xgboost.core.XGBoostError, ValueError) as error:
            raise UsageError(f"XGBoost refuses the hyperparameters: {error}") from error
        self._state = BoostingState(Position(seed=self._config.hyperparameters.seed), booster)
        self._checkpoints.restore(self._state)
        booster.set_param(self._parameters(threads))
        position = self._state.position
        self._success.best, self._success.stale_epochs = position.best, position.stale_epochs

    def run(self) -> Verdict:
        """Train until the end and return why it ended. Raises StoppedError, PeerLostError and DivergedError."""
        try:
            return self._train()
        except PeerLostError as error:
            self.save_last_consistent()
            if self._stop:
                raise StoppedError(f"{signal.Signals(self._stop.signum).name}; {error}", self._stop.signum) from error
            raise
        finally:
            self._log.info(
                "trained",
                f"rank {self._ranks.rank} trained {self._trained_here} samples",
                samples=self._trained_here,
            )

    def save_last_consistent(self) -> None:
        """Save the end of the last complete round, on rank 0. May be called from any thread; failures are logged."""
        if not self._consistent.acquire(timeout=1.0) or self._half_applied:
            self._log.warning("checkpoint-impossible", "no checkpoint: a round of boosting was only half done")
            return
        try:
            with contextlib.suppress(CheckpointWriteError):
                self._checkpoints.save(self._state)
        finally:
            self._consistent.release()

    @property
    def saved_step(self) -> int | None:
        """Step of the newest checkpoint of this run, if any."""
        return self._checkpoints.saved_step

    def _train(self) -> Verdict:
        position, epochs = self._state.position, self._config.hyperparameters.epochs
        while position.epoch < epochs and not position.outcome:
            self._report()
            self._round()
        self._report()
        with self._consistent:
            self._checkpoints.save(self._state)
        if position.outcome:
            return Verdict(position.outcome, position.outcome_message)
        return Verdict(COMPLETED, f"all {epochs} epochs are done")

    def _round(self) -> None:
        position, started = self._state.position, time.monotonic()
        with self._consistent, self._ranks.peers("growing trees"):
            self._half_applied = True
            self._state.booster.update(self._training, position.epoch)
            position.epoch += 1
            position.step += 1
            self._half_applied = False
        samples = len(self._dataset.x_train)
        self._trained_here += len(range(self._ranks.rank, samples, self._ranks.world_size))
        loss, validation_loss, accuracy, stops, stopping_ranks, signums = self._judge()
        if not math.isfinite(loss):
            raise DivergedError(f"the training loss is {loss} after round {position.epoch}: try a smaller learning rate")
        metrics = {
            "loss": loss,
            "accuracy": accuracy,
            "validation_loss": validation_loss,
            "learning_rate": self._learning_rate(),
            "samples_per_second": samples / max(time.monotonic() - started, 1e-9),
        }
        self._end_round(metrics)
        if stops:
            self._end_by_signal(int(stops), int(stopping_ranks), round(signums / stops))
        with self._consistent:
            if self._checkpoints.due():
                self._checkpoints.after_step(self._state)
        if delay := self._config.step_delay():
            self._stop.wait(delay)

    def _judge(self) -> list[float]:
        """Losses and accuracy over all ranks, and who wants to stop: every rank sees the same after the same round."""
        training = self._state.booster.predict(self._training)
        validation = self._state.booster.predict(self._validation)
        stopping = 1.0 if self._stop else 0.0
        loss, validation_loss, correct, *stops = self._ranks.sum(
            _cross_entropy(training, self._training.get_label()),
            _cross_entropy(validation, self._validation.get_label()),
            float((validation.argmax(axis=1) == self._validation.get_label()).sum()),
            stopping,
            stopping * self._ranks.rank,
            stopping * self._stop.signum,
        )
        count, validated = len(self._dataset.y_train), len(self._dataset.y_validation)
        return [loss / count, validation_loss / validated, correct / validated, *stops]

    def _end_round(self, metrics: dict[str, float]) -> None:
        position, epochs = self._state.position, self._config.hyperparameters.epochs
        verdict = self._agree(self._success.judge(metrics) if self._ranks.rank == 0 else None)
        with self._consistent:
            position.metrics = metrics
            position.best, position.stale_epochs = self._success.best, self._success.stale_epochs
            if verdict:
                position.outcome, position.outcome_message = verdict.reason, verdict.message
        self._report()
        if self._ranks.rank == 0:
            self._log.info(
                "epoch",
                f"epoch {position.epoch}/{epochs} loss={metrics['loss']:.4f} accuracy={metrics['accuracy']:.4f} "
                f"validation_loss={metrics['validation_loss']:.4f}",
                epoch=position.epoch,
                epochs=epochs,
                step=position.step,
                **metrics,
            )
        every = self._config.checkpoints.every_epochs
        if every and position.epoch % every == 0 and not verdict and position.epoch < epochs:
            with self._consistent, contextlib.suppress(CheckpointWriteError):
                self._checkpoints.save(self._state)

    def _end_by_signal(self, stops: int, stopping_ranks: int, signum: int) -> None:
        position = self._state.position
        who = f"rank {stopping_ranks}" if stops == 1 else f"{stops} ranks"
        name = signal.Signals(signum).name
        self._log.info("stop", f"stopping after round {position.epoch}: {name} at {who}", step=position.step)
        try:
            with self._consistent:
                self._checkpoints.save(self._state)
            note = f"; checkpoint at step {position.step}" if self._config.checkpoints.directory else ""
        except CheckpointWriteError as error:
            note = f"; {error}"
        raise StoppedError(f"{name} at {who} after step {position.step}{note}", signum)

    def _agree(self, verdict: Verdict | None) -> Verdict | None:
        """The verdict of rank 0, whose clock some metrics depend on."""
        shared, _ = self._ranks.share(lambda: (verdict.__dict__ if verdict else {}, b""))
        return Verdict(**shared) if shared else None

    def _share_of(self, x: np.ndarray, y: np.ndarray, threads: int) -> xgboost.DMatrix:
        ranks = self._ranks
        flat = x.reshape(len(x), -1)
        return xgboost.DMatrix(flat[ranks.rank :: ranks.world_size], label=y[ranks.rank :: ranks.world_size], nthread=threads)

    def _learning_rate(self) -> float:
        parameters = self._config.hyperparameters
        return parameters.learning_rate if parameters.learning_rate_given else DEFAULT_LEARNING_RATE

    def _parameters(self, threads: int) -> dict[str, Any]:
        """XGBoost's parameters: additional hyperparameters go to it under their names in lower case."""
        if self._config.model not in MODELS:
            raise UsageError(f"MODEL {self._config.model!r} is unknown: known with xgboost are {', '.join(MODELS)}")
        own = {name.lower(): value for name, value in self._config.hyperparameters.additional.items()}
        return {
            "tree_method": "hist",
            **own,
            "booster": self._config.model,
            "objective": "multi:softprob",
            "num_class": max(2, self._dataset.classes),
            "eta": self._learning_rate(),
            "seed": self._config.hyperparameters.seed,
            "nthread": threads,
            "verbosity": 1,
        }

    def _report(self) -> None:
        position, epochs = self._state.position, self._config.hyperparameters.epochs
        ended = bool(position.outcome) or position.epoch >= epochs
        changes: dict[str, Any] = {
            "epochs": epochs,
            "epoch": position.epoch if ended else min(position.epoch + 1, epochs),
            "step": position.step,
            "progress_ratio": 1.0 if ended else position.epoch / epochs,
        }
        changes |= {name: position.metrics[name] for name in ("loss", "accuracy") if name in position.metrics}
        named = {name: value for name, value in position.metrics.items() if name not in ("loss", "accuracy")}
        self._progress.update(metrics=named, **changes)


def _cross_entropy(predicted: np.ndarray, labels: np.ndarray) -> float:
    """The sum over the samples."""
    if len(labels) == 0:
        return 0.0
    chosen = predicted[np.arange(len(labels)), labels.astype(int)]
    return float(-np.log(np.clip(chosen, 1e-15, 1.0)).sum())
