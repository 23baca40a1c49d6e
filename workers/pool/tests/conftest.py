"""A job service, workers in threads and in processes of their own."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

WORKERS = Path(__file__).resolve().parent.parent.parent
PACKAGES = [str(WORKERS / name) for name in ("pool", "inference", "simulation", "training")]
sys.path[:0] = [*PACKAGES, str(Path(__file__).parent)]

from protocol_server import Server  # noqa: E402 (the path must be set first)
from s3_server import S3  # noqa: E402

from pool_worker import settings as configuration  # noqa: E402
from pool_worker.logs import Log  # noqa: E402
from pool_worker.metrics import Metrics  # noqa: E402
from pool_worker.tasks import Handler  # noqa: E402
from pool_worker.worker import Worker  # noqa: E402


def wait_for(condition: Callable[[], Any], what: str, seconds: float = 20.0) -> Any:
    """The first true result of ``condition``; fails the test when there is none within ``seconds``."""
    end = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < end, f"waited {seconds:.0f} s for {what}"
        time.sleep(0.01)
    return result


class Running:
    """A worker in a thread of the test."""

    def __init__(self, server: Server, handlers: Mapping[str, Handler], env: Mapping[str, str]) -> None:
        self.output = io.StringIO()
        self.metrics = Metrics(gpu=lambda: 37.5)
        defaults = {
            "JOB_SERVICE_URL": server.url,
            "QUEUE": "q",
            "WORKER_ID": "w",
            "LEASE_WAIT_SECONDS": "1",
            "GRACE_SECONDS": "5",
        }
        settings = configuration.load({**defaults, **env})
        self.worker = Worker(settings, handlers, Log(stream=self.output, worker="w"), self.metrics)
        self.thread = threading.Thread(target=self.worker.run, daemon=True)
        self.thread.start()

    def events(self, name: str) -> list[dict[str, Any]]:
        """The log lines of one event so far."""
        lines = [json.loads(line) for line in self.output.getvalue().splitlines()]
        return [line for line in lines if line["event"] == name]

    def stop(self) -> None:
        """Tell the worker to end, and wait for that."""
        self.worker.stop()
        self.thread.join(20)
        assert not self.thread.is_alive()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.broken = ""
    server.close()


@pytest.fixture
def work(server: Server) -> Iterator[Callable[..., Running]]:
    """Starts workers that end with the test."""
    started: list[Running] = []

    def start(handlers: Mapping[str, Handler], **env: str) -> Running:
        started.append(Running(server, handlers, env))
        return started[-1]

    yield start
    for running in started:
        running.stop()


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    server = S3(tmp_path_factory.mktemp("s3"))
    wait_for(server.answers, f"the S3 server: {server.log}")
    yield server
    server.close()


@pytest.fixture
def s3(s3_server: S3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> S3:
    """An S3 store with an empty bucket, which a pooled worker may use, and an empty WORK_DIR."""
    s3_server.new_bucket()
    for name, value in s3_server.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("ALLOWED_URIS", s3_server.uri(""))
    monkeypatch.setenv("WORK_DIR", str(tmp_path / "work"))
    return s3_server


class Process:
    """A worker in a process of its own, as in a pod."""

    def __init__(self, url: str, directory: Path, command: list[str], env: Mapping[str, str]) -> None:
        self.log = directory / "worker.log"
        defaults = {
            "JOB_SERVICE_URL": url,
            "QUEUE": "q",
            "LEASE_WAIT_SECONDS": "1",
            "METRICS_PORT": "0",
            "WORK_DIR": str(directory / "work"),
        }
        base = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": ":".join(PACKAGES),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
        }
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *command], env={**base, **defaults, **env}, stdout=log, stderr=log
            )

    @property
    def output(self) -> str:
        """What it has written so far."""
        return self.log.read_text()


@pytest.fixture
def process(server: Server, tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Starts worker processes that end with the test."""
    started: list[Process] = []

    def start(*command: str, **env: str) -> Process:
        started.append(Process(server.url, tmp_path, list(command) or ["-m", "pool_worker"], env))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait(10)
