"""Counts what the worker did, as Prometheus text, and serves it with the worker's health."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)
GPU_SAMPLE_SECONDS = 5.0


class Metrics:
    """Counters of tasks. Safe for several threads."""

    def __init__(self, gpu: Callable[[], float | None] | None = None) -> None:
        self._gpu = gpu or GpuUtilization()
        self._lock = threading.Lock()
        self._processed: dict[tuple[str, str], int] = {}
        self._durations: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}
        self._running: dict[str, tuple[str, Callable[[], float]]] = {}
        self._service_up = 0

    def started(self, task: str, job_type: str, progress: Callable[[], float]) -> None:
        """Note a task that runs."""
        with self._lock:
            self._running[task] = (job_type, progress)

    def ended(self, task: str, job_type: str, status: str, seconds: float) -> None:
        """Note how a task ended, and after how many seconds."""
        with self._lock:
            self._running.pop(task, None)
            self._processed[job_type, status] = self._processed.get((job_type, status), 0) + 1
            counts = self._durations.setdefault(job_type, [0] * (len(BUCKETS) + 1))
            counts[sum(seconds > bound for bound in BUCKETS)] += 1
            self._sums[job_type] = self._sums.get(job_type, 0.0) + seconds

    def service_answers(self, answers: bool) -> None:
        """Note whether the job service answered the last request for tasks."""
        with self._lock:
            self._service_up = int(answers)

    @property
    def ready(self) -> bool:
        """Whether tasks can be got: the job service answered last time."""
        with self._lock:
            return bool(self._service_up)

    def render(self) -> str:
        """All metrics in the Prometheus text format 0.0.4."""
        gpu = self._gpu()
        with self._lock:
            lines = [
                "# HELP worker_jobs_processed_total Tasks that ended, by how.",
                "# TYPE worker_jobs_processed_total counter",
            ]
            for (job_type, status), count in sorted(self._processed.items()):
                lines.append(f'worker_jobs_processed_total{{job_type="{_escape(job_type)}",status="{status}"}} {count}')
            lines += self._render_durations()
            lines += ["# HELP worker_jobs_running Tasks that run.", "# TYPE worker_jobs_running gauge"]
            lines.append(f"worker_jobs_running {len(self._running)}")
            lines += [
                "# HELP worker_job_progress_ratio Share of a running task that is done.",
                "# TYPE worker_job_progress_ratio gauge",
            ]
            for task, (job_type, progress) in sorted(self._running.items()):
                lines.append(
                    f'worker_job_progress_ratio{{job_id="{_escape(task)}",job_type="{_escape(job_type)}"}} '
                    f"{progress():.4f}"
                )
            lines += [
                "# HELP worker_job_service_up Whether the job service answered last.",
                "# TYPE worker_job_service_up gauge",
            ]
            lines.append(f"worker_job_service_up {self._service_up}")
        if gpu is not None:
            lines += [
                "# HELP worker_gpu_utilization Mean utilization of the worker's GPUs, 0 to 100.",
                "# TYPE worker_gpu_utilization gauge",
            ]
            lines.append(f"worker_gpu_utilization {gpu:g}")
        return "\n".join(lines) + "\n"

    def _render_durations(self) -> list[str]:
        name = "worker_job_duration_seconds"
        lines = [f"# HELP {name} How long tasks took.", f"# TYPE {name} histogram"]
        for job_type, counts in sorted(self._durations.items()):
            label, total = f'job_type="{_escape(job_type)}"', 0
            for bound, count in zip((*(f"{bound:g}" for bound in BUCKETS), "+Inf"), counts, strict=True):
                total += count
                lines.append(f'{name}_bucket{{{label},le="{bound}"}} {total}')
            lines += [f"{name}_sum{{{label}}} {self._sums[job_type]:.6f}", f"{name}_count{{{label}}} {total}"]
        return lines


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class GpuUtilization:
    """Mean utilization of the GPUs in percent, asked of nvidia-smi at most every few seconds."""

    def __init__(self) -> None:
        self._program = shutil.which("nvidia-smi")
        self._lock = threading.Lock()
        self._value: float | None = None
        self._sampled = float("-inf")

    def __call__(self) -> float | None:
        """The last sample, or None when there is no GPU."""
        if self._program is None:
            return None
        with self._lock:
            if time.monotonic() - self._sampled >= GPU_SAMPLE_SECONDS:
                self._value = self._sample(self._program)
                self._sampled = time.monotonic()
            return self._value

    def _sample(self, program: str) -> float | None:
        query = [program, "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
        try:
            answer = subprocess.run(query, capture_output=True, text=True, timeout=3, check=True)
            figures = [float(word) for word in answer.stdout.split()]
            return sum(figures) / len(figures) if figures else None
        except (OSError, subprocess.SubprocessError, ValueError):
            return None


class MetricsServer:
    """Serves /metrics, /healthz and /readyz on ``port`` of every address. Raises OSError when the port is taken."""

    def __init__(self, port: int, metrics: Metrics, alive: Callable[[], bool]) -> None:
        class Handler(BaseHTTPRequestHandler):
            timeout = 10
            server_version = "pool-worker"
            sys_version = ""

            def do_GET(self) -> None:  # noqa: N802 (name given by http.server)
                path = self.path.split("?", 1)[0]
                if path == "/metrics":
                    self._answer(200, metrics.render())
                elif path == "/healthz":
                    self._answer(*((200, "ok\n") if alive() else (503, "the threads that take tasks have ended\n")))
                elif path == "/readyz":
                    self._answer(*((200, "ok\n") if metrics.ready else (503, "the job service does not answer\n")))
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
