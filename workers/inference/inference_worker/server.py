"""The HTTP side of serving a model: the Open Inference Protocol, version 2, health and metrics."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from pool_worker.logs import Log
from pool_worker.metrics import CONTENT_TYPE

from inference_worker import __version__, tensors
from inference_worker.batcher import Batcher, QueueFullError
from inference_worker.predictor import PredictionError
from inference_worker.serving_metrics import ServingMetrics
from inference_worker.tensors import Request, RequestError

MAX_BODY_BYTES = 16 << 20
MAX_BODIES_BYTES = 256 << 20  # of all requests that are read at a time
BODY_SECONDS = 30.0
IDLE_SECONDS = 75.0
ANSWER_SECONDS = 60.0
MORE_CONNECTIONS = 64  # than requests that may wait: probes and scrapes get through
READ_BYTES = 1 << 16


class State:
    """What the requests of all connections share."""

    def __init__(
        self, name: str, platform: str, max_batch_size: int, max_delay: float, max_queue: int, log: Log
    ) -> None:
        self.name = name
        self.platform = platform
        self.log = log
        self.max_connections = max_queue + MORE_CONNECTIONS
        self.batcher = Batcher(max_batch_size, max_delay, max_queue, lambda: self.connections, self._count_call, log)
        self.metrics = ServingMetrics(lambda: self.batcher.depth, lambda: self.ready)
        self.loaded = False
        self.draining = False
        self.connections = 0
        self._lock = threading.Lock()
        self._in_flight = 0
        self._last = time.monotonic()
        self._bytes = 0

    @property
    def ready(self) -> bool:
        """Whether requests are wanted."""
        return self.loaded and not self.draining

    @contextmanager
    def in_flight(self) -> Iterator[None]:
        """A request for inference, from its head until its answer is sent."""
        with self._lock:
            self._in_flight += 1
        try:
            yield
        finally:
            with self._lock:
                self._in_flight -= 1
                self._last = time.monotonic()

    def quiet_for(self, since: float) -> float:
        """Seconds without a request for inference, from ``since`` at most."""
        with self._lock:
            return 0.0 if self._in_flight else time.monotonic() - max(since, self._last)

    @contextmanager
    def body(self, size: int) -> Iterator[bool]:
        """Room in memory for a body; False: there is none now."""
        with self._lock:
            fits = self._bytes + size <= MAX_BODIES_BYTES
            self._bytes += size if fits else 0
        try:
            yield fits
        finally:
            with self._lock:
                self._bytes -= size if fits else 0

    def connected(self, change: int) -> bool:
        """Count a connection that comes (1) or goes (-1); False: there are too many."""
        with self._lock:
            self.connections += change
            fits = self.connections <= self.max_connections
        if change < 0:
            self.batcher.look_again()
        return fits

    def _count_call(self, rows: int) -> None:
        self.metrics.call(rows)


class _Refused(Exception):
    """Ends a request with an error. ``close``: what follows on the connection cannot be read."""

    def __init__(self, status: int, message: str, *, close: bool = False, retry_after: int = 0) -> None:
        super().__init__(message)
        self.status = status
        self.close = close
        self.retry_after = retry_after


class Server:
    """Serves on ``port`` of every address until close(). Raises OSError when the port is taken."""

    def __init__(self, port: int, state: State) -> None:
        self._server = _HTTPServer(("", port), _handler(state))
        self._server.state = state
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, name="accept", daemon=True).start()

    def close(self) -> None:
        """Take no further connection."""
        self._server.shutdown()
        self._server.server_close()


class _HTTPServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 1024
    state: State

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give the connection a thread, if there are not too many."""
        if self.state.connected(1):
            super().process_request(request, client_address)
            return
        try:
            request.settimeout(1)
            request.sendall(
                b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            )
        except OSError:
            pass
        self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection, whichever way it ends."""
        self.state.connected(-1)
        super().shutdown_request(request)

    def handle_error(self, *_: object) -> None:
        """A client that goes away in the middle of an answer is no event."""


def _handler(state: State) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server_version = "inference-worker"
        sys_version = ""
        timeout = IDLE_SECONDS
        disable_nagle_algorithm = True
        wbufsize = -1  # head and body of an answer go in one packet

        def handle_expect_100(self) -> bool:
            """Ask for the body of a client that waits for that."""
            answer = super().handle_expect_100()
            self.wfile.flush()
            return answer

        def do_GET(self) -> None:  # noqa: N802 (name given by http.server)
            self._answer_with(self._get)

        def do_HEAD(self) -> None:  # noqa: N802
            self._answer_with(self._get)

        def do_POST(self) -> None:  # noqa: N802
            began = time.monotonic()
            with state.in_flight():
                status = self._answer_with(self._post)
            state.metrics.request(status, time.monotonic() - began)

        def _answer_with(self, handle: Callable[[], tuple[int, bytes, str]]) -> int:
            retry_after = 0
            try:
                status, payload, kind = handle()
            except _Refused as refused:
                status, payload, kind = refused.status, _error(str(refused)), "application/json"
                retry_after = refused.retry_after
                self.close_connection = self.close_connection or refused.close
            except OSError:  # the client is gone, or too slow
                raise
            except Exception as error:  # noqa: BLE001 (the client is not told what the program looks like)
                state.log.error("request", f"{self.command} {self.path}: {type(error).__name__}: {error}")
                status, kind = 500, "application/json"
                payload = _error("the request failed; the log of the worker says why")
            self._send(status, payload, kind, retry_after)
            return status

        def _get(self) -> tuple[int, bytes, str]:
            self._no_body()
            path = self._path()
            if path == "/metrics":
                return 200, state.metrics.render().encode(), CONTENT_TYPE
            if path == "/v2":
                return _json({"name": "inference-worker", "version": __version__, "extensions": []})
            if path == "/v2/health/live":
                return _json({"live": True})
            if path == "/v2/health/ready":
                return _json({"ready": state.ready}, 200 if state.ready else 503)
            if path == self._model():
                return _json({"name": state.name, "platform": state.platform, "inputs": [], "outputs": []})
            if path == self._model() + "/ready":
                return _json({"name": state.name, "ready": state.ready}, 200 if state.ready else 503)
            raise self._unknown(path)

        def _post(self) -> tuple[int, bytes, str]:
            path, size = self._path(), self._size()
            with state.body(size) as fits:
                if not fits:
                    raise _Refused(503, "too many large requests at a time", close=True, retry_after=1)
                body = self._body(size)
                if path != self._model() + "/infer":
                    raise self._unknown(path)
                if self.headers.get("Inference-Header-Content-Length"):
                    raise _Refused(400, "binary tensors are not supported: send data as JSON")
                if not state.loaded:
                    raise _Refused(503, "the model is being loaded", retry_after=1)
                try:
                    return 200, _infer(state, tensors.read(body)), "application/json"
                except RequestError as error:
                    raise _Refused(400, str(error)) from error

        def _model(self) -> str:
            return f"/v2/models/{state.name}"

        def _path(self) -> str:
            return unquote(self.path.split("?", 1)[0]).rstrip("/")

        def _unknown(self, path: str) -> _Refused:
            if path.startswith("/v2/models/") and not f"{path}/".startswith(f"{self._model()}/"):
                return _Refused(404, f"there is no such model: {state.name} is served")
            return _Refused(404, "there is nothing at this path")

        def _no_body(self) -> None:
            if self.headers.get("Transfer-Encoding") or self.headers.get("Content-Length", "0").strip() != "0":
                self.close_connection = True

        def _size(self) -> int:
            if self.headers.get("Transfer-Encoding"):
                raise _Refused(411, "send the body with Content-Length, not in chunks", close=True)
            lengths = self.headers.get_all("Content-Length") or []
            if len(lengths) != 1 or not (lengths[0].isascii() and lengths[0].isdigit()):
                raise _Refused(411, "the request needs one Content-Length", close=True)
            if len(lengths[0]) > 12 or int(lengths[0]) > MAX_BODY_BYTES:
                raise _Refused(413, f"the body is larger than {MAX_BODY_BYTES} bytes", close=True)
            return int(lengths[0])

        def _body(self, size: int) -> bytes:
            """Read the body, in BODY_SECONDS at most."""
            until, parts = time.monotonic() + BODY_SECONDS, []
            while size and (left := until - time.monotonic()) > 0:
                self.connection.settimeout(min(left, IDLE_SECONDS))
                part = self.rfile.read1(min(size, READ_BYTES))
                if not part:
                    break
                parts.append(part)
                size -= len(part)
            self.connection.settimeout(IDLE_SECONDS)
            if size:
                raise _Refused(408, "the body did not come in time", close=True)
            return b"".join(parts)

        def _send(self, status: int, payload: bytes, kind: str, retry_after: int) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(payload)))
            if retry_after:
                self.send_header("Retry-After", str(retry_after))
            if state.draining:
                self.close_connection = True
            if self.close_connection:
                self.send_header("Connection", "close")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(payload)
            self.wfile.flush()

        def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
            """Answer a request that http.server itself does not take."""
            self.close_connection = True
            self._send(code, _error(message or "the request is no HTTP request"), "application/json", 0)

        def log_message(self, *_: object) -> None:
            """Requests are counted, not logged."""

    return Handler


def _infer(state: State, request: Request) -> bytes:
    """The answer of the model. Raises _Refused."""
    try:
        pending = state.batcher.submit(request.tensors)
    except QueueFullError:
        raise _Refused(503, "too many requests wait: try again, or start more replicas", retry_after=1) from None
    if not pending.done.wait(ANSWER_SECONDS):
        pending.abandoned = True
        raise _Refused(503, f"the model gave no answer within {ANSWER_SECONDS:.0f} s", retry_after=1)
    if isinstance(pending.error, PredictionError):
        status = 503 if pending.error.out_of_memory else 400
        raise _Refused(status, f"the model cannot take the tensors: {pending.error}")
    if pending.error is not None:
        raise pending.error
    try:
        return tensors.write(state.name, request, pending.outputs)
    except ValueError as error:
        raise _Refused(500, str(error)) from error


def _json(document: dict[str, Any], status: int = 200) -> tuple[int, bytes, str]:
    return status, json.dumps(document).encode(), "application/json"


def _error(message: str) -> bytes:
    return json.dumps({"error": message}).encode()
