"""Helpers to run real worker processes and to wait for what they do."""

from __future__ import annotations

import functools
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import forks
import pytest

WORKER_ROOT = Path(__file__).resolve().parent.parent
DEADLINE_SECONDS = 180.0
sys.path.insert(0, str(WORKER_ROOT))

# What Python and PyTorch read while they load.
BASE = {
    "PATH": os.environ["PATH"],
    "PYTHONPATH": str(WORKER_ROOT),
    "PYTHONDONTWRITEBYTECODE": "1",
    "OMP_NUM_THREADS": "1",
}
T = TypeVar("T")


@functools.cache
def loaded() -> forks.Forks:
    """The process that has loaded PyTorch, for all tests."""
    return forks.load(BASE)


def wait_for(condition: Callable[[], T], what: str, seconds: float = DEADLINE_SECONDS) -> T:
    """The first true result of ``condition``; fails the test when there is none within ``seconds``."""
    end = time.monotonic() + seconds
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > end:
            pytest.fail(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.02)


def free_port() -> int:
    """A TCP port without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def image_path(tmp_path: Path) -> str:
    """The PYTHONPATH with which Python starts as in the image, where training-worker.pth is in a folder for packages."""
    folder = tmp_path / "dist-packages"
    folder.mkdir()
    installed = (WORKER_ROOT / "training-worker.pth").read_text().replace("/opt/training-worker", str(WORKER_ROOT))
    (folder / "training-worker.pth").write_text(installed)
    (folder / "sitecustomize.py").write_text(f"import site\nsite.addsitedir({str(folder)!r})\n")
    return str(folder)


class Process:
    """One worker process whose output goes to a file.

    It is forked (see forks.py), unless it is to be ``fresh`` or has its own settings of what is read while PyTorch loads.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        env: dict[str, str],
        session: bool = False,
        fresh: bool = False,
        fork_ranks: bool = False,
    ) -> None:
        self._log = directory / f"{name}.log"
        self._message = directory / f"{name}.termination"
        settings = {
            "MODEL": "mlp",
            "DATASET": "digits",
            "METRICS_PORT": "0",
            "GLOO_SOCKET_IFNAME": "lo",
            "TERMINATION_MESSAGE_PATH": str(self._message),
        }
        environment = {**BASE, **settings, **env}
        self.process: subprocess.Popen[bytes] | forks.Forked
        with open(self._log, "wb") as log:
            if fresh or not BASE.items() <= environment.items():
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "training_worker"],
                    env=environment,
                    stdout=log,
                    stderr=log,
                    start_new_session=session,
                )
            else:
                self.process = loaded().start(environment, log.fileno(), session, fork_ranks)

    @property
    def output(self) -> str:
        """What the process has written so far."""
        return self._log.read_text()

    def wait_for_line(self, text: str) -> str:
        """The first line with ``text``."""

        def look() -> str | None:
            found = next((line for line in self.output.splitlines() if text in line), None)
            if found is None and self.process.poll() is not None and text not in self.output:
                pytest.fail(f"the worker ended without {text!r}:\n{self.output}")
            return found

        return wait_for(look, f"{text!r} in:\n{self.output}")

    def exit_code(self, seconds: float = DEADLINE_SECONDS) -> int:
        """The exit code, once the process has ended."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running after {seconds:.0f} s:\n{self.output}")

    def termination_message(self) -> dict[str, Any]:
        """The termination message of the ended process."""
        return json.loads(self._message.read_text())


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., list[Process]]]:
    """Start the ranks of a job: ``start(ranks=2, EPOCHS=3)`` gives one Process per rank, with ``fresh=True`` not forked."""
    processes: list[Process] = []

    def start_ranks(ranks: int = 1, fresh: bool = False, **env: object) -> list[Process]:
        port = free_port()
        started = []
        for rank in range(ranks):
            place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": ranks, "RANK": rank}
            settings = {name: str(value) for name, value in {**place, **env}.items()}
            started.append(Process(tmp_path, f"{len(processes) + len(started)}-rank{rank}", settings, fresh=fresh))
        processes.extend(started)
        return started

    yield start_ranks
    for item in processes:
        if item.process.poll() is None:
            item.process.kill()
            item.process.wait()
