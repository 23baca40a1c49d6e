"""Settings of the worker, read from environment variables.

The names, units and defaults are those of docs/worker-contract.md. A hyperparameter can be set in the JSON object
``HYPERPARAMETERS`` and as a single variable; the single variable wins.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from training_worker.errors import UsageError

T = TypeVar("T")

OPTIMIZERS = ("adam", "adamw", "rmsprop", "sgd")
BACKENDS = ("gloo", "nccl", "mpi")
PARALLELISMS = ("ddp", "zero", "fsdp")
FRAMEWORKS = ("pytorch", "mpi", "xgboost")
EPOCH_METRICS = ("accuracy", "loss", "validation_loss", "samples_per_second", "learning_rate")
HYPERPARAMETER_NAMES = (
    "LEARNING_RATE",
    "BATCH_SIZE",
    "EPOCHS",
    "OPTIMIZER",
    "WARMUP_STEPS",
    "GRADIENT_ACCUMULATION_STEPS",
    "MIXED_PRECISION",
    "WEIGHT_DECAY",
    "MOMENTUM",
    "DROPOUT",
    "SEED",
    "VALIDATION_FRACTION",
)
RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "JOB_COMPLETION_INDEX")
BUNDLED_DATA_DIR = Path(__file__).resolve().parent.parent / "data"
DEFAULT_TERMINATION_MESSAGE_PATH = "/dev/termination-log"


@dataclass(frozen=True)
class Hyperparameters:
    """What is trained and how. ``batch_size`` counts samples per rank and batch."""

    learning_rate: float
    batch_size: int
    epochs: int
    optimizer: str
    warmup_steps: int
    gradient_accumulation_steps: int
    mixed_precision: bool
    weight_decay: float | None
    momentum: float
    dropout: float
    seed: int
    validation_fraction: float
    unused: tuple[str, ...]
    additional: Mapping[str, str]
    learning_rate_given: bool


@dataclass(frozen=True)
class Topology:
    """Place of this process among the ranks of the job."""

    master_addr: str
    master_port: int
    world_size: int
    rank: int
    parallelism: str
    local_rank: int
    local_world_size: int
    backend: str | None
    timeout_seconds: float
    rendezvous_timeout_seconds: float


@dataclass(frozen=True)
class CheckpointSettings:
    """When checkpoints are taken, how many are kept, and what to resume from."""

    directory: Path | None
    every_epochs: int
    every_seconds: float
    retention: int
    resume_from: str | None
    resume_optional: bool


@dataclass(frozen=True)
class SuccessPolicy:
    """When training ends before its last epoch."""

    metric: str | None
    value: float
    mode: str
    patience: int


@dataclass(frozen=True)
class Config:
    """All settings of one worker process."""

    model: str
    dataset: str
    data_dir: Path
    hyperparameters: Hyperparameters
    topology: Topology
    checkpoints: CheckpointSettings
    success: SuccessPolicy
    metrics_port: int
    tensorboard_dir: Path | None
    job_name: str
    job_namespace: str
    termination_message_path: Path
    framework: str
    step_delay_seconds: float
    step_delay_until: Path | None
    stop_deadline_seconds: float

    def step_delay(self) -> float:
        """How many seconds to pause before the next step: none once the file exists that ends the pauses."""
        until = self.step_delay_until
        return 0 if until is not None and until.exists() else self.step_delay_seconds


def variable_name(parameter: str) -> str:
    """The environment variable of a hyperparameter: ``learningRate`` and ``learning-rate`` give ``LEARNING_RATE``."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", parameter)
    return re.sub(r"[^A-Za-z0-9]+", "_", words).upper()


def load(env: Mapping[str, str]) -> Config:
    """Read the settings from ``env``. Raises UsageError that names every wrong variable, not only the first."""
    read = _Reader(env)
    config = Config(
        model=read.text("MODEL", required=True),
        dataset=read.text("DATASET", required=True),
        data_dir=Path(read.text("DATA_DIR", default=str(BUNDLED_DATA_DIR))),
        hyperparameters=_hyperparameters(read),
        topology=_topology(read),
        checkpoints=_checkpoints(read),
        success=_success(read),
        metrics_port=read.integer("METRICS_PORT", 8080, minimum=0, maximum=65535),
        tensorboard_dir=_path(read.text("TENSORBOARD_LOGDIR")),
        job_name=read.text("TRAINING_JOB_NAME"),
        job_namespace=read.text("TRAINING_JOB_NAMESPACE"),
        termination_message_path=termination_message_path(env),
        framework=read.choice("FRAMEWORK", FRAMEWORKS, "pytorch"),
        step_delay_seconds=read.number("STEP_DELAY_SECONDS", 0.0, minimum=0),
        step_delay_until=_path(read.text("STEP_DELAY_UNTIL")),
        stop_deadline_seconds=read.number("STOP_DEADLINE_SECONDS", 20.0, minimum=0),
    )
    read.raise_problems()
    return config


