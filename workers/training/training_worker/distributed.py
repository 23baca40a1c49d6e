"""The ranks of a job: how they meet, and the few things that they say to one another beside gradients.

Control messages are small CPU tensors on a group of their own (gloo), whatever the backend for gradients is.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import time
from collections.abc import Iterator
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from training_worker.config import Topology
from training_worker.errors import PeerLostError, UsageError
from training_worker.logs import Log
from training_worker.ranks import Sharing

if TYPE_CHECKING:
    from training_worker.mpi_ranks import MpiRanks

ATTEMPT_SECONDS = 5.0
POLL_SECONDS = 0.1
LOG_EVERY_SECONDS = 5.0
FAREWELL_SECONDS = 10.0
CHUNK_BYTES = 64 << 20

_CONNECTION_ERROR = re.compile(
    r"gloo|nccl|connection (was )?(closed|reset|refused)|broken pipe|timed? ?out|socket|peer|\bstore\b", re.IGNORECASE
)


class Ranks(Sharing):
    """This process among the ranks. Call join() first; with a world size of 1 nothing is sent anywhere."""

    def __init__(self, topology: Topology, log: Log) -> None:
        """Choose device and backend. Raises UsageError when the backend asked for is not available."""
        self.topology = topology
        self.rank = topology.rank
        self.world_size = topology.world_size
        self.device = _device(topology)
        self.backend = topology.backend or ("nccl" if self.device.type == "cuda" else "gloo")
        self._log = log
        self._control: Any = None
        if self.world_size > 1:
            _check_backend(self.backend, self.device)

    def join(self) -> None:
        """Meet the other ranks. Raises PeerLostError when they are not all there in time."""
        if self.world_size == 1:
            return
        timeout = timedelta(seconds=self.topology.timeout_seconds)
        with self._peers("joining"):
            if self.backend == "mpi":
                dist.init_process_group("mpi")
                return
            store = self._rendezvous()
            dist.init_process_group(
                self.backend, store=store, rank=self.rank, world_size=self.world_size, timeout=timeout
            )
            if self.backend != "gloo":
                self._control = dist.new_group(backend="gloo", timeout=timeout)

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model with gradients averaged over the ranks."""
        if self.world_size == 1:
            return model
        device_ids = [self.device.index] if self.device.type == "cuda" else None
        with self._peers("sharing the model"):
            return DistributedDataParallel(model, device_ids=device_ids)

    @contextlib.contextmanager
    def gradients(self, model: nn.Module, last: bool) -> Iterator[None]:
        """Surround a backward pass with this; gradients are averaged only in the ``last`` one before a step."""
        silent = (
            model.no_sync()
            if isinstance(model, DistributedDataParallel) and not last
            else contextlib.nullcontext()
        )
        with self._peers("averaging gradients"), silent:
            yield

    def sum(self, *values: float) -> list[float]:
        """The sum of each value over the ranks."""
        if self.world_size == 1:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.float64)
        with self._peers("adding up"):
            dist.all_reduce(tensor, group=self._control)
        return tensor.tolist()

    def leave(self) -> None:
        """Let the last messages arrive before connections close. Never fails."""
        if self.world_size == 1 or self.backend == "mpi":
            return
        with contextlib.suppress(RuntimeError):
            dist.monitored_barrier(group=self._control, timeout=timedelta(seconds=FAREWELL_SECONDS))

    def _broadcast(self, data: bytes) -> bytes:
        with self._peers("sharing state"):
            size = torch.tensor([len(data)], dtype=torch.int64)
            dist.broadcast(size, src=0, group=self._control)
            buffer = torch.empty(int(size), dtype=torch.uint8)
            if self.rank == 0 and data:
                buffer = torch.frombuffer(bytearray(data), dtype=torch.uint8)
            for start in range(0, len(buffer), CHUNK_BYTES):
                dist.broadcast(buffer[start : start + CHUNK_BYTES], src=0, group=self._control)
        return buffer.numpy().tobytes()

    def peers(self, doing: str) -> contextlib.AbstractContextManager[None]:
        """Surround what talks to other ranks: a broken connection becomes PeerLostError."""
        return self._peers(doing)

    @contextlib.contextmanager
    def _peers(self, doing: str) -> Iterator[None]:
        """Turn a broken connection into PeerLostError; other errors pass."""
        try:
            yield
        except RuntimeError as error:
            if self.world_size > 1 and _CONNECTION_ERROR.search(str(error)):
                raise PeerLostError(f"another rank was lost while {doing}: {error}") from error
            raise

    def _rendezvous(self) -> dist.Store:
        """A store on which every rank has shown up."""
        wait = _Patience(self.topology.rendezvous_timeout_seconds, self._log)
        # Only the store of torchrun's agent outlives an attempt. Of an elastic job the agents count attempts differently.
        outlives = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") if outlives else "0"
        store = self._connect(wait)
        store.add(f"here/{attempt}/{self.rank}", 1)
        missing = list(range(self.world_size))
        while True:
            missing = [rank for rank in missing if store.add(f"here/{attempt}/{rank}", 0) == 0]
            if not missing:
                break
            wait.pause(f"for rank {', '.join(map(str, missing[:10]))}" + (" and more" if len(missing) > 10 else ""))
        store.set_timeout(timedelta(seconds=self.topology.timeout_seconds))
        return dist.PrefixStore(f"training/{attempt}", store)

    def _connect(self, wait: _Patience) -> dist.Store:
        """The store that rank 0 (or the agent of torchrun) serves at MASTER_ADDR:MASTER_PORT."""
        host, port = self.topology.master_addr, self.topology.master_port
        options: dict[str, Any] = {"timeout": timedelta(seconds=ATTEMPT_SECONDS), "wait_for_workers": False}
        serves = self.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
        while True:
            try:
                socket.getaddrinfo(host, port)
            except OSError as error:
                wait.pause(f"for the name {host}: {error.strerror or error}")
                continue
            try:
                if not serves:
                    socket.create_connection((host, port), timeout=ATTEMPT_SECONDS).close()
                return dist.TCPStore(host, port, self.world_size, serves, **options)
            except (OSError, RuntimeError) as error:
                what = f"to listen at port {port}" if serves else f"for rank 0 at {host}:{port}"
                wait.pause(f"{what}: {str(error).splitlines()[0]}")


