"""Runs a pooled worker from its environment to its end."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from typing import NoReturn

from pool_worker import settings as configuration
from pool_worker.errors import SettingsError
from pool_worker.logs import Log
from pool_worker.metrics import Metrics, MetricsServer
from pool_worker.tasks import Handler
from pool_worker.worker import Worker

EXIT_USAGE = 64  # EX_USAGE: a setting is wrong; trying again cannot help
EXIT_SLOT_LOST = 70  # EX_SOFTWARE: a handler does not stop; the worker is restarted


def run(handlers: Mapping[str, Handler]) -> NoReturn:
    """Take tasks of the types in ``handlers`` (of JOB_TYPES only, if it is set) until SIGTERM; end the process.

    It ends by itself, with status 70, when a handler does not stop although it has to: Kubernetes restarts it.
    """
    try:
        settings = configuration.load(os.environ)
        chosen = _choose(handlers, settings.job_types)
    except SettingsError as error:
        Log().error("settings", str(error))
        sys.exit(EXIT_USAGE)
    log = Log(json_lines=settings.json_logs, worker=settings.worker_id)
    metrics = Metrics()
    worker = Worker(settings, chosen, log, metrics)
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: worker.stop())
    if settings.metrics_port:
        try:
            MetricsServer(settings.metrics_port, metrics, lambda: worker.alive)
        except OSError as error:
            log.warning("metrics", f"METRICS_PORT {settings.metrics_port} cannot be served: {error}")
    whole = worker.run()
    sys.stdout.flush()
    os._exit(0 if whole else EXIT_SLOT_LOST)  # a handler that does not stop must not hold the process up


def _choose(handlers: Mapping[str, Handler], job_types: tuple[str, ...]) -> dict[str, Handler]:
    unknown = [job_type for job_type in job_types if job_type not in handlers]
    if unknown:
        raise SettingsError(
            f"JOB_TYPES names {', '.join(unknown)}, but this worker knows {', '.join(sorted(handlers))}"
        )
    return {job_type: handlers[job_type] for job_type in job_types or handlers}
