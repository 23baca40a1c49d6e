"""``python3 -m inference_worker serve``: one model by HTTP, until SIGTERM."""

from __future__ import annotations

import gc
import os
import re
import threading
import time
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NoReturn

from pool_worker.errors import ConfigError, TaskStoppedError
from pool_worker.fields import Fields
from pool_worker.tasks import SHUTTING_DOWN, Context
from training_worker.config import cpu_threads

from inference_worker.process import Process, config

if TYPE_CHECKING:
    from inference_worker.selection import Choice
    from inference_worker.server import State

# Requests may still come for a while after SIGTERM: Kubernetes tells the proxies of all nodes that the pod ends.
QUIET_SECONDS = 2.0
DRAIN_SECONDS = 18.0
LOOK_SECONDS = 0.1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True)
class ServeConfig:
    """What to serve, and how."""

    choice: Choice
    name: str
    port: int
    max_batch_size: int
    max_delay: float  # seconds
    max_queue: int
    threads: int


def serve() -> NoReturn:
    """Serve the model that CONFIG describes; end the process with status 143 after SIGTERM."""
    context = Context()
    process = Process(lambda: context.stop(SHUTTING_DOWN))

    def work() -> dict[str, Any]:
        return _serve(process, context)

    process.run(work)


def read(fields: Fields) -> ServeConfig:
    """Read the config. Raises ConfigError that names every wrong field."""
    from inference_worker import access, selection

    if "model" not in fields:
        fields.problem("model", "is missing: give the URI of a TorchScript model, or digits-cnn")
    choice = selection.choose(fields, access.own())
    name = fields.text("name", _derived(choice))
    if not _NAME.fullmatch(name):
        fields.problem("name", f"is {name[:80]!r}, but must be letters, digits, dots, _ and -, 63 at most")
    result = ServeConfig(
        choice=choice,
        name=name,
        port=fields.integer("port", 8080, minimum=0, maximum=65535),
        max_batch_size=fields.integer("max_batch_size", 32, minimum=1, maximum=1024),
        max_delay=fields.number("max_delay_ms", 2.0, minimum=0, maximum=1000) / 1000,
        max_queue=fields.integer("max_queue", 1024, minimum=1, maximum=16384),
        threads=fields.integer("threads", cpu_threads(os.environ, 1), minimum=1, maximum=1024),
    )
    fields.finish()
    return result


def _derived(choice: Choice) -> str:
    """The file name without its suffix, or the name of the bundled model."""
    if choice.location is None:
        return choice.name or "model"
    stem = PurePosixPath(choice.name.partition("?")[0]).stem
    return re.sub(r"[^A-Za-z0-9._-]", "-", stem).strip("._-")[:63] or "model"


def _serve(process: Process, context: Context) -> dict[str, Any]:
    fields = config()
    # Imported here, since PyTorch takes most of the start: a signal is noticed meanwhile.
    gc.disable()
    import torch

    from inference_worker.server import Server, State

    gc.enable()
    settings = read(fields)
    context.check()
    torch.set_num_threads(settings.threads)
    platform = "pytorch_torchscript" if settings.choice.location else "pytorch"
    state = State(
        settings.name, platform, settings.max_batch_size, settings.max_delay, settings.max_queue, process.log
    )
    try:
        server = Server(settings.port, state)
    except OSError as error:
        raise ConfigError(f"config.port: {settings.port} cannot be served: {error}") from error
    process.log.info("listening", f"port {server.port}: the model is being loaded", port=server.port)
    predictor = settings.choice.load(context.check)
    gc.collect()
    gc.freeze()
    threading.Thread(target=state.batcher.run, args=(predictor,), name="model", daemon=True).start()
    state.loaded = True
    process.log.info(
        "ready",
        f"serving {settings.name} on port {server.port}",
        model=predictor.name,
        device=predictor.device.type,
        port=server.port,
        threads=settings.threads,
    )
    while not context.wait(3600):
        pass
    _drain(state)
    server.close()
    process.log.info("drained", "no request is left, or the time for them is over")
    raise TaskStoppedError(context.reason)


def _drain(state: State) -> None:
    """Wait until no request has come for a while; new ones are answered meanwhile."""
    state.draining = True
    began = time.monotonic()
    while time.monotonic() - began < DRAIN_SECONDS and state.quiet_for(began) < QUIET_SECONDS:
        time.sleep(LOOK_SECONDS)
