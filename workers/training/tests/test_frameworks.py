"""Other ways than DDP to train: sharded optimizers, MPI and XGBoost, each with real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import WORKER_ROOT, Process, free_port, wait_for

from training_worker import checkpoints

Start = Callable[..., list[Process]]
XGBOOST = {"FRAMEWORK": "xgboost", "MODEL": "gbtree"}
SHARDED = {"PARALLELISM": "zero"}
FSDP = {"PARALLELISM": "fsdp"}


def has_fsdp() -> bool:
    """Whether this PyTorch can train with FullyShardedDataParallel; the image's can."""
    try:
        import torch.distributed.fsdp  # noqa: F401
    except (ImportError, ValueError):
        return False
    return True


needs_fsdp = pytest.mark.skipif(not has_fsdp(), reason="this PyTorch has no FullyShardedDataParallel that can be loaded")
WAYS = [
    pytest.param(XGBOOST, id="xgboost"),
    pytest.param(SHARDED, id="zero"),
    pytest.param(FSDP, id="fsdp", marks=needs_fsdp),
]
SHARDING = WAYS[1:]


def codes(ranks: list[Process]) -> list[int]:
    return [rank.exit_code() for rank in ranks]


@pytest.mark.parametrize("seconds", [0, 1, 6, 300, 600])
def test_xgboost_looks_for_its_tracker_as_long_as_ranks_wait_for_each_other(seconds: int) -> None:
    from training_worker import boosting_ranks

    tries = boosting_ranks._tries(seconds)
    waits = [2 * before for before in range(1, tries)]
    assert sum(waits) >= seconds
    assert sum(waits[:-1]) < max(seconds, 1)


@pytest.mark.parametrize("framework", WAYS)
def test_ranks_train_together(start: Start, tmp_path: Path, framework: dict[str, str]) -> None:
    settings = {"EPOCHS": 4, "CHECKPOINT_DIR": tmp_path / "checkpoints", "CHECKPOINT_FREQUENCY": 2, **framework}
    ranks = start(ranks=2, fresh=True, **settings)  # each way loads other modules
    assert codes(ranks) == [0, 0]
    message = ranks[0].termination_message()
    assert message["training_epoch"] == 4
    assert message["training_world_size"] == 2
    assert message["training_accuracy"] > 0.85
    assert message["training_checkpoint_epoch"] == 4
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["checkpoint-epoch-2", "checkpoint-epoch-4"]
    for rank in ranks:
        assert "trained 2876 samples" in rank.output, "each rank trains its half of 1438 samples in 4 epochs"


@pytest.mark.parametrize("framework", WAYS)
@pytest.mark.parametrize("told", [0, 1])
def test_sigterm_at_one_rank_saves_and_stops_all(start: Start, tmp_path: Path, framework: dict[str, str], told: int) -> None:
    settings = {"EPOCHS": 6, "CHECKPOINT_DIR": tmp_path / "checkpoints", **framework}
    first = start(ranks=2, STEP_DELAY_SECONDS=0.3, **settings)
    first[0].wait_for_line("epoch 1/6")
    first[told].process.send_signal(signal.SIGTERM)
    assert codes(first) == [143, 143]
    saved = first[0].termination_message()
    assert saved["reason"] == "Terminated"

    second = start(ranks=2, **settings)
    assert codes(second) == [0, 0]
    assert second[0].termination_message()["training_restored_step"] == saved["training_step"]


@pytest.mark.parametrize("framework", WAYS)
def test_a_lost_rank_ends_the_other_with_75(start: Start, framework: dict[str, str]) -> None:
    ranks = start(ranks=2, EPOCHS=50, STEP_DELAY_SECONDS=0.2, DIST_TIMEOUT_SECONDS=10, **framework)
    ranks[0].wait_for_line("epoch 1/50")
    ranks[1].process.kill()
    assert ranks[0].exit_code() == 75


