"""The worker's side of the job service's protocol, over HTTP connections that are kept open."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pool_worker.errors import LeaseLostError, RejectedError, ServiceError, UnavailableError
from pool_worker.settings import Settings
from pool_worker.tasks import Task

MAX_MESSAGE_CHARACTERS = 4000


@dataclass(frozen=True)
class Beat:
    """The answer to a heartbeat."""

    cancel: bool


class Trust:
    """What the job service's certificate is held to: the authorities of the system, and those of a file, as it is now."""

    def __init__(self, ca_file: Path | None) -> None:
        self._file = ca_file
        self._lock = threading.Lock()
        self._text = ""
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext:
        """Raises UnavailableError while the file has no certificates: Kubernetes may be about to write it."""
        try:
            text = self._file.read_text() if self._file else ""
            with self._lock:
                if self._context is None or text != self._text:
                    context = ssl.create_default_context()
                    context.minimum_version = ssl.TLSVersion.TLSv1_2
                    if self._file:
                        context.load_verify_locations(cadata=text)
                    self._text, self._context = text, context
                return self._context
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise UnavailableError(f"JOB_SERVICE_CA_FILE {self._file} cannot be read: {error}") from error


class JobService:
    """Asks the job service. Each thread has a connection of its own; every method may raise a ServiceError."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        url = urlsplit(settings.service_url)
        self._host = url.hostname or ""
        self._port = url.port
        self._prefix = url.path.rstrip("/")
        self._trust = Trust(settings.ca_file) if url.scheme == "https" else None
        self._local = threading.local()

    def lease(self, job_types: list[str], wait: float) -> list[Task]:
        """Wait up to ``wait`` seconds for a task of the queue. None is no error."""
        answer = self._call(
            "/api/v1/tasks/lease",
            {
                "queue": self._settings.queue,
                "worker_id": self._settings.worker_id,
                "job_types": job_types,
                "max_tasks": 1,
                "wait_seconds": int(wait),
            },
            timeout=wait + self._settings.request_timeout,
        )
        return [_task(entry) for entry in answer.get("tasks") or []]

    def heartbeat(self, task: Task) -> Beat:
        """Keep the lease of a task. LeaseLostError when it is over."""
        # Two in a row must fit into a lease, or one slow answer would lose it.
        timeout = min(self._settings.request_timeout, max(1.0, task.visibility_seconds / 3))
        answer = self._call(self._path(task, "heartbeat"), {"lease_token": task.lease_token}, timeout=timeout)
        return Beat(cancel=bool(answer.get("cancel")))

    def complete(self, task: Task, result: Any) -> None:
        """End a task well. Saying it again is no error."""
        self._call(self._path(task, "complete"), {"lease_token": task.lease_token, "result": result})

    def fail(self, task: Task, message: str, *, retryable: bool) -> None:
        """Give a task back."""
        body = {"lease_token": task.lease_token, "message": message[:MAX_MESSAGE_CHARACTERS], "retryable": retryable}
        self._call(self._path(task, "fail"), body)

    def close(self) -> None:
        """Close the connection of this thread."""
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            self._local.connection = None
            connection.close()

    def _path(self, task: Task, action: str) -> str:
        return f"/api/v1/tasks/{task.id}/{action}"

    def _call(self, path: str, body: dict[str, Any], timeout: float | None = None) -> dict[str, Any]:
        payload = json.dumps(body, allow_nan=False, separators=(",", ":")).encode()
        status, headers, answer = self._exchange(path, payload, timeout or self._settings.request_timeout)
        if 200 <= status < 300:
            document = _parse(answer)
            if isinstance(document, dict):
                return document
            raise UnavailableError(f"{path}: the answer is no JSON object")
        raise _error(path, status, headers, answer)

    def _exchange(self, path: str, payload: bytes, timeout: float) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Send a request. A kept connection that the service has closed meanwhile is tried once more with a new one."""
        headers = {"Content-Type": "application/json", "Accept": "application/json", **self._authorization()}
        while True:
            connection, fresh = self._connection(timeout)
            try:
                connection.request("POST", self._prefix + path, body=payload, headers=headers)
                response = connection.getresponse()
                answer = response.read()
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError) as error:
                self.close()
                if fresh:
                    raise UnavailableError(f"{path}: {error}") from error
                continue
            except (OSError, http.client.HTTPException) as error:
                self.close()
                raise UnavailableError(f"{path}: {type(error).__name__}: {error}") from error
            if response.will_close:
                self.close()
            return response.status, response.headers, answer

    def _connection(self, timeout: float) -> tuple[http.client.HTTPConnection, bool]:
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is not None and connection.sock is not None:
            connection.sock.settimeout(timeout)
            return connection, False
        if self._trust is not None:
            connection = http.client.HTTPSConnection(
                self._host, self._port, timeout=timeout, context=self._trust.context()
            )
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        self._local.connection = connection
        return connection, True

    def _authorization(self) -> dict[str, str]:
        """The token, read again each time: Kubernetes puts a new one into the file long before the old one ends."""
        token = self._settings.token
        if self._settings.token_file is not None:
            try:
                token = self._settings.token_file.read_text().strip()
            except OSError as error:
                raise UnavailableError(
                    f"JOB_SERVICE_TOKEN_FILE {self._settings.token_file} cannot be read: {error}"
                ) from error
        return {"Authorization": f"Bearer {token}"} if token else {}


def _task(entry: dict[str, Any]) -> Task:
    return Task(
        id=str(entry["id"]),
        lease_token=int(entry["lease_token"]),
        job_type=str(entry["job_type"]),
        config=entry.get("config") or {},
        visibility_seconds=float(entry.get("visibility_timeout_seconds") or 30),
        timeout_seconds=float(entry.get("timeout_seconds") or 0),
        attempt=int(entry.get("attempt") or 1),
        resources=entry.get("resources") or {},
    )


def _parse(answer: bytes) -> Any:
    try:
        return json.loads(answer)
    except ValueError:
        return None


def _error(path: str, status: int, headers: http.client.HTTPMessage, answer: bytes) -> ServiceError:
    document = _parse(answer)
    error = document.get("error") if isinstance(document, dict) else None
    error = error if isinstance(error, dict) else {}
    details = "; ".join(
        f"{detail.get('field')}: {detail.get('message')}"
        for detail in error.get("details") or []
        if isinstance(detail, dict)
    )
    message = error.get("message") or answer[:200].decode(errors="replace")
    text = f"{path}: {status} {error.get('code', '')}: {message}" + (f" ({details})" if details else "")
    if status in (404, 409):
        return LeaseLostError(text)
    if status == 429 or status >= 500:
        after = headers.get("Retry-After", "")
        return UnavailableError(text, float(after) if after.isdigit() else None)
    return RejectedError(text, status)
