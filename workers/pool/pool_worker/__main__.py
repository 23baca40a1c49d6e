"""Entry point of ``python3 -m pool_worker``: the operator's own workers, of the types in JOB_TYPES."""

from pool_worker.main import run
from pool_worker.registry import bundled

if __name__ == "__main__":
    run(bundled())
