"""The agent of a replica of an elastic job: runs the replica's ranks, again whenever replicas come or go.

It does what torchrun does, by the same rendezvous, and keeps to the contract besides: the pod ends with the exit code of
its ranks, so that a failure of the training is told from the loss of another replica, and only the latter is made up for
here.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from types import FrameType
from typing import TypeVar

from training_worker import config, launcher, rendezvous, termination
from training_worker.errors import EXIT_OK, EXIT_PEER_LOST, EXIT_SIGNAL_BASE, PeerLostError, WorkerError
from training_worker.logs import Log
from training_worker.rendezvous import ElasticSettings, Rendezvous, Round

POLL_SECONDS = 0.1
# How long ranks may go on after another of the replica has ended, or after they were asked to stop: the worker itself
# gives up after STOP_DEADLINE_SECONDS and writes a checkpoint then.
GRACE_SECONDS = 45.0
# A replica that loses others more often than PET_MAX_RESTARTS, with no longer time of training between, gives up.
HEALTHY_SECONDS = 60.0
FAREWELL_SECONDS = 10.0
EXIT_TERMINATED = EXIT_SIGNAL_BASE + signal.SIGTERM

T = TypeVar("T")


def wanted(env: Mapping[str, str]) -> bool:
    """Whether the operator asks for an elastic replica, and torchrun has not started this process already."""
    started = any(name in env for name in ("LOCAL_RANK", "TORCHELASTIC_RUN_ID"))
    return not started and env.get("PET_RDZV_BACKEND") == "c10d" and ":" in env.get("PET_NNODES", "")


def run(env: Mapping[str, str]) -> int:
    """Run the replica until the training is over or must end here, and return the exit code."""
    log = Log(json_lines=env.get("LOG_FORMAT", "").lower() == "json")
    message = termination.MessageFile(config.termination_message_path(env), log)
    try:
        settings = rendezvous.load(env)
        log.rank = settings.replica
        return Agent(env, settings, message, log).run()
    except WorkerError as error:
        log.error("end", f"replica {log.rank} ends with exit code {error.exit_code}: {error}", code=error.exit_code)
        message.write(error.reason, str(error))
        return error.exit_code


class _Stopped(BaseException):
    """A stop signal came while the agent was waiting."""


class Agent:
    """One replica: its place among the others, and its ranks."""

    def __init__(
        self, env: Mapping[str, str], settings: ElasticSettings, message: termination.MessageFile, log: Log
    ) -> None:
        self._env = env
        self._settings = settings
        self._message = message
        self._log = log
        self._rendezvous = Rendezvous(settings, log)
        self._signum = 0
        self._waiting = False

    def run(self) -> int:
        """Meet and train until the ranks of this replica end and do not return. Raises PeerLostError."""
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, self._on_signal)
        losses, code = 0, EXIT_PEER_LOST
        try:
            self._rendezvous.load()
            self._wait_for(self._rendezvous.open)
            while losses <= self._settings.max_restarts:
                met = self._wait_for(self._rendezvous.meet)
                if met is None or not met.complete:
                    time.sleep(POLL_SECONDS if met is None else self._settings.look_every_seconds)
                    continue
                started = time.monotonic()
                code = self._train(met)
                if code == EXIT_OK:
                    self._say_goodbye(met)
                    return code
                if self._signum or code not in (EXIT_PEER_LOST, EXIT_TERMINATED):
                    self._rendezvous.leave()
                    return code
                if time.monotonic() - started > HEALTHY_SECONDS:
                    losses = 0
                losses += code == EXIT_PEER_LOST
        except _Stopped:
            self._rendezvous.leave()
            self._message.write("Terminated", f"{signal.Signals(self._signum).name} while waiting for other replicas")
            return EXIT_SIGNAL_BASE + self._signum
        raise PeerLostError(f"other ranks were lost {losses} times, more than PET_MAX_RESTARTS allows")

    def _on_signal(self, signum: int, _: FrameType | None) -> None:
        self._signum = self._signum or signum
        if self._waiting:
            self._waiting = False
            raise _Stopped

    def _wait_for(self, call: Callable[[], T]) -> T:
        """Call what may block for long; a stop signal ends it, and whatever follows."""
        if self._signum:
            raise _Stopped
        self._waiting = True
        try:
            return call()
        finally:
            self._waiting = False

    def _train(self, met: Round) -> int:
        """Run the ranks of this replica in one world and return the code that tells most of their ends."""
        ranks = len(met.replicas) * self._settings.processes
        self._log.info(
            "world",
            f"round {met.number}: replicas {', '.join(map(str, met.replicas))} train with {ranks} ranks",
            replicas=list(met.replicas),
            world_size=ranks,
        )
        self._message.clear()
        command = [sys.executable, "-m", "training_worker"]
        children = [
            subprocess.Popen(command, env=self._environment(met, local_rank))
            for local_rank in range(self._settings.processes)
        ]
        codes = self._watch(children)
        killed = [
            f"process {index} of replica {self._settings.replica} was killed by {signal.Signals(-code).name}"
            for index, code in enumerate(codes)
            if code < 0
        ]
        if killed:  # and could not say anything itself
            self._message.write("Error", "; ".join(killed))
        code = launcher.most_telling(codes)
        self._log.info("round-over", f"round {met.number} is over, exit code {code}", code=code)
        return code

    def _environment(self, met: Round, local_rank: int) -> dict[str, str]:
        processes = self._settings.processes
        place = met.replicas.index(self._settings.replica)
        return {
            **self._env,
            "MASTER_ADDR": self._settings.host,
            "MASTER_PORT": str(met.master_port),
            "WORLD_SIZE": str(len(met.replicas) * processes),
            "RANK": str(place * processes + local_rank),
            "LOCAL_RANK": str(local_rank),
            "LOCAL_WORLD_SIZE": str(processes),
            "GROUP_RANK": str(place),
            "GROUP_WORLD_SIZE": str(len(met.replicas)),
            "TORCHELASTIC_RUN_ID": self._settings.run_id,
            "TORCHELASTIC_RESTART_COUNT": str(met.number - 1),
        }

    def _watch(self, children: list[subprocess.Popen[bytes]]) -> list[int]:
        """Wait for the ranks, and stop them when this replica is told to stop or when another waits to be let in."""
        watch = _Shutdown(children)
        look_at = time.monotonic() + self._settings.look_every_seconds
        while watch.running():
            if self._signum and not watch.asked:
                watch.ask()
            elif any(child.returncode is not None for child in children):
                watch.expect()
            elif time.monotonic() >= look_at and not watch.expected:
                look_at = time.monotonic() + self._settings.look_every_seconds
                self._look_around(watch)
            watch.insist()
            time.sleep(POLL_SECONDS)
        return [child.returncode for child in children]

    def _look_around(self, watch: _Shutdown) -> None:
        try:
            if self._rendezvous.newcomers():
                self._log.info("newcomers", "other replicas wait to take part: stopping after this step to let them in")
                watch.ask()
        except PeerLostError as error:
            self._log.warning("rendezvous", str(error))
            watch.expect()  # the ranks notice by themselves, or have succeeded together with replica 0

    def _say_goodbye(self, met: Round) -> None:
        """Replica 0 keeps the store until the others know that the training is over."""
        try:
            met.store.add("done", 1)
            end = time.monotonic() + FAREWELL_SECONDS
            while self._settings.replica == 0 and met.store.add("done", 0) < len(met.replicas):
                if self._signum or time.monotonic() > end:
                    return
                time.sleep(POLL_SECONDS)
        except (RuntimeError, OSError, ValueError) as error:
            self._log.info("goodbye", f"the store is gone already: {error}")


class _Shutdown:
    """The end of a replica's ranks: asked for, expected, and at last enforced."""

    def __init__(self, children: list[subprocess.Popen[bytes]]) -> None:
        self._children = children
        self._since = 0.0
        self.asked = False

    @property
    def expected(self) -> bool:
        """Whether the ranks are about to end."""
        return self._since > 0

    def running(self) -> bool:
        """Whether any rank still runs."""
        return any([child.poll() is None for child in self._children])  # noqa: C419 (every one is to be reaped)

    def expect(self) -> None:
        """From now on the ranks have GRACE_SECONDS to end by themselves."""
        self._since = self._since or time.monotonic()

    def ask(self) -> None:
        """Tell the ranks to stop: they do after the same step, with a checkpoint."""
        self.asked = True
        self.expect()
        self._send(signal.SIGTERM)

    def insist(self) -> None:
        """Ask, and at last kill, ranks that did not end in time."""
        waited = time.monotonic() - self._since if self.expected else 0.0
        if waited > 2 * GRACE_SECONDS:
            self._send(signal.SIGKILL)
        elif waited > GRACE_SECONDS and not self.asked:
            self.ask()

    def _send(self, signum: int) -> None:
        for child in self._children:
            if child.poll() is None:
                child.send_signal(signum)
