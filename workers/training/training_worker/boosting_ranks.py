"""The ranks of a job over XGBoost's own collective, whose tracker rank 0 runs."""

from __future__ import annotations

import contextlib
import inspect
import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import xgboost
from xgboost import collective
from xgboost.tracker import RabitTracker

from training_worker.config import Topology
from training_worker.errors import PeerLostError
from training_worker.logs import Log
from training_worker.ranks import Sharing

POLL_SECONDS = 0.2
LOG_EVERY_SECONDS = 5.0


class BoostingRanks(Sharing):
    """This process among the ranks. Call join() first; with a world size of 1 nothing is sent anywhere."""

    backend = "rabit"

    def __init__(self, topology: Topology, log: Log) -> None:
        self.topology = topology
        self.rank = topology.rank
        self.world_size = topology.world_size
        self._log = log

    def join(self) -> None:
        """Meet the other ranks. Raises PeerLostError when they are not all there in time."""
        if self.world_size == 1:
            return
        port = int(os.environ.get("DMLC_TRACKER_PORT") or self.topology.master_port)
        if self.rank == 0:
            self._start_tracker(port)
        address = os.environ.get("DMLC_TRACKER_URI") or self.topology.master_addr
        self._wait_for_tracker(address, port)
        with self._peers("joining"):
            collective.init(**_settings(address, port, self.topology))
        place = (collective.get_rank(), collective.get_world_size())
        if place != (self.rank, self.world_size):
            raise PeerLostError(
                f"the tracker says rank {place[0]} of {place[1]}, the environment {self.rank} of {self.world_size}"
            )

    def sum(self, *values: float) -> list[float]:
        """The sum of each value over the ranks."""
        if self.world_size == 1:
            return list(values)
        with self._peers("adding up"):
            return collective.allreduce(np.array(values, dtype=np.float64), collective.Op.SUM).tolist()

    def finish(self) -> None:
        """Say good-bye to the tracker."""
        if self.world_size > 1:
            with contextlib.suppress(xgboost.core.XGBoostError):
                collective.finalize()

    def peers(self, doing: str) -> contextlib.AbstractContextManager[None]:
        """Surround what talks to other ranks: a broken connection becomes PeerLostError."""
        return self._peers(doing)

    def _broadcast(self, data: bytes) -> bytes:
        with self._peers("sharing state"):
            return collective.broadcast(data, 0)

    @contextlib.contextmanager
    def _peers(self, doing: str) -> Iterator[None]:
        try:
            yield
        except xgboost.core.XGBoostError as error:
            if self.world_size == 1:
                raise
            raise PeerLostError(f"another rank was lost while {doing}: {str(error).splitlines()[0]}") from error

    def _start_tracker(self, port: int) -> None:
        """Have the tracker wait for all ranks, in the background."""
        tracker: Any = RabitTracker(host_ip="0.0.0.0", n_workers=self.world_size, port=port, sortby="task")
        if inspect.signature(tracker.start).parameters:
            tracker.start(self.world_size)  # XGBoost 1
        else:
            tracker.start()
        self._tracker = tracker

    def _wait_for_tracker(self, address: str, port: int) -> None:
        """Wait for the name of rank 0. XGBoost itself retries to connect, but not to look it up.

        A connection that says nothing would disturb the tracker, so that none is made.
        """
        start = logged = time.monotonic()
        while True:
            try:
                socket.getaddrinfo(address, port)
                return
            except OSError as error:
                problem = error.strerror or str(error)
            now = time.monotonic()
            if now - start > self.topology.rendezvous_timeout_seconds:
                raise PeerLostError(f"gave up after {now - start:.0f} s of waiting for the name {address}: {problem}")
            if now - logged >= LOG_EVERY_SECONDS:
                logged = now
                self._log.info("rendezvous", f"waiting for the name {address}: {problem}")
            threading.Event().wait(POLL_SECONDS)


def _settings(address: str, port: int, topology: Topology) -> dict[str, Any]:
    """What the collective is to know. Ranks are given in the order of the task ids, as text."""
    settings = {
        "dmlc_tracker_uri": socket.gethostbyname(address),
        "dmlc_tracker_port": port,
        "dmlc_task_id": f"{topology.rank:05d}",
    }
    tries = _tries(topology.rendezvous_timeout_seconds)
    if int(xgboost.__version__.split(".")[0]) > 1:
        return {**settings, "dmlc_retry": tries}
    settings |= {"dmlc_num_worker": topology.world_size, "dmlc_worker_connect_retry": tries}
    return {name.upper(): value for name, value in settings.items()}


def _tries(seconds: float) -> int:
    """How often to try to connect to the tracker in a time. XGBoost waits 2, 4, 6, ... seconds between tries, and by default tries only
    for 6 seconds, in which rank 0 may not have started.
    """
    tries = 1
    while tries * (tries - 1) < seconds:
        tries += 1
    return tries
