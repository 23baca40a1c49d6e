"""Whole trainings in real processes."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import WORKER_ROOT, Process, free_port, wait_for

Start = Callable[..., list[Process]]


def metrics(process: Process) -> dict[str, float]:
    """The samples without labels that a worker serves now; empty once it has ended."""
    port = process.wait_for_line("metrics are served on port").rsplit(" ", 1)[1]
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
    except OSError:
        return {}
    return {name: float(value) for name, value in (line.split(" ") for line in lines if re.match(r"[a-z_]+ ", line))}


def wait_for_step(process: Process, step: int) -> None:
    wait_for(lambda: metrics(process).get("training_step", 0) >= step, f"step {step}")


def checkpoint_names(directory: Path) -> set[str]:
    return {path.name for path in directory.glob("checkpoint-*-*")}


def test_two_ranks_train_and_both_take_part(start: Start, tmp_path: Path) -> None:
    ranks = start(2, fresh=True, MODEL="cnn", EPOCHS=4, LEARNING_RATE=0.005, CHECKPOINT_DIR=tmp_path / "ck",
                  CHECKPOINT_RETENTION=2, CHECKPOINT_FREQUENCY=1)  # fmt: skip
    assert [rank.exit_code() for rank in ranks] == [0, 0], ranks[0].output + ranks[1].output
    for number, rank in enumerate(ranks):
        assert f"rank {number} of 2 joined, backend gloo, shard of 719 samples" in rank.output
        assert f"rank {number} trained {4 * 719} samples" in rank.output
    assert checkpoint_names(tmp_path / "ck") == {"checkpoint-epoch-3", "checkpoint-epoch-4"}
    message = ranks[0].termination_message()
    assert (message["reason"], message["training_epoch"], message["training_progress_ratio"]) == ("Completed", 4, 1.0)
    assert message["training_accuracy"] > 0.8
    assert message["training_checkpoint_path"].endswith("checkpoint-epoch-4")


def test_sigterm_at_one_rank_stops_all_and_training_resumes_at_that_step(start: Start, tmp_path: Path) -> None:
    settings = {"EPOCHS": 3, "DROPOUT": 0.2, "OPTIMIZER": "adamw"}
    reference = start(2, **settings)
    assert [rank.exit_code() for rank in reference] == [0, 0]

    settings |= {"CHECKPOINT_DIR": tmp_path / "ck"}
    # Not forked: signals are blocked before PyTorch loads, which may start threads.
    first = start(2, fresh=True, STEP_DELAY_SECONDS=0.05, **settings)
    wait_for_step(first[0], 15)
    first[1].process.send_signal(signal.SIGTERM)
    assert [rank.exit_code() for rank in first] == [143, 143], first[0].output
    message = first[0].termination_message()
    step = message["training_step"]
    assert message["reason"] == "Terminated" and "SIGTERM at rank 1" in message["message"]
    assert message["training_checkpoint_step"] == step >= 15
    (name,) = checkpoint_names(tmp_path / "ck")
    manifest = json.loads((tmp_path / "ck" / name / "manifest.json").read_text())
    assert (manifest["step"], manifest["worldSize"]) == (step, 2)

    second = start(2, **settings)
    assert [rank.exit_code() for rank in second] == [0, 0], second[0].output
    assert f"restored at epoch {step // 12} step {step} from" in second[0].output
    assert f"restored at epoch {step // 12} step {step} from" in second[1].output
    expected, resumed = reference[0].termination_message(), second[0].termination_message()
    assert resumed["training_step"] == expected["training_step"] == 36
    assert resumed["training_restored_step"] == step
    for figure in ("training_loss", "training_accuracy"):
        assert resumed[figure] == pytest.approx(expected[figure], rel=1e-5)
    samples = [int(re.search(r"trained (\d+) samples", run[0].output).group(1)) for run in (first, second)]
    assert sum(samples) == 3 * 719, "no sample is repeated or skipped"


@pytest.mark.parametrize("killed", [0, 1])
def test_the_survivor_of_a_killed_rank_ends_soon_and_a_restart_resumes(
    start: Start, tmp_path: Path, killed: int
) -> None:
    settings = {"EPOCHS": 4, "CHECKPOINT_DIR": tmp_path / "ck", "CHECKPOINT_FREQUENCY": 1}
    ranks = start(2, STEP_DELAY_SECONDS=0.05, **settings)
    wait_for_step(ranks[0], 14)
    wait_for(lambda: checkpoint_names(tmp_path / "ck"), "a checkpoint")
    ranks[killed].process.kill()
    survivor = ranks[1 - killed]
    assert survivor.exit_code(10) == 75, survivor.output
    assert survivor.termination_message()["reason"] == "PeerLost"
    if killed == 1:
        assert survivor.termination_message()["training_checkpoint_step"] >= 14
    again = start(2, **settings)
    assert [rank.exit_code() for rank in again] == [0, 0], again[0].output
    message = again[0].termination_message()
    assert message["training_restored_step"] >= 12
    assert message["training_step"] == 48


def test_a_request_file_gets_a_checkpoint_of_this_moment(start: Start, tmp_path: Path) -> None:
    directory = tmp_path / "ck"
    (worker,) = start(1, EPOCHS=50, STEP_DELAY_SECONDS=0.03, CHECKPOINT_DIR=directory)
    wait_for_step(worker, 2)
    (directory / "checkpoint.request").write_text("now-1\n")
    wait_for(lambda: not (directory / "checkpoint.request").exists(), "the request to be served")
    answer = json.loads((directory / "checkpoint.request.done").read_text())
    assert answer["id"] == "now-1"
    assert answer["checkpoint"] in checkpoint_names(directory)
    assert answer["step"] >= 2
    figures = metrics(worker)
    assert figures["training_checkpoint_step"] == answer["step"]
    assert 0 < figures["training_progress_ratio"] < 1
    worker.process.send_signal(signal.SIGTERM)
    assert worker.exit_code() == 143


def test_checkpoints_are_taken_by_time(start: Start, tmp_path: Path) -> None:
    (worker,) = start(
        1, EPOCHS=100, STEP_DELAY_SECONDS=0.02, CHECKPOINT_DIR=tmp_path / "ck", CHECKPOINT_INTERVAL=0.3,
        CHECKPOINT_RETENTION=2,
    )  # fmt: skip
    wait_for(lambda: worker.output.count(" saved: ") >= 4, "four checkpoints")
    worker.process.send_signal(signal.SIGTERM)
    assert worker.exit_code() == 143
    assert len(checkpoint_names(tmp_path / "ck")) == 2


@pytest.mark.parametrize(
    ("setting", "code", "words"),
    [
        ({"MODEL": "bert"}, 64, "MODEL 'bert' is unknown: known are cnn, mlp, resnet-tiny"),
        ({"DATASET": "imagenet"}, 64, "DATASET 'imagenet' is unknown: known are digits"),
        ({"DIST_BACKEND": "nccl", "WORLD_SIZE": "2"}, 64, "DIST_BACKEND nccl"),
        ({"RESUME_FROM": "/no/such/place"}, 65, "RESUME_FROM /no/such/place: there is no such directory"),
    ],
)
def test_what_cannot_work_fails_at_once_and_says_why(
    start: Start, setting: dict[str, str], code: int, words: str
) -> None:
    (worker,) = start(1, **setting)
    assert worker.exit_code() == code, worker.output
    message = worker.termination_message()
    assert message["reason"] == "Error" and words in message["message"]


def test_training_begins_anew_when_there_is_nothing_to_resume_from_and_need_not_be(start: Start, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for place in (tmp_path / "none", tmp_path / "empty"):
        (worker,) = start(1, EPOCHS=1, RESUME_FROM=place, RESUME_OPTIONAL="true")
        assert worker.exit_code() == 0, worker.output


def test_every_rank_learns_that_the_checkpoint_cannot_be_used(start: Start, tmp_path: Path) -> None:
    (first,) = start(1, MODEL="mlp", EPOCHS=1, CHECKPOINT_DIR=tmp_path / "ck")
    assert first.exit_code() == 0
    ranks = start(2, MODEL="cnn", EPOCHS=1, RESUME_FROM=tmp_path)
    assert [rank.exit_code() for rank in ranks] == [65, 65]
    assert "was made with model 'mlp', but this job has 'cnn'" in ranks[1].termination_message()["message"]


def test_another_number_of_ranks_goes_on_in_the_middle_of_an_epoch(start: Start, tmp_path: Path) -> None:
    (first,) = start(1, EPOCHS=2, STEP_DELAY_SECONDS=0.05, CHECKPOINT_DIR=tmp_path / "ck")
    wait_for_step(first, 5)
    first.process.send_signal(signal.SIGTERM)
    assert first.exit_code() == 143
    ranks = start(2, EPOCHS=2, CHECKPOINT_DIR=tmp_path / "own", RESUME_FROM=tmp_path / "ck")
    assert [rank.exit_code() for rank in ranks] == [0, 0], ranks[0].output
    trained = sum(int(re.search(r"trained (\d+) samples", run.output).group(1)) for run in (first, *ranks))
    assert trained == 2 * 1438
    assert "checkpoint-epoch-2" in checkpoint_names(tmp_path / "own")


def test_a_worker_that_waits_for_others_ends_on_sigterm(start: Start) -> None:
    (lonely,) = start(1, WORLD_SIZE=2, RANK=1, MASTER_ADDR="no-such-host.invalid")
    lonely.wait_for_line("rank 1 starts")
    lonely.process.send_signal(signal.SIGTERM)
    assert lonely.exit_code(5) == 143
    assert lonely.termination_message()["reason"] == "Terminated"


def test_waiting_for_others_is_bounded(start: Start) -> None:
    (lonely,) = start(1, WORLD_SIZE=2, RANK=0, RENDEZVOUS_TIMEOUT_SECONDS=0.5)
    assert lonely.exit_code() == 75
    assert "waiting for rank 1" in lonely.termination_message()["message"]


def test_a_stuck_rank_ends_by_its_deadline_with_a_checkpoint(start: Start, tmp_path: Path) -> None:
    ranks = start(2, EPOCHS=20, STEP_DELAY_SECONDS=0.05, STOP_DEADLINE_SECONDS=0.5, CHECKPOINT_DIR=tmp_path / "ck")
    wait_for_step(ranks[0], 3)
    ranks[1].process.send_signal(signal.SIGSTOP)
    ranks[0].process.send_signal(signal.SIGTERM)
    assert ranks[0].exit_code(15) == 143, ranks[0].output
    assert ranks[0].termination_message()["training_checkpoint_step"] >= 3


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ({"TARGET_METRIC": "accuracy", "TARGET_VALUE": 0.5}, "TargetReached"),
        ({"EARLY_STOPPING_PATIENCE": 1, "LEARNING_RATE": 1e-12}, "EarlyStopped"),
    ],
)
def test_success_policies_end_training_with_a_checkpoint(
    start: Start, tmp_path: Path, policy: dict[str, object], reason: str
) -> None:
    settings = {"EPOCHS": 30, "LEARNING_RATE": 0.01, **policy, "CHECKPOINT_DIR": tmp_path / "ck"}
    ranks = start(2, **settings)
    assert [rank.exit_code() for rank in ranks] == [0, 0], ranks[0].output
    message = ranks[0].termination_message()
    assert message["reason"] == reason and message["training_epoch"] < 30
    assert len(checkpoint_names(tmp_path / "ck")) == 1
    (again,) = start(1, **settings)
    assert again.exit_code() == 0
    assert again.termination_message()["reason"] == reason, "a finished job does not train on when it is run again"


def test_accumulated_batches_equal_one_large_batch(start: Start) -> None:
    (large,) = start(1, EPOCHS=1, BATCH_SIZE=64)
    (small,) = start(1, EPOCHS=1, BATCH_SIZE=16, GRADIENT_ACCUMULATION_STEPS=4)
    assert [large.exit_code(), small.exit_code()] == [0, 0]
    losses = [worker.termination_message()["training_loss"] for worker in (large, small)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.parametrize(
    ("optimizer", "extra"), [("sgd", {"MIXED_PRECISION": "true"}), ("rmsprop", {"WARMUP_STEPS": 9})]
)
def test_other_optimizers_train_and_resume(
    start: Start, tmp_path: Path, optimizer: str, extra: dict[str, object]
) -> None:
    settings = {"MODEL": "resnet-tiny", "OPTIMIZER": optimizer, "CHECKPOINT_DIR": tmp_path / "ck", **extra}
    for epochs in (1, 2):
        (worker,) = start(1, EPOCHS=epochs, **settings)
        assert worker.exit_code() == 0, worker.output
    assert worker.termination_message()["training_restored_step"] == 23


def test_one_process_per_gpu_without_torchrun(start: Start) -> None:
    (replica,) = start(1, EPOCHS=1, PET_NPROC_PER_NODE=2)  # it is forked, and starts Python for its ranks
    assert replica.exit_code() == 0, replica.output
    assert "rank 0 trained 719 samples" in replica.output and "rank 1 trained 719 samples" in replica.output


def test_torchrun_starts_the_ranks(tmp_path: Path, image_path: str) -> None:
    # --redirects and --tee: PyTorch 1.13 cannot read their default under Python 3.11.
    command = [sys.executable, "-m", "torch.distributed.run", "--redirects=1", "--tee=1", f"--log_dir={tmp_path}"]
    env = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": image_path,
        "MODEL": "mlp",
        "DATASET": "digits",
        "EPOCHS": "1",
        "METRICS_PORT": "0",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "TERMINATION_MESSAGE_PATH": str(tmp_path / "message"),
        "PET_NNODES": "1",
        "PET_NPROC_PER_NODE": "2",
        "PET_NODE_RANK": "0",
        "PET_MASTER_ADDR": "127.0.0.1",
        "PET_MASTER_PORT": str(free_port()),
    }
    done = subprocess.run(
        [*command, "-m", "training_worker"], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rank 0 trained 719 samples" in done.stdout and "rank 1 trained 719 samples" in done.stdout
