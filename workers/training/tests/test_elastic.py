"""Elastic trainings in real processes: replicas come, go, fail and come back."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import WORKER_ROOT, Process, free_port, wait_for
from training_worker import rendezvous
from training_worker.errors import UsageError


class Job:
    """The replicas of one elastic job."""

    def __init__(self, directory: Path, least: int, most: int, **env: object) -> None:
        self._directory = directory
        self._started = 0
        self._env = {
            "MODEL": "mlp",
            "PET_NNODES": f"{least}:{most}",
            "PET_NPROC_PER_NODE": "1",
            "PET_RDZV_BACKEND": "c10d",
            "PET_RDZV_ENDPOINT": f"127.0.0.1:{free_port()}",
            "PET_RDZV_ID": "job",
            "PET_RDZV_CONF": "last_call_timeout=1",
            "PET_MONITOR_INTERVAL": "0.3",
            "STEP_DELAY_SECONDS": "0.05",
            "CHECKPOINT_DIR": str(directory / "ck"),
            "CHECKPOINT_FREQUENCY": "100",
            **{name: str(value) for name, value in env.items()},
        }
        self.replicas: list[Process] = []

    def start(self, *indexes: int, fresh: bool = False) -> list[Process]:
        """Start replicas, as pods with these indexes. They and their ranks are forked, unless they are to be ``fresh``."""
        started = []
        for index in indexes:
            self._started += 1
            env = {**self._env, "PET_NODE_RANK": str(index)}
            name = f"{self._started}-replica{index}"
            started.append(Process(self._directory, name, env, session=True, fresh=fresh, fork_ranks=True))
        self.replicas.extend(started)
        return started

    def store_answers(self) -> bool:
        """Whether replica 0 serves the store by which replicas meet."""
        host, _, port = str(self._env["PET_RDZV_ENDPOINT"]).partition(":")
        with socket.socket() as connection:
            return connection.connect_ex((host, int(port))) == 0

    def checkpoints(self) -> list[int]:
        """The steps of the checkpoints, in order."""
        manifests = (self._directory / "ck").glob("checkpoint-*/manifest.json")
        return sorted(json.loads(manifest.read_text())["step"] for manifest in manifests)


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[type[Job]]:
    made: list[Job] = []

    def make(*args: int, **env: object) -> Job:
        made.append(Job(tmp_path, *args, **env))
        return made[-1]

    yield make
    for job in made:
        for replica in job.replicas:
            kill_pod(replica)


def kill_pod(replica: Process) -> None:
    """End the agent and its ranks without a word, as the end of a container does."""
    try:
        os.killpg(replica.process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    replica.process.wait()


def worlds(replica: Process) -> list[str]:
    """The replicas of each round that this one has trained in."""
    return re.findall(r"round \d+: replicas ([\d, ]+) train", replica.output)


def trains_in(replica: Process, world: str) -> None:
    wait_for(lambda: world in worlds(replica)[-1:] and replica.output.split(f"replicas {world} train")[-1].count("joined"),
             f"the world {world} in {replica.output}")  # fmt: skip


def resumes_in(replica: Process, world: str) -> int:
    """The step at which the replica goes on, once it trains in this world."""
    trains_in(replica, world)
    wait_for(lambda: "restored at" in replica.output.split(f"replicas {world} train")[-1], f"to resume in {replica.output}")
    return restored_steps(replica)[-1]


def restored_steps(replica: Process) -> list[int]:
    return [int(step) for step in re.findall(r"restored at epoch \d+ step (\d+)", replica.output)]


def test_a_job_grows_and_shrinks_without_losing_a_step(jobs: type[Job]) -> None:
    job = jobs(1, 4, EPOCHS=60)
    first, second = job.start(0, 1)
    trains_in(first, "0, 1")
    time.sleep(1)
    third, fourth = job.start(2, 3)
    grown = resumes_in(first, "0, 1, 2, 3")
    assert job.checkpoints()[-1] >= grown > 0, "the ranks saved before they let the others in"
    time.sleep(1)
    for replica in (third, fourth):
        replica.process.send_signal(signal.SIGTERM)
    assert [third.exit_code(), fourth.exit_code()] == [143, 143], third.output
    shrunk = job.checkpoints()[-1]
    assert resumes_in(first, "0, 1") == shrunk > grown
    assert resumes_in(second, "0, 1") == shrunk
    # A rank that is told to stop before its first step ends at once, and the other loses it.
    wait_for(lambda: "loss=" in first.output.split("restored at")[-1], f"an epoch in {first.output}")
    for replica in (first, second):
        assert replica.process.poll() is None, "those that stay are not started again"
        replica.process.send_signal(signal.SIGTERM)
    assert [first.exit_code(), second.exit_code()] == [143, 143]
    message = first.termination_message()
    assert (message["reason"], message["training_world_size"]) == ("Terminated", 2)
    assert message["training_step"] == message["training_checkpoint_step"]


def test_the_others_go_on_when_a_replica_is_killed_and_it_rejoins(jobs: type[Job]) -> None:
    job = jobs(1, 2, EPOCHS=60)
    first, second = job.start(0, 1)
    trains_in(first, "0, 1")
    time.sleep(1)
    kill_pod(second)
    lost = resumes_in(first, "0")
    assert lost > 0, "replica 0 saved the last complete step"
    (again,) = job.start(1)
    assert resumes_in(again, "0, 1") >= lost


def test_a_failure_of_the_training_ends_its_replica_with_its_code_and_only_that(jobs: type[Job]) -> None:
    job = jobs(1, 2, EPOCHS=60)
    first, second = job.start(0, 1)
    trains_in(second, "0, 1")
    time.sleep(1)
    children = Path(f"/proc/{second.process.pid}/task/{second.process.pid}/children").read_text().split()
    os.kill(int(children[-1]), signal.SIGKILL)  # before its rank, a forked agent has a child that forks ranks
    assert second.exit_code() == 137, second.output
    assert second.termination_message()["message"] == "process 0 of replica 1 was killed by SIGKILL"
    assert "left without telling the others" not in second.output, second.output
    begin = time.monotonic()
    trains_in(first, "0")
    assert time.monotonic() - begin < 15, "it told the others that it left"


def test_all_replicas_of_a_training_that_is_done_end_well(jobs: type[Job]) -> None:
    job = jobs(2, 2, EPOCHS=1, STEP_DELAY_SECONDS=0)
    replicas = job.start(1, 0, fresh=True)  # the agent itself starts Python
    assert [replica.exit_code() for replica in replicas] == [0, 0], replicas[0].output + replicas[1].output
    assert replicas[1].termination_message()["reason"] == "Completed"


def test_the_others_end_when_replica_0_is_lost(jobs: type[Job]) -> None:
    first, second = jobs(1, 2, EPOCHS=60).start(0, 1)
    trains_in(second, "0, 1")
    kill_pod(first)
    assert second.exit_code() == 75, second.output
    assert second.termination_message()["reason"] == "PeerLost"


def test_a_replica_that_waits_for_others_ends_on_sigterm(jobs: type[Job]) -> None:
    job = jobs(2, 3)
    (only,) = job.start(0)
    wait_for(job.store_answers, "replica 0 to serve the store")
    only.process.send_signal(signal.SIGTERM)
    assert only.exit_code() == 143, only.output
    assert only.termination_message()["reason"] == "Terminated"


def test_a_replica_that_loads_pytorch_ends_on_sigterm(jobs: type[Job]) -> None:
    (only,) = jobs(2, 3).start(0, fresh=True)
    maps = Path(f"/proc/{only.process.pid}/maps")
    wait_for(lambda: "libtorch_cpu" in maps.read_text(), "PyTorch being loaded")
    only.process.send_signal(signal.SIGTERM)
    assert only.exit_code() == 143, only.output
    assert only.termination_message()["reason"] == "Terminated"


def test_a_wrong_setting_is_not_tried_again(jobs: type[Job]) -> None:
    (only,) = jobs(1, 2, LEARNING_RATE=-1).start(0)
    assert only.exit_code() == 64, only.output
    assert "LEARNING_RATE" in only.termination_message()["message"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"PET_RDZV_ENDPOINT": "nowhere"}, "PET_RDZV_ENDPOINT is 'nowhere', but must be host:port"),
        ({"PET_NNODES": "3:2"}, "PET_NNODES is '3:2', but must be minimum:maximum"),
        ({"PET_NODE_RANK": "x"}, "PET_NODE_RANK is 'x', but must be the number of this replica"),
        ({"PET_MAX_RESTARTS": "many"}, "PET_MAX_RESTARTS is 'many', but must be a number"),
    ],
)
def test_wrong_settings_are_named(wrong: dict[str, str], said: str) -> None:
    env = {"PET_RDZV_ENDPOINT": "a:1", "PET_NNODES": "1:2", "PET_NODE_RANK": "0"}
    with pytest.raises(UsageError, match=re.escape(said)):
        rendezvous.load({**env, **wrong})


def test_torchrun_itself_can_run_the_elastic_ranks(tmp_path: Path, image_path: str) -> None:
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
        "TERMINATION_MESSAGE_PATH": str(tmp_path / "message"),
        "PET_NNODES": "1:2",
        "PET_NPROC_PER_NODE": "1",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": f"localhost:{free_port()}",
        "PET_RDZV_ID": "job",
        "PET_RDZV_CONF": "last_call_timeout=5",
        "PET_MAX_RESTARTS": "3",
    }
    agents = [
        subprocess.Popen([*command, "-m", "training_worker"], env=env, cwd=tmp_path, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True)
        for _ in range(2)
    ]  # fmt: skip
    outputs = [agent.communicate(timeout=240)[0] for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], outputs[0] + outputs[1]
    assert "rank 0 of 2 joined" in outputs[0] + outputs[1]
