"""Pooled workers: they lease tasks from the job service and run them. Needs only the standard library.

A worker of your own is a function for each type of job::

    from pool_worker import Context, Fields, Task, run

    def double(task: Task, context: Context) -> dict:
        fields = Fields(task.config)
        number = fields.number("number", required=True)
        fields.finish()
        context.check()  # ends the task here when it was cancelled or the lease is lost
        return {"doubled": 2 * number}

    run({"simulation": double})
"""

from pool_worker.errors import ConfigError, TaskError, TaskStoppedError
from pool_worker.fields import Fields
from pool_worker.main import run
from pool_worker.tasks import Context, Task

__all__ = ["ConfigError", "Context", "Fields", "Task", "TaskError", "TaskStoppedError", "run"]
__version__ = "0.1.0"
