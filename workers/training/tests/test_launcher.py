"""The launcher that the operator puts into the workers of MPI and Ray: real mpirun, and a stand-in for ray."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import WORKER_ROOT, free_port, wait_for

LAUNCHER = WORKER_ROOT.parent.parent / "controllers" / "trainingjob" / "framework" / "launcher.py"
pytestmark = pytest.mark.skipif(not LAUNCHER.exists(), reason="the operator is not part of this copy")

# A rank that adds up over all, says so, and goes on until it is told to stop, when asked to.
RANK = """
import os, signal, sys, time
from mpi4py import MPI
comm, stop = MPI.COMM_WORLD, []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
assert comm.rank or len(open(os.environ["LAUNCH_HOSTFILE"]).readlines()) == comm.size
print(f"rank {comm.rank} of {comm.size} on replica {os.environ['LAUNCH_REPLICA']}: {comm.allreduce(1)}", flush=True)
if sys.argv[1:] == ["wait"]:
    while not comm.allreduce(len(stop)):
        time.sleep(0.05)
    comm.barrier()
    os._exit(143)
if sys.argv[1:] == ["fail"] and comm.rank == 1:
    os._exit(65)
comm.barrier()
"""

# Like ray as far as the launcher sees it: the head serves, others join it, and stop ends both. It writes what it is told.
RAY = """#!/bin/sh
echo "replica $LAUNCH_REPLICA: ray $*" >>"$RAY_LOG"
case "$*" in
*--head*) : >"$RAY_LOG.head" ;;
*--address=*) test -e "$RAY_LOG.head" || exit 1 ;;
esac
"""


class Replica:
    """One launcher process in a group of its own, as in a container."""

    def __init__(self, directory: Path, number: int, mode: str, program: list[str], env: dict[str, str]) -> None:
        self._log = directory / f"replica-{number}.log"
        with open(self._log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(LAUNCHER), mode, "--", *program],
                env={**env, "LAUNCH_REPLICA": str(number)}, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    @property
    def output(self) -> str:
        return self._log.read_text()

    def exit_code(self) -> int:
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running:\n{self.output}")


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., list[Replica]]]:
    """Start the launchers of a job: ``launch("mpi", 2, program)`` gives one Replica each."""
    started: list[Replica] = []

    def start(mode: str, replicas: int, program: list[str], only: list[int] | None = None, **more: str) -> list[Replica]:
        hosts = [socket.gethostname(), *(f"job-training-{number}.job-headless" for number in range(1, replicas))]
        agent = f"{sys.executable} {LAUNCHER} agent"
        env = {
            "PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": "/tmp",
            "LAUNCH_REPLICAS": str(replicas), "LAUNCH_PORT": str(free_port()), "LAUNCH_PROCESSES": "1",
            "LAUNCH_ADDRESS": "127.0.0.1", "LAUNCH_KEY": "uid", "LAUNCH_HOSTS": ",".join(hosts),
            "OMPI_MCA_plm_rsh_agent": agent, "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
            "OMPI_MCA_orte_leave_session_attached": "1", "OMPI_MCA_mpi_yield_when_idle": "1",
            "OMPI_MCA_odls_base_sigkill_timeout": "1", "OMPI_MCA_btl_tcp_if_include": "lo", "OMPI_MCA_oob_tcp_if_include": "lo",
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **more,
        }  # fmt: skip
        for number in only if only is not None else range(replicas):
            started.append(Replica(tmp_path, number, mode, program, env))
        return started

    yield start
    for replica in started:
        if replica.process.poll() is None:
            replica.process.kill()
            replica.process.wait()


@pytest.fixture
def ranks(tmp_path: Path) -> list[str]:
    """A program of MPI ranks."""
    (tmp_path / "rank.py").write_text(RANK)
    return [sys.executable, str(tmp_path / "rank.py")]


def test_mpirun_reaches_all_replicas_without_ssh(launch: Callable[..., list[Replica]], ranks: list[str]) -> None:
    replicas = launch("mpi", 3, ranks)
    assert [replica.exit_code() for replica in replicas] == [0, 0, 0]
    for number in range(3):
        assert f"rank {number} of 3 on replica {number}: 3" in replicas[0].output


def test_the_job_ends_with_the_code_of_the_rank_that_failed(launch: Callable[..., list[Replica]], ranks: list[str]) -> None:
    replicas = launch("mpi", 2, [*ranks, "fail"])
    assert [replica.exit_code() for replica in replicas] == [65, 0]


@pytest.mark.parametrize(("told", "codes"), [(0, [143, 0]), (1, [143, 143])])
def test_sigterm_at_any_replica_reaches_every_rank(
    launch: Callable[..., list[Replica]], ranks: list[str], told: int, codes: list[int]
) -> None:
    replicas = launch("mpi", 2, [*ranks, "wait"])
    wait_for(lambda: "rank 1 of 2" in replicas[0].output, "both ranks")
    replicas[told].process.send_signal(signal.SIGTERM)
    assert [replica.exit_code() for replica in replicas] == codes


@pytest.mark.parametrize("killed", [0, 1])
def test_a_lost_replica_ends_the_others_with_75(launch: Callable[..., list[Replica]], ranks: list[str], killed: int) -> None:
    replicas = launch("mpi", 2, [*ranks, "wait"])
    wait_for(lambda: "rank 1 of 2" in replicas[0].output, "both ranks")
    replicas[killed].process.kill()
    assert replicas[1 - killed].exit_code() == 75


def test_strangers_are_not_served(launch: Callable[..., list[Replica]], ranks: list[str]) -> None:
    port = str(free_port())
    launch("mpi", 2, ranks, only=[0], LAUNCH_PORT=port, RENDEZVOUS_TIMEOUT_SECONDS="4")
    replicas = launch("mpi", 2, ranks, only=[1], LAUNCH_PORT=port, LAUNCH_KEY="other", RENDEZVOUS_TIMEOUT_SECONDS="2")
    assert [replica.exit_code() for replica in replicas] == [75, 75]
    assert "does not belong to this job" in replicas[1].output
    assert "replica 1 did not come" in replicas[0].output


def test_wrong_settings_are_told(launch: Callable[..., list[Replica]]) -> None:
    assert "cannot be run" in refused(launch("mpi", 1, ["true"], PATH="/nonexistent"))


def test_a_missing_setting_is_told(launch: Callable[..., list[Replica]]) -> None:
    assert "LAUNCH_PORT is 'x', but must be a whole number" in refused(launch("mpi", 1, ["true"], LAUNCH_PORT="x"))


def refused(replicas: list[Replica]) -> str:
    assert replicas[0].exit_code() == 64
    return replicas[0].output


# The stand-in shows what the launcher asks of ray and in which order, not that Ray does it.
@pytest.fixture
def ray(tmp_path: Path) -> dict[str, str]:
    """The environment of a job with Ray."""
    program = tmp_path / "bin" / "ray"
    program.parent.mkdir()
    program.write_text(RAY)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return {
        "PATH": f"{program.parent}:{os.environ['PATH']}", "RAY_LOG": str(tmp_path / "ray.log"), "RAY_ADDRESS": "127.0.0.1:6379",
        "RAY_HEAD_PORT": "6379", "RAY_DASHBOARD_PORT": "8265", "RAY_CLIENT_PORT": "10001", "RAY_NUM_GPUS": "2",
    }  # fmt: skip


def test_the_driver_runs_once_all_have_joined_the_ray_cluster(
    launch: Callable[..., list[Replica]], ray: dict[str, str], tmp_path: Path
) -> None:
    driver = tmp_path / "driver"
    replicas = launch("ray", 3, ["cp", ray["RAY_LOG"], str(driver)], **ray)
    assert [replica.exit_code() for replica in replicas] == [0, 0, 0]
    head, *others = driver.read_text().splitlines()
    assert head == (
        "replica 0: ray start --num-gpus=2 --disable-usage-stats --head --port=6379 --dashboard-host=0.0.0.0 "
        "--dashboard-port=8265 --ray-client-server-port=10001"
    )
    join = "ray start --num-gpus=2 --disable-usage-stats --address=127.0.0.1:6379"
    assert sorted(others) == [f"replica 1: {join}", f"replica 2: {join}"]
    assert Path(ray["RAY_LOG"]).read_text().count("ray stop --force") == 3


def test_the_driver_s_exit_code_is_the_job_s(launch: Callable[..., list[Replica]], ray: dict[str, str]) -> None:
    replicas = launch("ray", 2, ["sh", "-c", "exit 65"], **ray)
    assert [replica.exit_code() for replica in replicas] == [65, 0]


def test_the_driver_is_told_to_stop(launch: Callable[..., list[Replica]], ray: dict[str, str], tmp_path: Path) -> None:
    trap = f"trap 'exit 143' TERM; touch {tmp_path}/started; while :; do sleep 0.1; done"
    replicas = launch("ray", 2, ["sh", "-c", trap], **ray)
    wait_for((tmp_path / "started").exists, "the driver")
    replicas[1].process.send_signal(signal.SIGTERM)
    assert [replica.exit_code() for replica in replicas] == [143, 143]


def test_a_replica_that_cannot_join_ends_the_job(launch: Callable[..., list[Replica]], ray: dict[str, str]) -> None:
    Path(ray["PATH"].split(":")[0], "ray").write_text(RAY.replace("test -e", "false && test -e"))
    replicas = launch("ray", 2, ["true"], **ray)
    assert replicas[0].exit_code() == 75
    assert "did not join the Ray cluster" in replicas[0].output


