"""The training loop: steps, epochs, validation, checkpoints, and stopping where every rank agrees."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from training_worker import checkpoints, data, models
from training_worker.checkpoint_request import Request, RequestFile
from training_worker.checkpoints import Checkpoint, CheckpointDirectory
from training_worker.config import Config, Hyperparameters
from training_worker.distributed import Ranks
from training_worker.errors import CheckpointWriteError, DataError, DivergedError, PeerLostError, StoppedError
from training_worker.logs import Log
from training_worker.progress import CheckpointReport, Progress
from training_worker.signals import StopRequest
from training_worker.state import STATE_FILE, Position, TrainingState, check_manifest, manifest
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
        self._directory: CheckpointDirectory | None = None
        self._requests: RequestFile | None = None
        self._restored_from: Path | None = None
        self._saved: Checkpoint | None = None
        self._last_save = time.monotonic()
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
        self._state = TrainingState(
            Position(seed=parameters.seed), model, _optimizer(parameters, model), _scaler(parameters, device)
        )
        self._restore()
        self._model = self._ranks.wrap(model)
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
            with contextlib.suppress(CheckpointWriteError):
                self._save()

    @property
    def saved_step(self) -> int | None:
        """Step of the newest checkpoint of this run, if any."""
        return self._saved.step if self._saved else None

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
        self._ranks.leave()
        self._report()
        self._save()
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
        loss, stops, stopping_ranks, signums = self._ranks.sum(
            loss_here, stopping, stopping * self._ranks.rank, stopping * self._stop.signum
        )
        position = self._state.position
        if not math.isfinite(loss):
            raise DivergedError(f"the training loss is {loss} at step {position.step}: try a smaller learning rate")
        position.loss_sum += loss
        position.loss_samples += samples
        self._report()
        if stops:
            self._end_by_signal(int(stops), int(stopping_ranks), round(signums / stops))

    def _end_by_signal(self, stops: int, stopping_ranks: int, signum: int) -> None:
        position = self._state.position
        who = f"rank {stopping_ranks}" if stops == 1 else f"{stops} ranks"
        name = signal.Signals(signum).name
        self._log.info("stop", f"stopping after step {position.step}: {name} at {who}", step=position.step)
        self._ranks.leave()
        try:
            self._save()
            note = "" if self._directory is None else f"; checkpoint at step {position.step}"
        except CheckpointWriteError as error:
            note = f"; {error}"
        raise StoppedError(f"{name} at {who} after step {position.step}{note}", signum)

    def _between_steps(self) -> None:
        """What rank 0 does between steps, beside what the slow pace of a demonstration asks for."""
        request = self._requests.pending() if self._requests else None
        if request is not None:
            self._serve(request)
        interval = self._config.checkpoints.every_seconds
        if self._directory and interval and time.monotonic() - self._last_save >= interval:
            self._try_save()
        if self._config.step_delay_seconds:
            self._stop.wait(self._config.step_delay_seconds)

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
            self._try_save()

    def _validate(self) -> tuple[float, float]:
        """Accuracy and mean loss on the validation part, each rank computing its share."""
        x = torch.from_numpy(self._dataset.x_validation)[self._ranks.rank :: self._ranks.world_size]
        y = torch.from_numpy(self._dataset.y_validation)[self._ranks.rank :: self._ranks.world_size]
        correct, loss, device = 0, 0.0, self._ranks.device
        self._state.model.eval()
        with torch.no_grad():
            for start in range(0, len(x), self._parameters.batch_size):
                stop = start + self._parameters.batch_size
                targets = y[start:stop].to(device)
                with _autocast(self._parameters.mixed_precision, device):
                    logits = self._state.model(x[start:stop].to(device)).float()
                loss += float(functional.cross_entropy(logits, targets, reduction="sum"))
                correct += int((logits.argmax(dim=1) == targets).sum())
        correct_everywhere, loss_everywhere = self._ranks.sum(correct, loss)
        count = len(self._dataset.y_validation)
        return correct_everywhere / count, loss_everywhere / count

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

    # --- checkpoints ---

    def _restore(self) -> None:
        """Rank 0 finds and reads the checkpoint, every rank takes it over."""
        header, payload = self._ranks.share(self._find_checkpoint)
        if not header:
            return
        self._state.load(payload)
        position = self._state.position
        if not header["own"]:
            position.outcome = position.outcome_message = ""
        self._success.best, self._success.stale_epochs = position.best, position.stale_epochs
        self._progress.update(restored_step=position.step)
        self._log.info(
            "restored",
            f"restored at epoch {position.epoch} step {position.step} from {header['path']}",
            epoch=position.epoch,
            step=position.step,
            path=header["path"],
        )
        if position.seed != self._parameters.seed:
            self._log.warning("seed", f"going on with seed {position.seed} of the checkpoint")

    def _find_checkpoint(self) -> tuple[dict[str, Any], bytes]:
        settings = self._config.checkpoints
        found, own = None, True
        if settings.directory is not None:
            self._directory = CheckpointDirectory(settings.directory, settings.retention, self._log)
            self._directory.clean()
            self._requests = RequestFile(settings.directory)
            found = self._directory.newest_valid()
        if found is None and settings.resume_from:
            own = False
            if "://" in settings.resume_from:
                raise DataError(f"RESUME_FROM {settings.resume_from}: must be a directory, not a URI")
            found = checkpoints.find_to_resume(Path(settings.resume_from), self._log)
        if found is None:
            return {}, b""
        check_manifest(self._config, dict(found.manifest), str(found.path))
        self._restored_from = found.path
        if own:
            self._note_saved(found)
        try:
            return {"path": str(found.path), "own": own}, (found.path / STATE_FILE).read_bytes()
        except OSError as error:
            raise DataError(f"checkpoint {found.path} cannot be read: {error}") from error

    def _save(self) -> Checkpoint | None:
        """Take a checkpoint of the present position, on rank 0, unless there is one. Raises CheckpointWriteError."""
        if self._directory is None:
            return None
        with self._consistent:
            position = self._state.position
            whole_epochs = position.offset == 0
            name = checkpoints.epoch_name(position.epoch) if whole_epochs else checkpoints.step_name(position.step)
            if self._saved and self._saved.path.name == name:
                return self._saved
            started = time.monotonic()
            document = manifest(self._config, position, self._ranks.world_size)
            try:
                saved = self._directory.save(name, {STATE_FILE: self._state.dump}, document)
            except CheckpointWriteError as error:
                failures = self._progress.read().checkpoint_failures + 1
                self._progress.update(checkpoint_failures=failures)
                self._log.warning("checkpoint-failed", str(error))
                raise
            self._note_saved(saved)
        took = time.monotonic() - started
        self._log.info(
            "checkpoint",
            f"checkpoint {name} saved: epoch {saved.epoch} step {saved.step}, {saved.size_bytes} bytes in {took:.2f} s",
            path=str(saved.path),
            epoch=saved.epoch,
            step=saved.step,
            bytes=saved.size_bytes,
        )
        self._prune()
        return saved

    def _try_save(self) -> None:
        """Take a checkpoint; training goes on when that fails, and the next one is due a full interval later."""
        self._last_save = time.monotonic()
        with contextlib.suppress(CheckpointWriteError):
            self._save()

    def _serve(self, request: Request) -> None:
        try:
            saved, error = self._save(), ""
        except CheckpointWriteError as failure:
            saved, error = None, str(failure)
        try:
            self._requests.answer(request, saved, error)
        except OSError as failure:
            self._log.warning("request", f"the checkpoint request could not be answered: {failure}")

    def _prune(self) -> None:
        protected = [self._restored_from] if self._restored_from else []
        try:
            removed = self._directory.prune(protected)
        except OSError as error:
            self._log.warning("retention", f"old checkpoints could not be deleted: {error}")
            return
        for path in removed:
            self._log.info("retention", f"checkpoint {path.name} deleted", path=str(path))

    def _note_saved(self, saved: Checkpoint) -> None:
        self._saved = saved
        self._last_save = time.monotonic()
        self._progress.update(
            checkpoint=CheckpointReport(str(saved.path), saved.epoch, saved.step, saved.created, saved.size_bytes)
        )


def _step_seed(seed: int, step: int, rank: int) -> int:
    """Random numbers of a step depend on these alone, so that a checkpoint need not hold a generator's state."""
    return ((seed * SEED_STRIDE + step) * SEED_STRIDE + rank) % (1 << 63)


def _optimizer(parameters: Hyperparameters, model: nn.Module) -> torch.optim.Optimizer:
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
    return kinds[parameters.optimizer](model.parameters(), **options)


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