def test_xgboost_resumes_and_ends_where_one_run_does(start: Start, tmp_path: Path) -> None:
    """Rounds depend on the trees before them alone, so that an interrupted training gives the same model."""
    (straight,) = start(EPOCHS=4, CHECKPOINT_DIR=tmp_path / "straight", **XGBOOST)
    assert straight.exit_code() == 0
    for epochs in (2, 4):
        (part,) = start(EPOCHS=epochs, CHECKPOINT_DIR=tmp_path / "parts", **XGBOOST)
        assert part.exit_code() == 0
    assert part.termination_message()["training_restored_step"] == 2
    assert part.termination_message()["training_loss"] == pytest.approx(straight.termination_message()["training_loss"], rel=1e-4)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("framework", SHARDING)
def test_a_sharded_run_gives_what_ddp_gives_and_goes_on_from_its_checkpoints(
    start: Start, tmp_path: Path, framework: dict[str, str], optimizer: str
) -> None:
    losses = {}
    for name, settings in {"ddp": {}, "sharded": framework}.items():
        settings = {**settings, "HYPERPARAMETERS": json.dumps({"optimizer": optimizer, "momentum": 0.9})}
        for epochs in (1, 2):
            ranks = start(ranks=2, EPOCHS=epochs, CHECKPOINT_DIR=tmp_path / name, **settings)
            assert codes(ranks) == [0, 0]
        losses[name] = ranks[0].termination_message()["training_loss"]
    assert losses["sharded"] == pytest.approx(losses["ddp"], rel=1e-3)
    (alone,) = start(EPOCHS=3, CHECKPOINT_DIR=tmp_path / "sharded", **settings)
    assert alone.exit_code() == 0, "a checkpoint of a sharded run is like any other"
    ranks = start(ranks=2, EPOCHS=4, CHECKPOINT_DIR=tmp_path / "sharded", **settings)
    assert codes(ranks) == [0, 0], "and so is any other for a sharded run"
    assert ranks[0].termination_message()["training_loss"] < losses["sharded"]


@pytest.mark.parametrize("framework", SHARDING)
def test_a_sharded_run_saves_on_request(start: Start, tmp_path: Path, framework: dict[str, str]) -> None:
    directory = tmp_path / "checkpoints"
    ranks = start(ranks=2, EPOCHS=3, STEP_DELAY_SECONDS=0.1, CHECKPOINT_DIR=directory, **framework)
    ranks[0].wait_for_line("joined")
    wait_for(directory.exists, "the directory")
    (directory / "checkpoint.request").write_text("now\n")
    wait_for((directory / "checkpoint.request.done").exists, "the answer")
    assert codes(ranks) == [0, 0]
    assert "could not be written" not in ranks[0].output


@needs_fsdp
def test_each_rank_of_fsdp_keeps_its_share_of_the_parameters(start: Start, tmp_path: Path) -> None:
    ranks = start(ranks=2, EPOCHS=1, LOG_LEVEL="debug", **FSDP)
    assert codes(ranks) == [0, 0]
    kept = [int(re.search(r"rank keeps (\d+) of (\d+) parameters", rank.output).group(1)) for rank in ranks]
    whole = int(re.search(r"rank keeps \d+ of (\d+) parameters", ranks[0].output).group(1))
    assert sum(kept) >= whole, "all are kept"
    assert max(kept) < 0.6 * whole, "each by one rank"


def test_ranks_validate_together_when_one_has_nothing_left(start: Start) -> None:
    """359 samples in batches of 179: rank 0 has 180 of them and computes one batch more than rank 1."""
    ranks = start(ranks=2, EPOCHS=1, BATCH_SIZE=179, **(FSDP if has_fsdp() else SHARDED))
    assert codes(ranks) == [0, 0]


