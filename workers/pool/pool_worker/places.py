"""Where tasks may write: below WORK_DIR, and nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

DEFAULT_WORK_DIR = "/tmp/tasks"
# Models that the worker keeps, for tasks of all users: what a task names must not lie there.
MODELS = ".models"


def work_dir() -> Path:
    """The folder of the tasks' files: WORK_DIR, by default /tmp/tasks, which is lost with the pod."""
    return Path(os.environ.get("WORK_DIR", "").strip() or DEFAULT_WORK_DIR).resolve()


def inside_work_dir(name: str) -> Path:
    """The path ``name``, relative or absolute, if it lies below the folder of the tasks. Raises ValueError if not."""
    base = work_dir()
    path = (base / name).resolve()
    if not name or path == base or not path.is_relative_to(base):
        raise ValueError(f"is {name!r}, but must be a path below WORK_DIR, {base}")
    if path.relative_to(base).parts[0] == MODELS:
        raise ValueError(f"is {name!r}, but {MODELS} is the worker's own: give another path below WORK_DIR, {base}")
    return path


def models_dir() -> Path:
    """The folder of the models that the worker has fetched."""
    return work_dir() / MODELS
