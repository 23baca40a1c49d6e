"""Prometheus text of the worker and the HTTP server for it."""

from __future__ import annotations

import math
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from training_worker.progress import Report

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
GPU_SAMPLE_SECONDS = 5.0

Sample = tuple[dict[str, str], float]


def render(report: Report, gpu_utilization: float | None = None) -> str:
    """``report`` in the Prometheus text format 0.0.4. What is not known is left out."""
    lines: list[str] = []
    for name, help_text, samples in _families(report, gpu_utilization):
        if not samples:
            continue
        kind = "counter" if name.endswith("_total") else "gauge"
        lines += [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]
        lines += [f"{name}{_labels(labels)} {_number(value)}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def _families(report: Report, gpu_utilization: float | None) -> Iterator[tuple[str, str, list[Sample]]]:
    saved = report.checkpoint
    yield "training_epoch", "Epoch in progress, from 1; the last one when training is over.", _one(report.epoch)
    yield "training_epochs", "Epochs that the training consists of.", _one(report.epochs)
    yield "training_progress_ratio", "Share of the training that is done, 0 to 1.", _one(report.progress_ratio)
    yield "training_step", "Optimizer steps done since the training began, restarts included.", _one(report.step)
    yield "training_loss", "Mean training loss of the epoch so far, over all ranks.", _one(report.loss)
    yield "training_accuracy", "Accuracy on the validation data after the last epoch, 0 to 1.", _one(report.accuracy)
    yield "training_gpu_utilization_percent", "Utilization of this worker's GPU, 0 to 100.", _one(gpu_utilization)
    named = [({"name": name}, value) for name, value in sorted(report.metrics.items())]
    yield "training_metric", "Other metrics of the training by name.", named
    yield "training_world_size", "Ranks that take part.", _one(report.world_size)
    yield "training_restored_step", "Step that this run resumed at, 0 when it began at the first step.", _one(report.restored_step)
    yield "training_checkpoint_epoch", "Epochs in the newest checkpoint.", _one(saved.epoch if saved else None)
    yield "training_checkpoint_step", "Optimizer steps in the newest checkpoint.", _one(saved.step if saved else None)
    yield (
        "training_checkpoint_timestamp_seconds",
        "Time of the newest checkpoint in seconds since 1970.",
        _one(saved.timestamp if saved else None),
    )
    yield "training_checkpoint_size_bytes", "Size of the newest checkpoint.", _one(saved.size_bytes if saved else None)
    info = [({"path": saved.path}, 1.0)] if saved else []
    yield "training_checkpoint_info", "Path of the newest checkpoint; always 1.", info
    yield (
        "training_checkpoint_failures_total",
        "Checkpoints that this run could not write.",
        _one(report.checkpoint_failures),
    )


def _one(value: float | None) -> list[Sample]:
    return [] if value is None else [({}, float(value))]


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items()) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


class GpuUtilization:
    """Utilization of one GPU in percent, asked of nvidia-smi at most every few seconds."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._program = shutil.which("nvidia-smi")
        self._lock = threading.Lock()
        self._value: float | None = None
        self._sampled = -math.inf

    def __call__(self) -> float | None:
        """The last sample, or None when nvidia-smi is missing or does not say."""
        if self._program is None:
            return None
        with self._lock:
            if time.monotonic() - self._sampled >= GPU_SAMPLE_SECONDS:
                self._value = self._sample(self._program)
                self._sampled = time.monotonic()
            return self._value

    def _sample(self, program: str) -> float | None:
        query = [program, f"--id={self._index}", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
        try:
            answer = subprocess.run(query, capture_output=True, text=True, timeout=3, check=True)
            return float(answer.stdout.split()[0])
        except (OSError, subprocess.SubprocessError, ValueError, IndexError):
            return None


class MetricsServer:
    """Serves /metrics and /healthz on ``port`` of every address until the process ends.

    Port 0 takes a free one; ``port`` then says which. Raises OSError when the port is taken.
    """

    def __init__(self, port: int, text: Callable[[], str]) -> None:
        class Handler(BaseHTTPRequestHandler):
            timeout = 10
            server_version = "training-worker"
            sys_version = ""

            def do_GET(self) -> None:  # noqa: N802 (name given by http.server)
                path = self.path.split("?", 1)[0]
                if path == "/metrics":
                    self._answer(200, text())
                elif path == "/healthz":
                    self._answer(200, "ok\n")
                else:
                    self._answer(404, "not found\n")

            def _answer(self, status: int, body: str) -> None:
                payload = body.encode()
                self.send_response(status)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            def log_message(self, *_: object) -> None:
                """Scrapes are not logged."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                """A client that goes away in the middle of an answer is no event."""

        self._server = Server(("", port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()

    def close(self) -> None:
        """Stop serving and free the port."""
        self._server.shutdown()
        self._server.server_close()
