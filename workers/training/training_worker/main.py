"""Runs one worker from its environment to its exit code."""

from __future__ import annotations

import gc
import os
import sys
import threading
import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn

from training_worker import config as configuration
from training_worker import elastic, launcher, libuv, termination
from training_worker.config import Config
from training_worker.errors import EXIT_OK, EXIT_SIGNAL_BASE, EXIT_SOFTWARE, WorkerError
from training_worker.logs import Log
from training_worker.metrics import GpuUtilization, MetricsServer, render
from training_worker.progress import Progress, Report
from training_worker.signals import StopRequest

if TYPE_CHECKING:
    from training_worker.boosting import BoostingTrainer
    from training_worker.trainer import Trainer


def main() -> NoReturn:
    """Train as the environment says and end the process."""
    libuv.install()
    if elastic.wanted(os.environ):
        sys.exit(elastic.run(os.environ))
    processes = launcher.processes_wanted(os.environ)
    if processes > 1:
        sys.exit(launcher.run(os.environ, processes))
    Worker(os.environ).run()


class Worker:
    """One worker process."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self._log = Log(rank=_rank(env), json_lines=env.get("LOG_FORMAT", "").lower() == "json")
        self._progress = Progress()
        self._trainer: Trainer | BoostingTrainer | None = None
        self._config: Config | None = None
        self._ending = threading.Lock()
        self._stop = StopRequest(self._on_signal)

    def run(self) -> NoReturn:
        """Train, then end with the exit code of the outcome."""
        try:
            self._config = configuration.load(self._env)
            reason, message = self._train(self._config)
        except WorkerError as error:
            self._end(error.exit_code, error.reason, str(error))
        except Exception as error:  # noqa: BLE001 (the last resort: whatever happens is reported)
            self._log.error("traceback", traceback.format_exc())
            self._end(EXIT_SOFTWARE, "Error", f"{type(error).__name__}: {error}")
        self._end(EXIT_OK, reason, message)

    def _train(self, config: Config) -> tuple[str, str]:
        topology = config.topology
        self._progress.update(epochs=config.hyperparameters.epochs, world_size=topology.world_size)
        self._serve_metrics(config)
        threads = configuration.cpu_threads(self._env, topology.local_world_size)
        os.environ.setdefault("OMP_NUM_THREADS", str(threads))
        # Idle threads sleep instead of spinning, since other pods share the processors.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        if config.framework == "xgboost":
            return self._boost(config, threads)
        # Imported here since PyTorch takes most of the start-up time, and reads these variables as it loads. Its two thousand
        # modules leave no garbage: to look for some while they load takes a tenth of that time.
        gc.disable()
        import torch

        from training_worker import data, distributed, models, sharded
        from training_worker.trainer import Trainer

        torch.set_num_threads(threads)
        models.check_name(config.model)
        if topology.parallelism == "fsdp" and topology.world_size > 1:
            sharded.check_available()
        parameters = config.hyperparameters
        dataset = data.load(config.dataset, config.data_dir, parameters.validation_fraction, parameters.seed)
        ranks = distributed.create(topology, self._log)
        self._log_start(config, threads, str(ranks.device), len(dataset.x_train), len(dataset.x_validation))
        ranks.join()
        trainer = Trainer(config, dataset, ranks, self._progress, self._stop, self._log)
        share = len(range(topology.rank, len(dataset.x_train), topology.world_size))
        self._log.info(
            "joined",
            f"rank {topology.rank} of {topology.world_size} joined, backend {ranks.backend}, shard of {share} samples",
            world_size=topology.world_size,
            backend=ranks.backend,
            samples=share,
        )
        trainer.prepare()
        gc.freeze()
        gc.enable()
        self._trainer = trainer
        verdict = trainer.run()
        ranks.finish()
        return verdict.reason, verdict.message

    def _boost(self, config: Config, threads: int) -> tuple[str, str]:
        """Train with XGBoost."""
        from training_worker import data
        from training_worker.boosting import BoostingTrainer
        from training_worker.boosting_ranks import BoostingRanks

        topology, parameters = config.topology, config.hyperparameters
        dataset = data.load(config.dataset, config.data_dir, parameters.validation_fraction, parameters.seed)
        ranks = BoostingRanks(topology, self._log)
        self._log_start(config, threads, "cpu", len(dataset.x_train), len(dataset.x_validation))
        ranks.join()
        self._log.info("joined", f"rank {topology.rank} of {topology.world_size} joined, backend {ranks.backend}")
        trainer = BoostingTrainer(config, dataset, ranks, self._progress, self._stop, self._log)
        trainer.prepare(threads)
        self._trainer = trainer
        verdict = trainer.run()
        ranks.finish()
        return verdict.reason, verdict.message

    def _log_start(self, config: Config, threads: int, device: str, training: int, validation: int) -> None:
        topology, parameters = config.topology, config.hyperparameters
        self._log.info(
            "start",
            f"rank {topology.rank} starts: model {config.model}, data set {config.dataset} with {training} training "
            f"and {validation} validation samples, world size {topology.world_size}, device {device}, "
            f"{threads} threads",
        )
        if parameters.unused and topology.rank == 0 and config.framework != "xgboost":
            self._log.warning("hyperparameters", f"without meaning to this worker: {', '.join(parameters.unused)}")

    def _serve_metrics(self, config: Config) -> None:
        """Serve metrics from the first process of the replica; training does without when the port is taken."""
        topology = config.topology
        if topology.local_rank != 0:
            return
        utilization = GpuUtilization(topology.local_rank)
        try:
            server = MetricsServer(config.metrics_port, lambda: render(self._progress.read(), utilization()))
        except OSError as error:
            self._log.warning("metrics", f"no metrics: port {config.metrics_port} cannot be used: {error}")
            return
        self._log.info("metrics", f"metrics are served on port {server.port}", port=server.port)

    def _on_signal(self, signum: int) -> None:
        """End at once while nothing is trained yet; else when the ranks have not agreed to stop in time."""
        name = "SIGTERM" if signum == 15 else "SIGINT"
        trainer = self._trainer
        if trainer is None:
            self._end(EXIT_SIGNAL_BASE + signum, "Terminated", f"{name} before training began")
        self._log.info("signal", f"{name} received: stopping after this step")
        deadline = self._config.stop_deadline_seconds if self._config else 0.0
        threading.Event().wait(deadline)
        trainer.save_last_consistent()
        self._end(
            EXIT_SIGNAL_BASE + signum,
            "Terminated",
            f"{name}; the ranks did not finish a step within {deadline:g} s, "
            + (f"checkpoint at step {trainer.saved_step}" if trainer.saved_step is not None else "no checkpoint"),
        )

    def _end(self, code: int, reason: str, message: str) -> NoReturn:
        """Write the termination message and end the process, whichever thread comes first.

        Threads of communication libraries may hang after a peer is lost, so nothing is waited for.
        """
        if not self._ending.acquire(blocking=False):
            threading.Event().wait()
        log = self._log.info if code == EXIT_OK or reason == "Terminated" else self._log.error
        log("end", f"rank {self._log.rank} ends with exit code {code}: {reason}: {message}", code=code, reason=reason)
        self._write_termination_message(code, reason, message)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    def _write_termination_message(self, code: int, reason: str, message: str) -> None:
        """Rank 0 reports all figures; the first process of another replica only why it failed."""
        if self._config is not None:
            path = self._config.termination_message_path
        else:
            path = configuration.termination_message_path(self._env)
        report: Report | None = self._progress.read() if self._log.rank == 0 else None
        if report is None and (code == EXIT_OK or self._env.get("LOCAL_RANK", "0") != "0"):
            return
        try:
            termination.write(path, termination.compose(reason, message, report))
        except OSError as error:
            self._log.warning("termination-message", f"the termination message could not be written: {error}")


def _rank(env: Mapping[str, str]) -> int:
    """The rank as far as it can be told before the settings are checked."""
    for name in configuration.RANK_VARIABLES:
        if env.get(name, "").isdigit():
            return int(env[name])
    return 0