class _Patience:
    """Bounded waiting that tells what is waited for."""

    def __init__(self, seconds: float, log: Log) -> None:
        self._seconds = seconds
        self._start = self._logged = time.monotonic()
        self._log = log

    def pause(self, what: str) -> None:
        """Wait a moment. Raises PeerLostError when the time is up."""
        now = time.monotonic()
        if now - self._start > self._seconds:
            raise PeerLostError(f"gave up after {self._seconds:.0f} s of waiting {what}")
        if now - self._logged >= LOG_EVERY_SECONDS:
            self._logged = now
            self._log.info("rendezvous", f"waiting {what}, for {now - self._start:.0f} s so far")
        time.sleep(POLL_SECONDS)


def create(topology: Topology, log: Log) -> Ranks | MpiRanks:
    """This process among the ranks, over PyTorch's own communication or, for MPI, over mpi4py where that is installed.

    A PyTorch that is built with MPI, as Debian 13's, leaves it only when its process ends by itself, and mpirun takes any
    other end for a failure.
    """
    if topology.backend == "mpi" and (find_spec("mpi4py") or not dist.is_mpi_available()):
        from training_worker.mpi_ranks import MpiRanks

        return MpiRanks(topology, log)
    return Ranks(topology, log)


def _device(topology: Topology) -> torch.device:
    if topology.backend == "gloo" or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", topology.local_rank % torch.cuda.device_count())


def _check_backend(backend: str, device: torch.device) -> None:
    available = {
        "gloo": getattr(dist, "is_gloo_available", lambda: True)(),
        "mpi": dist.is_mpi_available(),
        "nccl": dist.is_nccl_available(),
    }
    if not available[backend]:
        usable = ", ".join(name for name, there in available.items() if there)
        raise UsageError(f"DIST_BACKEND {backend}: this PyTorch is built without it; it has {usable}")
    if backend == "nccl" and device.type != "cuda":
        raise UsageError("DIST_BACKEND nccl: no GPU is visible to this worker; use gloo")
