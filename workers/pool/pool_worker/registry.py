"""The operator's own workers, by type of job."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from pool_worker.tasks import Context, Handler, Task

BUNDLED = {
    "inference": "inference_worker.handler:infer",
    "evaluation": "inference_worker.handler:evaluate",
    "simulation": "simulation_worker.handler:simulate",
    "training": "training_task.handler:train",
}


def bundled() -> dict[str, Handler]:
    """Handlers of all types. Each is loaded with its first task, since PyTorch takes seconds and much memory."""
    return {job_type: _lazy(target) for job_type, target in BUNDLED.items()}


def _lazy(target: str) -> Handler:
    module, name = target.split(":")

    def handle(task: Task, context: Context) -> Mapping[str, Any]:
        return getattr(importlib.import_module(module), name)(task, context)

    return handle
