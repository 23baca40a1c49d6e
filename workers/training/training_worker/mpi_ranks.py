"""The ranks of a job over MPI, by mpi4py: gradients are averaged by Allreduce.

mpirun has started the ranks, and ends all of them when one ends with another code than 0.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

from training_worker.config import Topology
from training_worker.errors import PeerLostError, UsageError
from training_worker.logs import Log
from training_worker.ranks import Sharing

CHUNK_BYTES = 64 << 20


class MpiRanks(Sharing):
    """This process among the ranks of mpirun, as training_worker.distributed.Ranks is among those of PyTorch."""

    def __init__(self, topology: Topology, log: Log) -> None:
        """Raises UsageError when mpi4py is missing."""
        try:
            from mpi4py import MPI
        except ImportError as error:
            raise UsageError(f"DIST_BACKEND mpi: mpi4py cannot be loaded: {error}") from error
        self._mpi = MPI
        self._log = log
        self.topology = topology
        self.rank = topology.rank
        self.world_size = topology.world_size
        self.device = torch.device("cuda", topology.local_rank) if torch.cuda.is_available() else torch.device("cpu")
        self.backend = "mpi"

    def join(self) -> None:
        """Check that mpirun has brought all ranks together. Raises UsageError when it has not."""
        self._comm = self._mpi.COMM_WORLD
        if (self._comm.rank, self._comm.size) != (self.rank, self.world_size):
            raise UsageError(
                f"MPI says rank {self._comm.rank} of {self._comm.size}, the environment {self.rank} of {self.world_size}"
            )
        if self.rank == 0:
            self._log.info("mpi", f"{self._mpi.Get_library_version().split(',')[0]} with {self.world_size} ranks")

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model, with the weights of rank 0 on every rank."""
        with self._peers("sharing the model"), torch.no_grad():
            for parameter in model.parameters():
                values = parameter.detach().cpu().numpy().copy()
                self._comm.Bcast(values, root=0)
                parameter.copy_(torch.from_numpy(values))
        return model

    @contextlib.contextmanager
    def gradients(self, model: nn.Module, last: bool) -> Iterator[None]:
        """Surround a backward pass with this; gradients are averaged after the ``last`` one before a step."""
        yield
        if not last or self.world_size == 1:
            return
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        flat = torch.cat([gradient.reshape(-1).float().cpu() for gradient in gradients]).numpy()
        with self._peers("averaging gradients"):
            self._comm.Allreduce(self._mpi.IN_PLACE, flat, op=self._mpi.SUM)
        flat /= self.world_size
        start = 0
        for gradient in gradients:
            end = start + gradient.numel()
            gradient.copy_(torch.from_numpy(flat[start:end]).view_as(gradient))
            start = end

    def sum(self, *values: float) -> list[float]:
        """The sum of each value over the ranks."""
        array = np.array(values, dtype=np.float64)
        with self._peers("adding up"):
            self._comm.Allreduce(self._mpi.IN_PLACE, array, op=self._mpi.SUM)
        return array.tolist()

    def leave(self) -> None:
        """Nothing is to be done: MPI delivers what was sent."""

    def gathered(self) -> None:
        """Wait for rank 0, because the first rank to end with a code other than 0 takes the others with it."""
        with contextlib.suppress(PeerLostError), self._peers("ending"):
            self._comm.Barrier()

    def finish(self) -> None:
        """Leave MPI, without which mpirun takes the end for a failure."""
        self._mpi.Finalize()

    def _broadcast(self, data: bytes) -> bytes:
        with self._peers("sharing state"):
            size = self._comm.bcast(len(data), root=0)
            buffer = np.frombuffer(data, dtype=np.uint8).copy() if self.rank == 0 else np.empty(size, dtype=np.uint8)
            for start in range(0, size, CHUNK_BYTES):
                self._comm.Bcast(buffer[start : start + CHUNK_BYTES], root=0)
        return buffer.tobytes()

    def peers(self, doing: str) -> contextlib.AbstractContextManager[None]:
        """Surround what talks to other ranks: a broken connection becomes PeerLostError."""
        return self._peers(doing)

    @contextlib.contextmanager
    def _peers(self, doing: str) -> Iterator[None]:
        try:
            yield
        except self._mpi.Exception as error:
            raise PeerLostError(f"another rank was lost while {doing}: {error}") from error

