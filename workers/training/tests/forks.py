"""Starts workers as forks of a process that has loaded PyTorch, since loading it takes a worker most of its time.

Each is a child of the process that asks for it, has its own environment, output, session and exit code, and runs
``python3 -m training_worker`` from its first line. It does not show what happens while PyTorch loads, what libraries read
from the environment then, and how Python ends by itself: a few tests start fresh interpreters for that.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

# What a worker loads, but for __main__, and for MPI, which would start as it loads.
MODULES = (
    "training_worker.main",
    "training_worker.trainer",
    "training_worker.boosting",
    "training_worker.boosting_ranks",
    "torch.distributed.optim",
    "torch.distributed.elastic.rendezvous.c10d_rendezvous_backend",
    "torch.distributed.elastic.rendezvous.dynamic_rendezvous",
)
MAX_REQUEST = 1 << 17
PR_SET_CHILD_SUBREAPER = 36


class Forked:
    """A child of this process, like a subprocess.Popen as far as tests and the worker use that."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired("a forked worker", timeout or 0)
            time.sleep(0.02)
        return code

    def send_signal(self, signum: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, signum)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Forks:
    """Asks the process at the other end of a connection for forks."""

    def __init__(self, connection: socket.socket, process: subprocess.Popen[bytes] | None = None) -> None:
        self._connection = connection
        self._process = process

    def start(
        self, env: Mapping[str, str], output: int | None = None, session: bool = False, fork_ranks: bool = False
    ) -> Forked:
        """Start a worker that writes to the file ``output``. ``fork_ranks``: what it starts itself are forks too."""
        request = {"env": dict(env), "session": session, "fork_ranks": fork_ranks}
        with _orphans_come_here():
            socket.send_fds(self._connection, [json.dumps(request).encode()], [] if output is None else [output])
            pid = self._connection.recv(MAX_REQUEST)
            if not pid or not self._connection.recv(MAX_REQUEST):
                raise RuntimeError("the process that forks workers has ended")
        return Forked(int(pid))


def load(env: Mapping[str, str]) -> Forks:
    """Start a process that loads PyTorch. It ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, __file__, str(theirs.fileno())]
        process = subprocess.Popen(command, env=env, pass_fds=[theirs.fileno()], stdout=subprocess.DEVNULL)
    return Forks(ours, process)


@contextlib.contextmanager
def _orphans_come_here() -> Iterator[None]:
    """Meanwhile, what lost its parent below this process becomes a child of this process."""
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _serve(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Fork for each request. Returns in the forks only: what was asked for, and the file for output."""
    while True:
        request, files, _, _ = socket.recv_fds(connection, MAX_REQUEST, 1)
        if not request:
            os._exit(0)
        between = os.fork()
        if between == 0:
            pid = os.fork()
            if pid == 0:
                connection.close()
                return json.loads(request), files
            connection.send(str(pid).encode())
            os._exit(0)
        os.waitpid(between, 0)
        for file in files:
            os.close(file)
        connection.send(b"yours")  # it is an orphan only now


def _become(request: dict[str, Any], files: list[int]) -> None:
    """Make this fork what a fresh process would be."""
    if request["session"]:
        os.setsid()
    for file in files:
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["env"])
    if request["fork_ranks"]:
        _fork_ranks()


def _fork_ranks() -> None:
    """Have subprocess start workers as forks of a copy of this process, which returns in them too."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        ours.close()
        _become(*_serve(theirs))
        return
    theirs.close()
    forks, fresh = Forks(ours), subprocess.Popen

    def start(command: list[str], **options: Any) -> Any:
        if command == [sys.executable, "-m", "training_worker"]:
            return forks.start(**options)
        return fresh(command, **options)

    subprocess.Popen = start  # type: ignore[assignment,misc]


def _main() -> None:
    connection = socket.socket(fileno=int(sys.argv[1]))
    importlib.import_module("training_worker.libuv").install()
    gc.disable()
    for name in MODULES:
        importlib.import_module(name)
    gc.freeze()
    if len(os.listdir("/proc/self/task")) > 1:
        sys.exit("the modules of the worker have started threads, which forks would lack")
    _become(*_serve(connection))
    gc.enable()
    sys.path[0] = os.getcwd()
    try:
        runpy.run_module("training_worker", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if not isinstance(end.code, int):
            raise
        # Python would take apart all modules, and a fork copies all memory for that.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(end.code)


if __name__ == "__main__":
    _main()
