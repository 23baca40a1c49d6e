"""Where the replicas of an elastic job meet: torchrun's c10d rendezvous, whose store replica 0 serves.

Ranks are given by replica and not by PyTorch's own order, so that rank 0, which writes the checkpoints and reports, is
always on replica 0, which has the volume.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from training_worker.errors import PeerLostError, UsageError
from training_worker.logs import Log

POLL_SECONDS = 0.2
CONNECT_SECONDS = 5.0
ROLL_CALL_SECONDS = 30.0
LEAVE_SECONDS = 5.0
STORE_SECONDS = 60.0
LOG_EVERY_SECONDS = 5.0


@dataclass(frozen=True)
class ElasticSettings:
    """What the PET_* variables, which torchrun reads too, say to an agent."""

    replica: int
    processes: int
    min_replicas: int
    max_replicas: int
    host: str
    port: int
    run_id: str
    max_restarts: int
    look_every_seconds: float
    patience_seconds: float
    options: Mapping[str, str]


@dataclass(frozen=True)
class Round:
    """One meeting: who takes part, by replica, and where their rank 0 will listen."""

    number: int
    replicas: tuple[int, ...]
    master_port: int
    store: Any

    @property
    def complete(self) -> bool:
        """Whether replica 0, without which nothing is saved, takes part."""
        return self.replicas[:1] == (0,)


def load(env: Mapping[str, str]) -> ElasticSettings:
    """Read the settings. Raises UsageError."""
    endpoint = env.get("PET_RDZV_ENDPOINT", "")
    host, _, port = endpoint.rpartition(":")
    least, _, most = env.get("PET_NNODES", "").partition(":")
    problems = []
    if not host or not port.isdigit():
        problems.append(f"PET_RDZV_ENDPOINT is {endpoint!r}, but must be host:port")
    if not least.isdigit() or not most.isdigit() or not 1 <= int(least) <= int(most):
        problems.append(f"PET_NNODES is {env.get('PET_NNODES', '')!r}, but must be minimum:maximum")
    replica = env.get("PET_NODE_RANK") or env.get("RANK") or ""
    if not replica.isdigit():
        problems.append(f"PET_NODE_RANK is {replica!r}, but must be the number of this replica")
    numbers = {
        "PET_NPROC_PER_NODE": "1",
        "PET_MAX_RESTARTS": "10",
        "PET_MONITOR_INTERVAL": "1",
        "RENDEZVOUS_TIMEOUT_SECONDS": "600",
    }
    for name, default in numbers.items():
        numbers[name] = env.get(name, "").strip() or default
        try:
            float(numbers[name])
        except ValueError:
            problems.append(f"{name} is {numbers[name]!r}, but must be a number")
    if problems:
        raise UsageError("; ".join(problems))
    pairs = (pair.partition("=") for pair in env.get("PET_RDZV_CONF", "").split(",") if "=" in pair)
    return ElasticSettings(
        replica=int(replica),
        processes=max(1, int(float(numbers["PET_NPROC_PER_NODE"]))),
        min_replicas=int(least),
        max_replicas=int(most),
        host=host,
        port=int(port),
        run_id=env.get("PET_RDZV_ID") or "training",
        max_restarts=int(float(numbers["PET_MAX_RESTARTS"])),
        look_every_seconds=max(POLL_SECONDS, float(numbers["PET_MONITOR_INTERVAL"])),
        patience_seconds=float(numbers["RENDEZVOUS_TIMEOUT_SECONDS"]),
        options={name.strip(): value.strip() for name, _, value in pairs},
    )


class Rendezvous:
    """Meets the agents of the other replicas, again and again."""

    def __init__(self, settings: ElasticSettings, log: Log) -> None:
        self._settings = settings
        self._log = log
        self._handler: Any = None
        self._rounds = 0

    @staticmethod
    def load() -> None:
        """Load PyTorch, which takes seconds.

        A signal handler must not raise meanwhile: the loader would put an error of its own in the place of the exception.
        """
        os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
        from torch.distributed.elastic.rendezvous import c10d_rendezvous_backend, dynamic_rendezvous  # noqa: F401

    def open(self) -> None:
        """Serve the store on replica 0, reach it from the others. Raises PeerLostError when it never comes."""
        from torch.distributed.elastic.rendezvous import RendezvousParameters
        from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
        from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler

        settings = self._settings
        serves = settings.replica == 0
        if not serves:
            self._await_store()
        options = {"join_timeout": str(int(settings.patience_seconds)), **settings.options}
        options["is_host"] = str(serves).lower()
        parameters = RendezvousParameters(
            backend="c10d",
            endpoint=f"{settings.host}:{settings.port}" if not serves else f"127.0.0.1:{settings.port}",
            run_id=settings.run_id,
            min_nodes=settings.min_replicas,
            max_nodes=settings.max_replicas,
            **options,
        )
        store = _lost_when_broken(lambda: self._store(serves, float(options.get("read_timeout", STORE_SECONDS))))
        backend = C10dRendezvousBackend(store, settings.run_id)
        self._handler = _lost_when_broken(lambda: create_handler(store, backend, parameters))

    def meet(self) -> Round | None:
        """Wait for enough replicas and return who they are; None when not all who were there answer.

        Raises PeerLostError when the store of replica 0 is gone, or not enough replicas come in time.
        """
        return _lost_when_broken(self._meet)

    def newcomers(self) -> bool:
        """Whether a replica waits to be let in. Raises PeerLostError when the store is gone."""
        return _lost_when_broken(self._handler.num_nodes_waiting) > 0

    def leave(self) -> None:
        """Tell the others that this replica is no longer there, so that they need not wait for it to be missed.

        PyTorch has no public call for this; without it they notice after some 15 seconds.
        """
        try:
            from torch.distributed.elastic.rendezvous.dynamic_rendezvous import _RendezvousExitOp

            self._handler._stop_heartbeats()
            self._handler._op_executor.run(_RendezvousExitOp(), time.monotonic() + LEAVE_SECONDS)
        except Exception as error:  # noqa: BLE001 (the end of this replica must not fail for it)
            self._log.info("rendezvous", f"left without telling the others: {type(error).__name__}")

    def _store(self, serves: bool, seconds: float) -> Any:
        """The store of torchrun's rendezvous, as torchrun makes it."""
        from torch.distributed import TCPStore

        host = "127.0.0.1" if serves else self._settings.host
        return TCPStore(
            host, self._settings.port, is_master=serves, multi_tenant=True, timeout=timedelta(seconds=seconds)
        )

    def _await_store(self) -> None:
        """Wait until replica 0 has a name and listens."""
        settings, start, logged = self._settings, time.monotonic(), time.monotonic()
        while True:
            try:
                socket.create_connection((settings.host, settings.port), timeout=CONNECT_SECONDS).close()
                return
            except OSError as error:
                now, where = time.monotonic(), f"{settings.host}:{settings.port}"
                if now - start > settings.patience_seconds:
                    raise PeerLostError(
                        f"gave up after {settings.patience_seconds:.0f} s of waiting for replica 0 at {where}: {error}"
                    ) from error
                if now - logged >= LOG_EVERY_SECONDS:
                    logged = now
                    self._log.info("rendezvous", f"waiting for replica 0 at {where}, for {now - start:.0f} s so far")
            time.sleep(POLL_SECONDS)

    def _meet(self) -> Round | None:
        joined = self._handler.next_rendezvous()
        if isinstance(joined, tuple):
            store, place, count = joined
        else:  # PyTorch 2.4 and later
            store, place, count = joined.store, joined.rank, joined.world_size
        self._rounds += 1
        store.set(f"replica/{place}", str(self._settings.replica))
        if self._settings.replica == 0:
            store.set("port", str(_free_port()))
        store.add("present", 1)
        end = time.monotonic() + ROLL_CALL_SECONDS
        while store.add("present", 0) < count:
            if time.monotonic() > end:
                self._log.warning("rendezvous", f"not all of {count} replicas answered: meeting again")
                return None
            time.sleep(POLL_SECONDS)
        replicas = tuple(sorted(int(store.get(f"replica/{other}")) for other in range(count)))
        port = int(store.get("port")) if replicas[0] == 0 else 0
        return Round(self._rounds, replicas, port, store)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def _lost_when_broken(call: Any) -> Any:
    """Call, and turn errors of the rendezvous into PeerLostError."""
    try:
        return call()
    except Exception as error:
        if type(error).__name__.startswith("Rendezvous") or isinstance(error, (RuntimeError, OSError)):
            raise PeerLostError(f"the rendezvous at replica 0 is lost: {error}") from error
        raise
