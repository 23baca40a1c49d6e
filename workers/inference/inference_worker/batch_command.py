"""``python3 -m inference_worker batch``: a batch in a pod of its own."""

from __future__ import annotations

import gc
import time
from typing import Any, NoReturn

from pool_worker.logs import Log
from pool_worker.tasks import SHUTTING_DOWN, Context

from inference_worker.process import Process, config

LOG_SECONDS = 5.0


class _Logged(Context):
    """Logs progress, the first time and then every few seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.log: Log | None = None
        self._logged = float("-inf")

    def progress(self, ratio: float) -> None:
        """Say which share is done."""
        super().progress(ratio)
        now = time.monotonic()
        if self.log is not None and (now - self._logged >= LOG_SECONDS or ratio >= 1):
            self._logged = now
            self.log.info("progress", f"{100 * ratio:.1f} % of the input is done", progress=round(ratio, 4))


def run() -> NoReturn:
    """Run the batch that CONFIG describes and end the process."""
    context = _Logged()
    process = Process(lambda: context.stop(SHUTTING_DOWN))
    context.log = process.log

    def work() -> dict[str, Any]:
        fields = config()
        # Imported here, since PyTorch takes most of the start: a signal is noticed meanwhile.
        gc.disable()
        from inference_worker import access, batch

        gc.enable()
        what = batch.read(fields, access.own())
        process.log.info("start", f"from {what.source.name} to {what.target.name}", batch_size=what.batch_size)
        context.check()
        return batch.run(what, context)

    process.run(work)