def _path(text: str) -> Path | None:
    return Path(text) if text else None


def termination_message_path(env: Mapping[str, str]) -> Path:
    """Where the termination message goes; known even when other settings are wrong."""
    return Path(env.get("TERMINATION_MESSAGE_PATH", "").strip() or DEFAULT_TERMINATION_MESSAGE_PATH)


def cpu_threads(env: Mapping[str, str], local_world_size: int) -> int:
    """Threads for tensor operations: OMP_NUM_THREADS, else this process's share of the usable processors."""
    if env.get("OMP_NUM_THREADS", "").isdigit():
        return max(1, int(env["OMP_NUM_THREADS"]))
    processors = float(len(os.sched_getaffinity(0)))
    quota = _cpu_quota()
    if quota is not None:
        processors = min(processors, quota)
    return max(1, math.floor(processors / max(1, local_world_size)))


def _hyperparameters(read: _Reader) -> Hyperparameters:
    given = _hyperparameters_json(read)
    read = read.below(given)
    return Hyperparameters(
        learning_rate=read.number("LEARNING_RATE", 0.001, above=0),
        batch_size=read.integer("BATCH_SIZE", 64, minimum=1),
        epochs=read.integer("EPOCHS", 10, minimum=1),
        optimizer=read.choice("OPTIMIZER", OPTIMIZERS, "adamw"),
        warmup_steps=read.integer("WARMUP_STEPS", 0, minimum=0),
        gradient_accumulation_steps=read.integer("GRADIENT_ACCUMULATION_STEPS", 1, minimum=1),
        mixed_precision=read.boolean("MIXED_PRECISION", False),
        weight_decay=read.number("WEIGHT_DECAY", None, minimum=0),
        momentum=read.number("MOMENTUM", 0.9, minimum=0),
        dropout=read.number("DROPOUT", 0.0, minimum=0, below=1),
        seed=read.integer("SEED", 42, minimum=0),
        validation_fraction=read.number("VALIDATION_FRACTION", 0.2, above=0, below=1),
        unused=tuple(sorted(set(given) - set(HYPERPARAMETER_NAMES))),
        additional={name: value for name, value in given.items() if name not in HYPERPARAMETER_NAMES},
        learning_rate_given=bool(read.text("LEARNING_RATE")),
    )


def _hyperparameters_json(read: _Reader) -> dict[str, str]:
    source = read.text("HYPERPARAMETERS")
    if not source:
        return {}
    try:
        document = json.loads(source)
    except ValueError as error:
        read.problem("HYPERPARAMETERS", f"is not JSON: {error}")
        return {}
    additional = document.pop("additionalParams", None) or {} if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(additional, dict):
        read.problem("HYPERPARAMETERS", "must be a JSON object, and its additionalParams too")
        return {}
    return {variable_name(name): _plain(value) for name, value in {**additional, **document}.items()}


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


def _topology(read: _Reader) -> Topology:
    world_size = read.integer("WORLD_SIZE", 1, minimum=1, aliases=("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"))
    rank = read.integer(RANK_VARIABLES[0], 0, minimum=0, aliases=RANK_VARIABLES[1:])
    if rank >= world_size:
        read.problem("RANK", f"is {rank}, but must be below WORLD_SIZE, {world_size}")
    backend = read.choice("DIST_BACKEND", BACKENDS, "")
    if world_size > 1 and backend != "mpi":
        read.text("MASTER_ADDR", required=True)
    return Topology(
        master_addr=read.text("MASTER_ADDR", default="127.0.0.1"),
        master_port=read.integer("MASTER_PORT", 29500, minimum=1, maximum=65535),
        world_size=world_size,
        rank=rank,
        parallelism=read.choice("PARALLELISM", PARALLELISMS, "ddp"),
        local_rank=read.integer("LOCAL_RANK", 0, minimum=0, aliases=("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")),
        local_world_size=read.integer("LOCAL_WORLD_SIZE", 1, minimum=1, aliases=("OMPI_COMM_WORLD_LOCAL_SIZE",)),
        backend=backend or None,
        timeout_seconds=read.number("DIST_TIMEOUT_SECONDS", 120.0, above=0),
        rendezvous_timeout_seconds=read.number("RENDEZVOUS_TIMEOUT_SECONDS", 600.0, above=0),
    )


