"""The worker as it runs in a pod: a process that is configured by its environment and ended by SIGTERM."""

from __future__ import annotations

import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Process, wait_for
from protocol_server import Server

from pool_worker import settings
from pool_worker.errors import SettingsError

Start = Callable[..., Process]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except urllib.error.URLError:
        return 0, ""


def test_tasks_of_all_types_run(server: Server, process: Start) -> None:
    port = free_port()
    worker = process(METRICS_PORT=str(port))
    jobs = [
        server.submit("inference", {"indices": [0, 1, 2]}),
        server.submit("evaluation"),
        server.submit("simulation", {"sensor": "temperature", "duration_seconds": 3600}),
        server.submit("training", {"model": "mlp", "epochs": 2, "hyperparameters": {"learningRate": 0.01}}),
    ]
    inference, evaluation, simulation, training = (server.wait(job, "succeeded", "failed", seconds=90) for job in jobs)
    assert [job.message for job in jobs] == [""] * 4, worker.output
    assert inference.result["predictions"] == inference.result["labels"]
    assert evaluation.result["accuracy"] > 0.97
    assert simulation.result["readings"] == 3600
    assert training.result["metrics"]["accuracy"] > 0.8
    assert get(port, "/healthz")[0] == 200
    assert get(port, "/readyz")[0] == 200
    # A task is counted when the service's answer to its end is there, and the service knows of the end before.
    counted = 'worker_jobs_processed_total{job_type="training",status="succeeded"} 1'
    wait_for(lambda: counted in get(port, "/metrics")[1], "the count of the training")
    worker.process.send_signal(signal.SIGTERM)
    assert worker.process.wait(20) == 0


def test_only_the_types_that_were_asked_for_are_taken(server: Server, process: Start) -> None:
    process(JOB_TYPES="simulation, inference")
    training = server.submit("training", {})
    server.wait(server.submit("simulation", {"duration_seconds": 1}), "succeeded")
    assert training.status == "queued"


def test_a_training_that_is_ended_is_given_back_with_a_checkpoint(server: Server, process: Start) -> None:
    worker = process(GRACE_SECONDS="0", STEP_DELAY_SECONDS="0.01")
    job = server.submit("training", {"model": "mlp", "epochs": 500, "checkpoint_dir": "kept"})
    wait_for(lambda: '"event": "epoch"' in worker.output, "an epoch", seconds=60)
    worker.process.send_signal(signal.SIGTERM)
    assert worker.process.wait(30) == 0
    assert (job.status, job.retryable) == ("failed", True)
    # Another worker that sees the same files goes on from there.
    server.revoke(job)
    job.config = {**job.config, "epochs": 2}
    process(STEP_DELAY_SECONDS="0")
    server.wait(job, "succeeded", seconds=60)
    assert job.result["metrics"]["restored_step"] > 0


STUBBORN = """
import pathlib, time
from pool_worker import heartbeat, run

heartbeat.STUBBORN_SECONDS = 0.3

def stuck(task, context):
    time.sleep(600)

def long(task, context):
    while not pathlib.Path(task.config["until"]).exists():
        context.check()
        time.sleep(0.01)
    return {"finished": True}

run({"simulation": stuck, "inference": long})
"""


@pytest.mark.parametrize("why", ["timeout", "cancelled", "lease lost"])
def test_a_handler_that_does_not_stop_has_the_worker_started_anew(
    server: Server, process: Start, tmp_path: Path, why: str
) -> None:
    server.visibility = 0.6
    port, until = free_port(), tmp_path / "until"
    worker = process("-c", STUBBORN, CONCURRENCY="2", METRICS_PORT=str(port))
    other = server.wait(server.submit("inference", {"until": str(until)}), "running")
    assert get(port, "/healthz")[0] == 200
    stuck = server.wait(server.submit("simulation", timeout_seconds=0.3 if why == "timeout" else 0), "running")
    stuck.job_type = "training"  # so that this worker does not take it again
    if why == "cancelled":
        stuck.cancel = True
    elif why == "lease lost":
        server.revoke(stuck)
    wait_for(lambda: '"event": "stubborn"' in worker.output, "the handler to be given up")
    assert get(port, "/healthz")[0] == 503
    until.touch()  # the other task may end
    assert worker.process.wait(20) == 70
    assert (other.status, other.result) == ("succeeded", {"finished": True}), worker.output


def test_wrong_settings_end_the_worker_and_are_all_named(process: Start) -> None:
    worker = process(JOB_SERVICE_URL="ftp://x", QUEUE="", CONCURRENCY="many", JOB_TYPES="cooking")
    assert worker.process.wait(20) == 64
    for name in ("JOB_SERVICE_URL", "QUEUE", "CONCURRENCY"):
        assert name in worker.output
    worker = process(JOB_TYPES="cooking")
    assert worker.process.wait(20) == 64
    assert "JOB_TYPES names cooking" in worker.output


def test_defaults() -> None:
    loaded = settings.load({"JOB_SERVICE_URL": "http://s:8000/", "QUEUE": "q"})
    assert loaded.service_url == "http://s:8000"
    assert loaded.worker_id == socket.gethostname()
    assert (loaded.concurrency, loaded.lease_wait, loaded.metrics_port, loaded.job_types) == (1, 20, 8080, ())
    with pytest.raises(SettingsError, match="QUEUE is not set"):
        settings.load({"JOB_SERVICE_URL": "http://s:8000/"})
