"""The training loop: steps, epochs, validation, checkpoints, and stopping where every rank agrees."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from training_worker import data, models, sharded
from training_worker.checkpointer import Checkpointer
from training_worker.config import Config, Hyperparameters
from training_worker.distributed import Ranks
from training_worker.errors import CheckpointWriteError, DivergedError, PeerLostError, StoppedError, UsageError
from training_worker.events import EventWriter
from training_worker.logs import Log
from training_worker.position import Position
from training_worker.progress import Progress
from training_worker.signals import StopRequest
from training_worker.state import TrainingState
from training_worker.success import COMPLETED, SuccessTracker, Verdict

SEED_STRIDE = 1_000_003


class Trainer:
    """Trains one model on one rank. prepare() once, then run()."""

    def __init__(
        self, config: Config, dataset: data.Dataset, ranks: Ranks, progress: Progress, stop: StopRequest, log: Log
    ) -> None:
        self._config = config
        self._parameters = config.hyperparameters
        self._dataset = dataset
        self._ranks = ranks
        self._progress = progress
        self._stop = stop
        self._log = log
        self._success = SuccessTracker(config.success)
        # Held while model, optimizer and position change together, and while they are written to a checkpoint.
        self._consistent = threading.RLock()
        self._half_applied = False
        self._checkpoints = Checkpointer(config, ranks, progress, log)
        self._trained_here = 0
        self._epoch_started = time.monotonic()
        self._epoch_samples = 0

    def prepare(self) -> None:
        """Build the model, and take over the newest checkpoint where there is one. Raises DataError."""
        parameters, device = self._parameters, self._ranks.device
        torch.manual_seed(parameters.seed)
        model = models.create(
            self._config.model, self._dataset.sample_shape, self._dataset.classes, parameters.dropout
        ).to(device)
        self._state = self._new_state(model)
        self._checkpoints.restore(self._state)
        events = self._config.tensorboard_dir if self._ranks.rank == 0 else None
        self._events = EventWriter(events, self._log, self._state.position.step + 1)
        self._success.best, self._success.stale_epochs = self._state.position.best, self._state.position.stale_epochs
        self._model = self._state.model if self._shards("fsdp") else self._ranks.wrap(model)
        self._inputs = torch.from_numpy(self._dataset.x_train)
        self._targets = torch.from_numpy(self._dataset.y_train)

    def run(self) -> Verdict:
        """Train until the end and return why it ended.

        Raises StoppedError, PeerLostError and DivergedError; a checkpoint is taken before where the state allows.
        """
        try:
            return self._train()
        except PeerLostError as error:
            self.save_last_consistent()
            if self._stop:
                raise StoppedError(f"{signal.Signals(self._stop.signum).name}; {error}", self._stop.signum) from error
            raise
        finally:
            self._log.info(
                "trained", f"rank {self._ranks.rank} trained {self._trained_here} samples", samples=self._trained_here
            )

    def save_last_consistent(self) -> None:
        """Save the end of the last complete step, on rank 0. May be called from any thread; failures are logged."""
        with self._consistent:
            if self._half_applied:
                self._log.warning("checkpoint-impossible", "no checkpoint: an optimizer step was only half applied")
                return
            if not self._state.complete:
                self._log.warning("checkpoint-impossible", "no checkpoint: other ranks have parts of the optimizer's state")
                return
            with contextlib.suppress(CheckpointWriteError):
                self._checkpoints.save(self._state)

    @property
    def saved_step(self) -> int | None:
        """Step of the newest checkpoint of this run, if any."""
        return self._checkpoints.saved_step

    # --- the loop ---

    def _train(self) -> Verdict:
        position = self._state.position
        samples = len(self._dataset.x_train)
        while position.epoch < self._parameters.epochs and not position.outcome:
            self._report()
            order = data.epoch_order(samples, position.seed, position.epoch)
            self._epoch_started, self._epoch_samples = time.monotonic(), 0
            while position.offset < samples:
                self._step(order)
                self._between_steps()
            self._end_epoch()
        self._complete()
        self._ranks.leave()
        self._report()
        self._save()
        self._ranks.gathered()
        if position.outcome:
            return Verdict(position.outcome, position.outcome_message)
        return Verdict(COMPLETED, f"all {self._parameters.epochs} epochs are done")

    def _step(self, order: np.ndarray) -> None:
        """One optimizer step: on every rank its share of the next samples, in one or more batches."""
        position, parameters, world = self._state.position, self._parameters, self._ranks.world_size
        per_rank = parameters.batch_size * parameters.gradient_accumulation_steps
        block = order[position.offset : position.offset + per_rank * world]
        share = block[self._ranks.rank :: world]
        batches = math.ceil(math.ceil(len(block) / world) / parameters.batch_size)
        torch.manual_seed(_step_seed(position.seed, position.step, self._ranks.rank))
        self._model.train()
        self._state.optimizer.zero_grad(set_to_none=True)
        loss_here = 0.0
        for index in range(batches):
            picked = share[index * parameters.batch_size : (index + 1) * parameters.batch_size]
            loss_here += self._backward(picked, block, last=index == batches - 1)
        self._apply(len(block), len(share))
        self._share_outcome_of_step(loss_here, len(block))

    def _backward(self, picked: np.ndarray, block: np.ndarray, last: bool) -> float:
        """Add the gradients of one batch; returns the sum of its losses.

        The loss is weighted so that averaging over the ranks gives the mean over ``block``, even when the ranks'
        shares differ in size. A rank without a share takes part with weight 0.
        """
        indices = torch.from_numpy(picked if len(picked) else block[:1])
        device = self._ranks.device
        x = self._inputs[indices].to(device, non_blocking=True)
        y = self._targets[indices].to(device, non_blocking=True)
        weight = self._ranks.world_size / len(block) if len(picked) else 0.0
        with self._ranks.gradients(self._model, last):
            with _autocast(self._parameters.mixed_precision, device):
                loss = functional.cross_entropy(self._model(x), y, reduction="sum")
            self._state.scaler.scale(loss * weight).backward()
        return float(loss.detach()) if len(picked) else 0.0

    def _apply(self, samples: int, samples_here: int) -> None:
        """Change model, optimizer and position together."""
        position, optimizer = self._state.position, self._state.optimizer
        for group in optimizer.param_groups:
            group["lr"] = self._learning_rate(position.step)
        with self._consistent:
            self._half_applied = True
            with self._ranks.peers("sharing the optimizer's work"):
                self._state.scaler.step(optimizer)
            self._state.scaler.update()
            position.step += 1
            position.offset += samples
            self._half_applied = False
        self._trained_here += samples_here
        self._epoch_samples += samples

    def _share_outcome_of_step(self, loss_here: float, samples: int) -> None:
        """Add up the loss, and agree on stopping: every rank sees the same sums after the same step."""
        stopping = 1.0 if self._stop else 0.0
        due = 1.0 if self._checkpoints.due() else 0.0
        loss, stops, stopping_ranks, signums, due = self._ranks.sum(
            loss_here, stopping, stopping * self._ranks.rank, stopping * self._stop.signum, due
        )
        position = self._state.position
        if not math.isfinite(loss):
            raise DivergedError(f"the training loss is {loss} at step {position.step}: try a smaller learning rate")
        position.loss_sum += loss
        position.loss_samples += samples
        self._report()
        if due:
            self._complete()
        if stops:
            self._end_by_signal(int(stops), int(stopping_ranks), round(signums / stops))

    def _end_by_signal(self, stops: int, stopping_ranks: int, signum: int) -> None:
        position = self._state.position
        who = f"rank {stopping_ranks}" if stops == 1 else f"{stops} ranks"
        name = signal.Signals(signum).name
        self._log.info("stop", f"stopping after step {position.step}: {name} at {who}", step=position.step)
        self._complete()
        self._ranks.leave()
        try:
            self._save()
            note = f"; checkpoint at step {position.step}" if self._config.checkpoints.directory else ""
        except CheckpointWriteError as error:
            note = f"; {error}"
        self._ranks.gathered()
        raise StoppedError(f"{name} at {who} after step {position.step}{note}", signum)

    def _between_steps(self) -> None:
        """Take the checkpoints that are due, and keep the slow pace that a demonstration asks for."""
        with self._consistent:
            self._checkpoints.after_step(self._state)
        if delay := self._config.step_delay():
            self._stop.wait(delay)

    def _end_epoch(self) -> None:
        position = self._state.position
        accuracy, validation_loss = self._validate()
        elapsed = max(time.monotonic() - self._epoch_started, 1e-9)
        metrics = {
            "loss": position.loss_sum / max(1, position.loss_samples),
            "accuracy": accuracy,
            "validation_loss": validation_loss,
            "learning_rate": self._learning_rate(max(0, position.step - 1)),
            "samples_per_second": self._epoch_samples / elapsed,
        }
        verdict = self._agree(self._success.judge(metrics)) if self._ranks.rank == 0 else self._agree(None)
        with self._consistent:
            position.epoch += 1
            position.offset = position.loss_samples = 0
            position.loss_sum, position.metrics = 0.0, metrics
            position.best, position.stale_epochs = self._success.best, self._success.stale_epochs
            if verdict:
                position.outcome, position.outcome_message = verdict.reason, verdict.message
        self._report()
        self._events.scalars(position.step, metrics)
        if self._ranks.rank == 0:
            self._log.info(
                "epoch",
                f"epoch {position.epoch}/{self._parameters.epochs} loss={metrics['loss']:.4f} "
                f"accuracy={accuracy:.4f} validation_loss={validation_loss:.4f} "
                f"samples/s={metrics['samples_per_second']:.0f}",
                epoch=position.epoch,
                epochs=self._parameters.epochs,
                step=position.step,
                **metrics,
            )
        every = self._config.checkpoints.every_epochs
        ends = verdict or position.epoch >= self._parameters.epochs
        if every and position.epoch % every == 0 and not ends:
            self._complete()
            with self._consistent, contextlib.suppress(CheckpointWriteError):
                self._checkpoints.save(self._state)

    def _complete(self) -> None:
        """Bring the state together on rank 0, where the ranks have shares of it."""
        with self._ranks.peers("gathering the state"):
            self._state.complete_on_master()

    def _save(self) -> None:
        """Take the last checkpoint, on rank 0. Raises CheckpointWriteError."""
        with self._consistent:
            self._checkpoints.save(self._state)

    def _validate(self) -> tuple[float, float]:
        """Accuracy and mean loss on the validation part, each rank computing its share."""
        x = torch.from_numpy(self._dataset.x_validation)[self._ranks.rank :: self._ranks.world_size]
        y = torch.from_numpy(self._dataset.y_validation)[self._ranks.rank :: self._ranks.world_size]
        correct, loss, device = 0, 0.0, self._ranks.device
        self._state.model.eval()
        with torch.no_grad():
            # Ranks that share the model compute together: all as many batches, and one with nothing left computes for
            # the others.
            longest = math.ceil(len(self._dataset.y_validation) / self._ranks.world_size)
            for start in range(0, longest, self._parameters.batch_size):
                stop = start + self._parameters.batch_size
                targets = y[start:stop].to(device)
                inputs = x[start:stop] if len(targets) else torch.from_numpy(self._dataset.x_validation[:1])
                with self._ranks.peers("validating"), _autocast(self._parameters.mixed_precision, device):
                    logits = self._state.model(inputs.to(device)).float()
                if not len(targets):
                    continue
                loss += float(functional.cross_entropy(logits, targets, reduction="sum"))
                correct += int((logits.argmax(dim=1) == targets).sum())
        correct_everywhere, loss_everywhere = self._ranks.sum(correct, loss)
        count = len(self._dataset.y_validation)
        return correct_everywhere / count, loss_everywhere / count

    def _shards(self, parallelism: str) -> bool:
        """Whether the ranks have shares of the state in this way. Raises UsageError when they cannot."""
        if self._config.topology.parallelism != parallelism or self._ranks.world_size == 1:
            return False
        if self._ranks.backend == "mpi":
            raise UsageError(f"PARALLELISM {parallelism}: needs DIST_BACKEND gloo or nccl")
        return True

    def _new_state(self, model: nn.Module) -> TrainingState:
        position, device = Position(seed=self._parameters.seed), self._ranks.device
        if not self._shards("fsdp"):
            return TrainingState(position, model, self._optimizer(model), _scaler(self._parameters, device))
        names = [name for name, _ in model.named_parameters()]
        with self._ranks.peers("sharing out the model"):
            whole = sum(parameter.numel() for parameter in model.parameters())
            model = sharded.shard(model, device)
        kept = sum(parameter.numel() for parameter in model.parameters())
        self._log.info("sharded", f"this rank keeps {kept} of {whole} parameters")
        scaler = sharded.scaler(self._parameters.mixed_precision and device.type == "cuda")
        return sharded.ShardedState(position, model, self._optimizer(model), scaler, names=names)

    def _optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """The optimizer; with PARALLELISM zero each rank keeps the state of its share of the parameters only."""
        kind, options = _optimizer(self._parameters)
        if not self._shards("zero"):
            return kind(model.parameters(), **options)
        from torch.distributed.optim import ZeroRedundancyOptimizer

        return ZeroRedundancyOptimizer(model.parameters(), optimizer_class=kind, **options)

    def _agree(self, verdict: Verdict | None) -> Verdict | None:
        """The verdict of rank 0, whose clock some metrics depend on."""
        shared, _ = self._ranks.share(lambda: (verdict.__dict__ if verdict else {}, b""))
        return Verdict(**shared) if shared else None

    def _learning_rate(self, step: int) -> float:
        """Rises in equal parts over the warm-up steps, then stays."""
        warmup = self._parameters.warmup_steps
        return self._parameters.learning_rate * (min(1.0, (step + 1) / warmup) if warmup else 1.0)

    def _report(self) -> None:
        position, epochs, samples = self._state.position, self._parameters.epochs, len(self._dataset.x_train)
        ended = bool(position.outcome) or position.epoch >= epochs
        changes: dict[str, Any] = {
            "epochs": epochs,
            "epoch": position.epoch if ended else min(position.epoch + 1, epochs),
            "step": position.step,
            "progress_ratio": 1.0 if ended else min(1.0, (position.epoch + position.offset / samples) / epochs),
        }
        if position.loss_samples:
            changes["loss"] = position.loss_sum / position.loss_samples
        elif "loss" in position.metrics:
            changes["loss"] = position.metrics["loss"]
        if "accuracy" in position.metrics:
            changes["accuracy"] = position.metrics["accuracy"]
        named = {name: value for name, value in position.metrics.items() if name not in ("loss", "accuracy")}
        named["learning_rate"] = self._learning_rate(max(0, position.step - 1))
        if self._epoch_samples:
            elapsed = max(time.monotonic() - self._epoch_started, 1e-9)
            named["samples_per_second"] = self._epoch_samples / elapsed
        self._progress.update(metrics=named, **changes)


def _step_seed(seed: int, step: int, rank: int) -> int:
    """Random numbers of a step depend on these alone, so that a checkpoint need not hold a generator's state."""
    return ((seed * SEED_STRIDE + step) * SEED_STRIDE + rank) % (1 << 63)


def _optimizer(parameters: Hyperparameters) -> tuple[type[torch.optim.Optimizer], dict[str, float]]:
    """The kind of optimizer and its options."""
    options: dict[str, float] = {"lr": parameters.learning_rate}
    if parameters.weight_decay is not None:
        options["weight_decay"] = parameters.weight_decay
    if parameters.optimizer in ("sgd", "rmsprop"):
        options["momentum"] = parameters.momentum if parameters.optimizer == "sgd" else 0.0
    kinds = {
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
        "rmsprop": torch.optim.RMSprop,
        "sgd": torch.optim.SGD,
    }
    return kinds[parameters.optimizer], options


def _scaler(parameters: Hyperparameters, device: torch.device) -> Any:
    """Gradient scaling for float16 on GPUs; elsewhere it does nothing."""
    enabled = parameters.mixed_precision and device.type == "cuda"
    if hasattr(torch, "amp") and hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler("cuda", enabled=enabled)
    return torch.cuda.amp.GradScaler(enabled=enabled)


def _autocast(enabled: bool, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """float16 on GPUs and bfloat16 on CPUs where it is safe."""
    if not enabled:
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=torch.float16 if device.type == "cuda" else torch.bfloat16)
