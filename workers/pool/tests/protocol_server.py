"""A small job service: the worker protocol over real HTTP, with faults that tests switch on."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Job:
    """One job, as the service sees it."""

    id: str
    job_type: str
    config: dict[str, Any]
    timeout_seconds: float = 0
    status: str = "queued"
    fence: int = 0
    attempts: int = 0
    worker: str = ""
    expires: float = 0.0
    result: Any = None
    message: str = ""
    retryable: bool | None = None
    cancel: bool = False
    heartbeats: list[float] = field(default_factory=list)


class Server:
    """Gives each job to one worker at a time; a lease that is not kept goes to the next."""

    def __init__(self, visibility: float = 3.0, token: str = "") -> None:
        self.visibility = visibility
        self.token = token
        self.jobs: dict[str, Job] = {}
        self.requests: list[tuple[str, int]] = []
        self.connections = 0
        self.broken = ""  # "503", "drop": how requests fail now
        self.too_large = 1 << 20
        self._condition = threading.Condition()
        self._fence = 0
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 60

            def setup(self) -> None:
                super().setup()
                service.connections += 1

            def do_POST(self) -> None:  # noqa: N802 (name given by http.server)
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
                if service.broken == "drop":
                    self.close_connection = True
                    return
                status, document = service.answer(self.path, body, self.headers.get("Authorization", ""))
                service.requests.append((self.path, status))
                payload = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            def log_message(self, *_: object) -> None:
                """Tests look at requests instead."""

        class HTTPServer(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                """A worker that was ended in the middle of a request is part of the tests."""

        self._http = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def close(self) -> None:
        """End the server."""
        self._http.shutdown()
        self._http.server_close()

    def submit(self, job_type: str, config: dict[str, Any] | None = None, timeout_seconds: float = 0) -> Job:
        """Queue a job."""
        with self._condition:
            job = Job(f"job-{len(self.jobs)}", job_type, config or {}, timeout_seconds)
            self.jobs[job.id] = job
            self._condition.notify_all()
        return job

    def revoke(self, job: Job) -> None:
        """Take the lease away, as when the visibility timeout is over."""
        with self._condition:
            self._fence += 1
            job.status, job.fence = "queued", self._fence
            self._condition.notify_all()

    def wait(self, job: Job, *statuses: str, seconds: float = 20.0) -> Job:
        """Wait until a job has one of the statuses."""
        end = time.monotonic() + seconds
        with self._condition:
            while job.status not in statuses:
                left = end - time.monotonic()
                assert left > 0, f"waited for {statuses}, but {job}; requests {self.requests[-10:]}"
                self._condition.wait(left)
        return job

    def answer(self, path: str, body: dict[str, Any], authorization: str) -> tuple[int, Any]:
        if self.broken:
            return 503, _error("SERVICE_UNAVAILABLE", "broken by the test")
        if self.token and authorization != f"Bearer {self.token}":
            return 401, _error("UNAUTHORIZED", "the token is not valid")
        if path == "/api/v1/tasks/lease":
            return 200, {"tasks": self._lease(body)}
        _, _, _, _, identity, action = path.split("/")
        with self._condition:
            job = self.jobs.get(identity)
            if job is None:
                return 404, _error("NOT_FOUND", "no such task")
            if job.fence != body["lease_token"] or (job.status != "running" and action == "heartbeat"):
                return 409, _error("CONFLICT", "the lease is lost")
            self._condition.notify_all()
            if action == "heartbeat":
                job.heartbeats.append(time.monotonic())
                job.expires = time.monotonic() + self.visibility
                return 200, {"lease_expires_at": "2030-01-01T00:00:00Z", "cancel": job.cancel}
            if action == "complete":
                if len(json.dumps(body["result"])) > self.too_large:
                    return 400, _error("VALIDATION_ERROR", "the result is too large")
                job.status, job.result = "succeeded", body["result"]
            else:
                job.status, job.message, job.retryable = "failed", body["message"], body["retryable"]
            return 200, {"id": job.id, "status": job.status}

    def _lease(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        end = time.monotonic() + body["wait_seconds"]
        with self._condition:
            while True:
                for job in self.jobs.values():
                    free = job.status == "queued" or (
                        job.status == "running" and job.expires < time.monotonic() and not job.cancel
                    )
                    if free and job.job_type in body["job_types"]:
                        return [self._give(job, body["worker_id"])]
                left = end - time.monotonic()
                if left <= 0 or not self._condition.wait(min(left, 0.2)) and left <= 0.2:
                    return []

    def _give(self, job: Job, worker: str) -> dict[str, Any]:
        self._fence += 1
        job.status, job.fence, job.worker, job.attempts = "running", self._fence, worker, job.attempts + 1
        job.expires = time.monotonic() + self.visibility
        self._condition.notify_all()
        return {
            "id": job.id,
            "lease_token": job.fence,
            "job_type": job.job_type,
            "config": job.config,
            "resources": {},
            "timeout_seconds": job.timeout_seconds,
            "attempt": job.attempts,
            "lease_expires_at": "2030-01-01T00:00:00Z",
            "visibility_timeout_seconds": self.visibility,
        }


def _error(code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "details": [], "request_id": "r"}}