def test_fsdp_says_what_it_needs(start: Start, tmp_path: Path) -> None:
    (alone,) = start(EPOCHS=1, **FSDP)
    assert alone.exit_code() == 0, "one rank has nothing to share"
    if has_fsdp():
        return
    ranks = start(ranks=2, EPOCHS=1, **FSDP)
    assert codes(ranks) == [64, 64]
    for rank in ranks:
        assert "use an image with PyTorch 2, or PARALLELISM zero" in rank.output


def test_xgboost_says_what_it_cannot_use(start: Start, tmp_path: Path) -> None:
    (wrong,) = start(FRAMEWORK="xgboost", MODEL="cnn")
    assert wrong.exit_code() == 64
    assert "known with xgboost are gbtree, dart" in wrong.output
    (trained,) = start(EPOCHS=1, CHECKPOINT_DIR=tmp_path / "checkpoints")
    assert trained.exit_code() == 0
    (other,) = start(EPOCHS=2, CHECKPOINT_DIR=tmp_path / "checkpoints", FRAMEWORK="xgboost", MODEL="gbtree")
    assert other.exit_code() == 65


def test_additional_hyperparameters_go_to_xgboost(start: Start) -> None:
    (deep,) = start(EPOCHS=2, HYPERPARAMETERS='{"additionalParams": {"max_depth": "6"}}', **XGBOOST)
    (flat,) = start(EPOCHS=2, HYPERPARAMETERS='{"additionalParams": {"maxDepth": "1"}}', **XGBOOST)
    assert codes([deep, flat]) == [0, 0]
    assert flat.termination_message()["training_loss"] > deep.termination_message()["training_loss"]


def mpirun(tmp_path: Path, ranks: int, **env: Any) -> Process:
    """All ranks of an MPI job, as the message and output of rank 0."""
    process = Process.__new__(Process)
    process._log, process._message = tmp_path / "mpirun.log", tmp_path / "mpirun.termination"
    settings = {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(WORKER_ROOT), "PYTHONDONTWRITEBYTECODE": "1",
        "MODEL": "mlp", "DATASET": "digits", "METRICS_PORT": "0", "OMP_NUM_THREADS": "1", "FRAMEWORK": "mpi", "DIST_BACKEND": "mpi",
        "TERMINATION_MESSAGE_PATH": str(process._message), "STOP_DEADLINE_SECONDS": "1", "OMPI_MCA_mpi_yield_when_idle": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_plm_rsh_agent": "/bin/false",
        "OMPI_MCA_btl": "self,vader", **{name: str(value) for name, value in env.items()},
    }  # fmt: skip
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), "--host", f"{socket.gethostname()}:{ranks}"]
    with open(process._log, "wb") as log:
        process.process = subprocess.Popen([*command, sys.executable, "-m", "training_worker"], env=settings, stdout=log, stderr=log)
    return process


def test_ranks_train_together_over_mpi_and_resume(tmp_path: Path) -> None:
    settings = {"CHECKPOINT_DIR": tmp_path / "checkpoints", "CHECKPOINT_FREQUENCY": 1}
    job = mpirun(tmp_path, 2, EPOCHS=2, **settings)
    assert job.exit_code() == 0, job.output
    assert "rank 1 of 2 joined, backend mpi" in job.output
    assert job.termination_message()["training_world_size"] == 2
    more = mpirun(tmp_path, 2, EPOCHS=4, **settings)
    assert more.exit_code() == 0, more.output
    message = more.termination_message()
    assert message["training_restored_step"] > 0
    assert message["training_accuracy"] > 0.85
    newest = checkpoints.verify(tmp_path / "checkpoints" / "checkpoint-epoch-4")
    assert newest.manifest["worldSize"] == 2


def test_mpi_gives_what_gloo_gives(start: Start, tmp_path: Path) -> None:
    job = mpirun(tmp_path, 2, EPOCHS=2)
    ranks = start(ranks=2, EPOCHS=2)
    assert (job.exit_code(), codes(ranks)) == (0, [0, 0])
    assert job.termination_message()["training_loss"] == pytest.approx(ranks[0].termination_message()["training_loss"], rel=1e-3)