def _checkpoints(read: _Reader) -> CheckpointSettings:
    directory = read.text("CHECKPOINT_DIR")
    return CheckpointSettings(
        directory=Path(directory) if directory else None,
        every_epochs=read.integer("CHECKPOINT_FREQUENCY", 0, minimum=0),
        every_seconds=read.number("CHECKPOINT_INTERVAL", 0.0, minimum=0),
        retention=read.integer("CHECKPOINT_RETENTION", 0, minimum=0),
        resume_from=read.text("RESUME_FROM") or None,
        resume_optional=read.boolean("RESUME_OPTIONAL", False),
    )


def _success(read: _Reader) -> SuccessPolicy:
    metric = read.text("TARGET_METRIC") or None
    if metric and metric not in EPOCH_METRICS:
        read.problem("TARGET_METRIC", f"is {metric!r}, but this worker reports {', '.join(EPOCH_METRICS)}")
    if metric and not read.text("TARGET_VALUE") and not read.text("EARLY_STOPPING_PATIENCE"):
        read.problem("TARGET_VALUE", "is missing although TARGET_METRIC is set")
    value = read.number("TARGET_VALUE", math.nan)
    if not metric and not math.isnan(value):
        read.problem("TARGET_METRIC", "is missing although TARGET_VALUE is set")
    return SuccessPolicy(
        metric=metric,
        value=value,
        mode=read.choice("TARGET_MODE", ("max", "min"), "max"),
        patience=read.integer("EARLY_STOPPING_PATIENCE", 0, minimum=0),
    )


class _Reader:
    """Reads typed values from the environment and collects what is wrong with them. Empty counts as unset."""

    def __init__(self, env: Mapping[str, str], fallback: Mapping[str, str] | None = None) -> None:
        self._env = env
        self._fallback = fallback or {}
        self._problems: list[str] = []

    def below(self, fallback: Mapping[str, str]) -> _Reader:
        """A reader that also looks in ``fallback`` and reports to the same list of problems."""
        reader = _Reader(self._env, fallback)
        reader._problems = self._problems
        return reader

    def problem(self, name: str, what: str) -> None:
        self._problems.append(f"{name} {what}")

    def raise_problems(self) -> None:
        if self._problems:
            raise UsageError("; ".join(dict.fromkeys(self._problems)))

    def text(self, name: str, default: str = "", required: bool = False, aliases: tuple[str, ...] = ()) -> str:
        for candidate in (name, *aliases):
            value = self._env.get(candidate, "").strip() or self._fallback.get(candidate, "").strip()
            if value:
                return value
        if required:
            self.problem(name, "is not set")
        return default

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        value = self.text(name, default).lower()
        if value and value not in choices:
            self.problem(name, f"is {value!r}, but must be one of {', '.join(choices)}")
        return value

    def boolean(self, name: str, default: bool) -> bool:
        value = self.text(name).lower()
        if value in ("true", "1", "yes"):
            return True
        if value not in ("", "false", "0", "no"):
            self.problem(name, f"is {value!r}, but must be true or false")
        return default if value == "" else False

    def integer(self, name: str, default: int, aliases: tuple[str, ...] = (), **bounds: float) -> int:
        return self._parse(name, default, int, "a whole number", aliases, bounds)

    def number(self, name: str, default: Any, **bounds: float) -> Any:
        return self._parse(name, default, float, "a number", (), bounds)

    def _parse(
        self,
        name: str,
        default: T,
        parse: Callable[[str], T],
        kind: str,
        aliases: tuple[str, ...],
        bounds: Mapping[str, float],
    ) -> T:
        source = self.text(name, aliases=aliases)
        if not source:
            return default
        try:
            value = parse(source)
        except ValueError:
            self.problem(name, f"is {source!r}, but must be {kind}")
            return default
        broken = _broken_bound(value, bounds)
        if broken:
            self.problem(name, f"is {source}, but must be {broken}")
            return default
        return value


def _broken_bound(value: Any, bounds: Mapping[str, float]) -> str:
    if not math.isfinite(value):
        return "finite"
    checks = {
        "minimum": (lambda limit: value >= limit, "at least"),
        "maximum": (lambda limit: value <= limit, "at most"),
        "above": (lambda limit: value > limit, "above"),
        "below": (lambda limit: value < limit, "below"),
    }
    for bound, limit in bounds.items():
        holds, words = checks[bound]
        if not holds(limit):
            return f"{words} {limit}"
    return ""


def _cpu_quota() -> float | None:
    """Processors that the container's cgroup (v2 or v1) grants, or None without a limit."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota = Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").read_text().strip()
            period = Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    return None if quota in ("max", "-1") else int(quota) / int(period)
