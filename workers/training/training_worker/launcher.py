"""One process per GPU: what ``PET_NPROC_PER_NODE`` asks for when the worker is started without torchrun."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Mapping

from training_worker.errors import EXIT_OK, EXIT_PEER_LOST, EXIT_SIGNAL_BASE

POLL_SECONDS = 0.1
GRACE_SECONDS = 20.0


def processes_wanted(env: Mapping[str, str]) -> int:
    """How many processes this replica should run, 1 when torchrun, MPI or a user has already started them."""
    if any(name in env for name in ("LOCAL_RANK", "TORCHELASTIC_RUN_ID", "OMPI_COMM_WORLD_LOCAL_RANK")):
        return 1
    wanted = env.get("PET_NPROC_PER_NODE", "")
    return max(1, int(wanted)) if wanted.isdigit() else 1


def environment(env: Mapping[str, str], local_rank: int, processes: int) -> dict[str, str]:
    """The environment of process ``local_rank`` of this replica. WORLD_SIZE and RANK of ``env`` count replicas."""
    replicas = int(env.get("PET_NNODES") or env.get("WORLD_SIZE") or 1)
    replica = int(env.get("PET_NODE_RANK") or env.get("RANK") or 0)
    return {
        **env,
        "MASTER_ADDR": env.get("MASTER_ADDR") or "127.0.0.1",
        "WORLD_SIZE": str(replicas * processes),
        "RANK": str(replica * processes + local_rank),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(processes),
    }


def run(env: Mapping[str, str], processes: int) -> int:
    """Run ``processes`` workers, pass SIGTERM on to them, and return the exit code that tells most."""
    command = [sys.executable, "-m", "training_worker"]
    children: list[subprocess.Popen[bytes]] = []

    def forward(signum: int, _: object) -> None:
        for child in children:
            if child.poll() is None:
                child.send_signal(signum)

    signal.signal(signal.SIGTERM, forward)
    signal.signal(signal.SIGINT, forward)
    for local_rank in range(processes):
        children.append(subprocess.Popen(command, env=environment(env, local_rank, processes)))
    failed_at = 0.0
    while any(child.poll() is None for child in children):
        if not failed_at and any(child.poll() for child in children):
            failed_at = time.monotonic()
        waited = time.monotonic() - failed_at if failed_at else 0.0
        if waited > 2 * GRACE_SECONDS:
            forward(signal.SIGKILL, None)
        elif waited > GRACE_SECONDS:
            forward(signal.SIGTERM, None)
            failed_at -= GRACE_SECONDS / 2
        time.sleep(POLL_SECONDS)
    return most_telling([child.returncode for child in children])


def most_telling(codes: list[int]) -> int:
    """The code of the replica: a cause before a consequence, which a lost peer is."""
    codes = [EXIT_SIGNAL_BASE - code if code < 0 else code for code in codes]
    causes = [code for code in codes if code not in (EXIT_OK, EXIT_PEER_LOST)]
    if causes:
        return causes[0]
    return EXIT_PEER_LOST if EXIT_PEER_LOST in codes else EXIT_OK
