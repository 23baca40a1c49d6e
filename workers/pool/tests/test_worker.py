"""The loop of a pooled worker, against a real HTTP server that speaks the protocol."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Running, wait_for
from protocol_server import Server

from pool_worker.errors import ConfigError, TaskError
from pool_worker.tasks import Context, Task

Work = Callable[..., Running]


def double(task: Task, _: Context) -> dict[str, Any]:
    return {"doubled": 2 * task.config["number"], "attempt": task.attempt}


def until_stopped(task: Task, context: Context) -> dict[str, Any]:
    while True:
        context.check()
        time.sleep(0.01)


def test_a_task_is_leased_run_and_completed(server: Server, work: Work) -> None:
    work({"simulation": double})
    job = server.wait(server.submit("simulation", {"number": 21}), "succeeded")
    assert (job.result, job.worker) == ({"doubled": 42, "attempt": 1}, "w")


def test_one_connection_serves_many_tasks(server: Server, work: Work) -> None:
    running = work({"simulation": double})
    jobs = [server.submit("simulation", {"number": i}) for i in range(50)]
    for job in jobs:
        server.wait(job, "succeeded")
    running.stop()
    # One for the slot, and one for each heartbeat that was sent; such short tasks need none.
    assert server.connections == 1


def test_several_tasks_run_side_by_side(server: Server, work: Work) -> None:
    together = threading.Barrier(3, timeout=10)

    def meet(_: Task, __: Context) -> dict[str, Any]:
        together.wait()
        return {}

    work({"simulation": meet}, CONCURRENCY="3")
    for job in [server.submit("simulation") for _ in range(3)]:
        server.wait(job, "succeeded")


@pytest.mark.parametrize(
    ("error", "retryable"),
    [
        (TaskError("the disk is full"), True),
        (ConfigError("config.number: is missing"), False),
        (ValueError("oh"), True),
    ],
)
def test_a_failure_says_why_and_whether_to_try_again(
    server: Server, work: Work, error: Exception, retryable: bool
) -> None:
    def fail(_: Task, __: Context) -> dict[str, Any]:
        raise error

    work({"simulation": fail})
    job = server.wait(server.submit("simulation"), "failed")
    assert str(error) in job.message
    assert job.retryable is retryable


@pytest.mark.parametrize(("result", "what"), [({"x": float("nan")}, "JSON"), ([1], "list"), ({"x": object()}, "JSON")])
def test_a_result_that_is_no_json_object_fails_for_good(server: Server, work: Work, result: Any, what: str) -> None:
    work({"simulation": lambda *_: result})
    job = server.wait(server.submit("simulation"), "failed")
    assert what in job.message
    assert job.retryable is False


def test_a_result_that_is_refused_fails_for_good(server: Server, work: Work) -> None:
    server.too_large = 100
    work({"simulation": lambda *_: {"x": "x" * 200}})
    job = server.wait(server.submit("simulation"), "failed")
    assert "too large" in job.message
    assert job.retryable is False


def test_heartbeats_keep_a_lease_that_is_shorter_than_the_task(server: Server, work: Work) -> None:
    server.visibility = 2.0

    def long(_: Task, __: Context) -> dict[str, Any]:
        # Without heartbeats the lease would be over, and the job would be given again, before the task ends.
        wait_for(lambda: job.heartbeats and job.heartbeats[-1] > job.heartbeats[0] + server.visibility, "heartbeats")
        return {}

    job = server.submit("simulation")
    work({"simulation": long})
    server.wait(job, "succeeded")
    assert job.attempts == 1


def test_a_cancelled_task_stops(server: Server, work: Work) -> None:
    server.visibility = 0.3
    running = work({"simulation": until_stopped})
    job = server.wait(server.submit("simulation"), "running")
    job.cancel = True
    wait_for(lambda: running.events("task-end"), "the end of the task")
    assert running.events("task-end")[0]["status"] == "cancelled"
    assert job.status == "running", "the service, which knows that it is cancelled, is told nothing"
    # The worker goes on with the next.
    server.submit("simulation")
    wait_for(lambda: len(running.events("task")) == 2, "the next task")


def test_a_lost_lease_stops_the_work(server: Server, work: Work) -> None:
    server.visibility = 0.3
    running = work({"simulation": until_stopped, "inference": double})
    job = server.wait(server.submit("simulation"), "running")
    job.job_type = "training"  # so that this worker does not take it again
    server.revoke(job)
    wait_for(lambda: running.events("task-end"), "the end of the task")
    assert running.events("task-end")[0]["status"] == "lost"
    assert 'status="lost"} 1' in running.metrics.render()


def test_the_result_of_a_lost_lease_is_thrown_away(server: Server, work: Work) -> None:
    """The fence: a worker that was away, and comes back late, changes nothing."""
    server.visibility = 30  # no heartbeat tells it before
    go_on = threading.Event()

    def late(_: Task, __: Context) -> dict[str, Any]:
        go_on.wait(10)
        return {"late": True}

    running = work({"simulation": late})
    job = server.wait(server.submit("simulation"), "running")
    job.job_type = "training"
    server.revoke(job)
    go_on.set()
    wait_for(lambda: running.events("task-end"), "the end of the task")
    assert running.events("task-end")[0]["status"] == "lost"
    assert (job.status, job.result) == ("queued", None)


def test_work_stops_before_an_unreachable_service_can_give_the_task_away(server: Server, work: Work) -> None:
    server.visibility = 3.0
    running = work({"simulation": until_stopped})
    job = server.wait(server.submit("simulation"), "running")
    wait_for(lambda: job.heartbeats, "a heartbeat")
    server.broken = "drop"
    wait_for(lambda: running.events("lease-lost"), "the lost lease")


@pytest.mark.parametrize("fault", ["503", "drop"])
def test_a_result_outlives_an_outage(server: Server, work: Work, fault: str) -> None:
    def break_service(_: Task, __: Context) -> dict[str, Any]:
        server.broken = fault
        threading.Timer(1.0, lambda: setattr(server, "broken", "")).start()
        return {"kept": True}

    running = work({"simulation": break_service})
    job = server.wait(server.submit("simulation"), "succeeded")
    assert job.result == {"kept": True}
    assert job.attempts == 1
    assert running.events("report")


def test_tasks_are_taken_again_after_an_outage(server: Server, work: Work) -> None:
    server.broken = "503"
    running = work({"simulation": double})
    wait_for(lambda: running.events("lease"), "a failed lease")
    assert not running.metrics.ready
    server.broken = ""
    server.wait(server.submit("simulation", {"number": 1}), "succeeded")
    assert running.metrics.ready


def test_the_token_is_read_anew(server: Server, work: Work, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    server.token = "old"
    running = work({"simulation": double}, JOB_SERVICE_TOKEN_FILE=str(token))
    server.wait(server.submit("simulation", {"number": 1}), "succeeded")
    server.token = "new"
    wait_for(lambda: any("401" in event["message"] for event in running.events("lease")), "a refusal")
    token.write_text("new\n")
    server.wait(server.submit("simulation", {"number": 2}), "succeeded")


def test_a_task_that_takes_too_long_fails(server: Server, work: Work) -> None:
    work({"simulation": until_stopped})
    job = server.wait(server.submit("simulation", timeout_seconds=0.3), "failed")
    assert job.message == "timed out after 0.3 s"
    assert job.retryable is True


def test_a_worker_that_ends_finishes_its_task(server: Server, work: Work) -> None:
    def short(_: Task, __: Context) -> dict[str, Any]:
        time.sleep(1.0)
        return {"finished": True}

    running = work({"simulation": short})
    job = server.wait(server.submit("simulation"), "running")
    waiting = server.submit("simulation")
    running.stop()
    assert job.result == {"finished": True}
    assert waiting.status == "queued"


def test_a_worker_that_ends_gives_a_long_task_back(server: Server, work: Work) -> None:
    running = work({"simulation": until_stopped}, GRACE_SECONDS="0.3")
    job = server.wait(server.submit("simulation"), "running")
    running.stop()
    assert (job.status, job.retryable) == ("failed", True)
    assert "had to end before" in job.message
    assert 'status="returned"} 1' in running.metrics.render()


def test_a_type_that_the_worker_does_not_know_is_not_asked_for(server: Server, work: Work) -> None:
    work({"simulation": double})
    other = server.submit("inference")
    server.wait(server.submit("simulation", {"number": 1}), "succeeded")
    assert other.status == "queued"


def test_metrics(server: Server, work: Work) -> None:
    running = work({"simulation": double})
    server.wait(server.submit("simulation", {"number": 1}), "succeeded")
    wait_for(lambda: running.events("task-end"), "the end of the task")
    lines = running.metrics.render().splitlines()
    for line in (
        'worker_jobs_processed_total{job_type="simulation",status="succeeded"} 1',
        'worker_job_duration_seconds_bucket{job_type="simulation",le="+Inf"} 1',
        'worker_job_duration_seconds_count{job_type="simulation"} 1',
        "worker_jobs_running 0",
        "worker_job_service_up 1",
        "worker_gpu_utilization 37.5",
    ):
        assert line in lines
