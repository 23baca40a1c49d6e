"""Serving a model by HTTP: the protocol, how requests share calls of the model, and the end of the server."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scripted
import torch
from conftest import PACKAGES, wait_for
from inference_worker.predictor import ScriptPredictor
from inference_worker.serve_command import ServeConfig, read
from inference_worker.server import MAX_BODY_BYTES, Server, State
from pool_worker.errors import ConfigError
from pool_worker.fields import Fields
from pool_worker.logs import Log

INFER = "/v2/models/m/infer"


class Gate:
    """A predictor whose calls wait until they are let through."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.name, self.device = "m", torch.device("cpu")
        self.called = threading.Semaphore(0)
        self.open = threading.Event()
        self.open.set()
        self._inner = ScriptPredictor("m", torch.jit.script(module.eval()), self.device)

    def run(self, tensors: list[torch.Tensor]) -> list[tuple[str, torch.Tensor]]:
        self.called.release()
        assert self.open.wait(60)
        return self._inner.run(tensors)


class Serving:
    """A server in threads of the test."""

    def __init__(self, module: torch.nn.Module, max_batch_size: int = 32, max_queue: int = 64) -> None:
        # Requests wait for others until all connections have one: what is merged does not depend on time.
        self.log = io.StringIO()
        self.state = State("m", "pytorch", max_batch_size, 60.0, max_queue, Log(stream=self.log))
        self.gate = Gate(module)
        threading.Thread(target=self.state.batcher.run, args=(self.gate,), daemon=True).start()
        self.state.loaded = True
        self._server = Server(0, self.state)
        self.port = self._server.port

    def close(self) -> None:
        self.gate.open.set()
        self.state.batcher.close()
        self._server.close()

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        return ask(self.port, method, path, body, **headers)

    def metric(self, name: str) -> float:
        return metric(self.port, name)


def ask(port: int, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """One request on a connection of its own: status and JSON, or text."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        payload = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, payload, {key.replace("_", "-"): value for key, value in headers.items()})
        answer = connection.getresponse()
        text = answer.read().decode()
        return answer.status, json.loads(text) if answer.headers["Content-Type"] == "application/json" else text


def metric(port: int, name: str) -> float:
    """The value of a line of /metrics; 0 when there is none."""
    found = re.search(rf"^{re.escape(name)} (\S+)$", ask(port, "GET", "/metrics")[1], re.MULTILINE)
    return float(found[1]) if found else 0


def tensor(data: Any, shape: list[int], datatype: str = "FP32") -> dict[str, Any]:
    return {"inputs": [{"name": "x", "shape": shape, "datatype": datatype, "data": data}]}


@pytest.fixture
def serve() -> Iterator[Callable[..., Serving]]:
    started: list[Serving] = []

    def start(module: torch.nn.Module, **settings: Any) -> Serving:
        started.append(Serving(module, **settings))
        return started[-1]

    yield start
    for one in started:
        one.close()


def test_it_says_what_it_serves(serve: Callable[..., Serving]) -> None:
    serving = serve(scripted.Affine())
    assert serving.ask("GET", "/v2")[1]["name"] == "inference-worker"
    assert serving.ask("GET", "/v2/health/live") == (200, {"live": True})
    assert serving.ask("GET", "/v2/health/ready") == (200, {"ready": True})
    assert serving.ask("GET", "/v2/models/m") == (
        200, {"name": "m", "platform": "pytorch", "inputs": [], "outputs": []}
    )
    assert serving.ask("GET", "/v2/models/m/ready") == (200, {"name": "m", "ready": True})


def test_answers_are_what_the_model_says(serve: Callable[..., Serving]) -> None:
    serving, module = serve(scripted.Affine()), scripted.Affine()
    values = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    expected = module(values).detach().numpy()
    nested, flat = values.tolist(), values.reshape(-1).tolist()
    for data in (nested, flat):
        status, answer = serving.ask("POST", INFER, {"id": "7", **tensor(data, [5, 3])})
        assert (status, answer["model_name"], answer["id"]) == (200, "m", "7")
        (output,) = answer["outputs"]
        assert (output["name"], output["datatype"], output["shape"]) == ("output_0", "FP32", [5, 2])
        assert np.array_equal(np.float32(output["data"]).reshape(5, 2), expected)


def test_datatypes_come_back(serve: Callable[..., Serving]) -> None:
    serving = serve(torch.nn.Identity())
    for datatype, data in (
        ("BOOL", [True, False]),
        ("UINT8", [0, 255]),
        ("INT64", [-(2**62), 2**62]),
        ("FP16", [0.5, -2]),
        ("FP64", [0.1, 1e300]),
    ):
        status, answer = serving.ask("POST", INFER, tensor(data, [2], datatype))
        assert (status, answer["outputs"][0]["data"], answer["outputs"][0]["datatype"]) == (200, data, datatype)


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "words"),
    [
        ("GET", "/", None, {}, 404, "nothing at this path"),
        ("GET", "/v2/models/other", None, {}, 404, "no such model: m is served"),
        ("POST", "/v2/models/other/infer", {}, {}, 404, "no such model: m is served"),
        ("POST", "/v2/models/m", {}, {}, 404, "nothing at this path"),
        ("PUT", INFER, {}, {}, 501, "Unsupported method"),
        ("POST", INFER, b"{", {}, 400, "the body is no JSON"),
        ("POST", INFER, b"[" * 100_000, {}, 400, "nested too deeply"),
        ("POST", INFER, [], {}, 400, "must be a JSON object"),
        ("POST", INFER, {}, {}, 400, "inputs must be a list of 1 to 64 tensors"),
        ("POST", INFER, {"id": 7}, {}, 400, "id must be a string"),
        ("POST", INFER, {"inputs": [{}]}, {}, 400, r"inputs\[0\].name must be a string"),
        ("POST", INFER, tensor([1], [1], "BYTES"), {}, 400, r"inputs\[0\].datatype is 'BYTES', but must be one of"),
        ("POST", INFER, tensor([1], []), {}, 400, r"inputs\[0\].shape must be a list"),
        ("POST", INFER, tensor([1], [-1]), {}, 400, r"inputs\[0\].shape must be a list"),
        ("POST", INFER, tensor([1], [2**30, 2**30]), {}, 400, r"inputs\[0\].data has 1 values, but the shape needs"),
        ("POST", INFER, tensor([[1, 2], [3]], [3]), {}, 400, r"inputs\[0\].data has lists of different lengths"),
        ("POST", INFER, tensor(["1"], [1]), {}, 400, r"inputs\[0\].data must have only numbers"),
        ("POST", INFER, tensor([1.5], [1], "INT64"), {}, 400, r"inputs\[0\].data must have only whole numbers"),
        ("POST", INFER, tensor([256], [1], "UINT8"), {}, 400, r"inputs\[0\].data has numbers outside 0 to 255"),
        ("POST", INFER, tensor([1e39], [1]), {}, 400, r"inputs\[0\].data has numbers that are too large"),
        ("POST", INFER, b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[NaN]}]}', {}, 400, "NaN is no"),
        ("POST", INFER, tensor([1, 2], [1, 2]), {}, 400, "the model cannot take the tensors: .*shape"),
        ("POST", INFER, tensor([1, 2, 3], [1, 3]) | {"outputs": [{"name": "y"}]}, {}, 400, "no 'y', but output_0"),
        ("POST", INFER, {}, {"Inference_Header_Content_Length": "2"}, 400, "binary tensors are not supported"),
        ("POST", INFER, None, {"Content_Length": str(MAX_BODY_BYTES + 1)}, 413, "larger than 16777216 bytes"),
        ("POST", INFER, None, {"Content_Length": "-1"}, 411, "needs one Content-Length"),
        ("POST", INFER, None, {"Transfer_Encoding": "chunked"}, 411, "not in chunks"),
    ],
)
def test_errors(
    shared: Serving, method: str, path: str, body: Any, headers: dict[str, str], status: int, words: str
) -> None:
    code, answer = shared.ask(method, path, body, **headers)
    assert (code, list(answer)) == (status, ["error"])
    assert re.search(words, answer["error"]) and "Traceback" not in answer["error"]


@pytest.fixture(scope="module")
def shared() -> Iterator[Serving]:
    serving = Serving(scripted.Affine())
    yield serving
    serving.close()


def test_a_connection_is_kept(serve: Callable[..., Serving]) -> None:
    serving = serve(scripted.Affine())
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", serving.port, timeout=60)) as connection:
        for body in (tensor([1, 2, 3], [1, 3]), {}, tensor([1, 2, 3], [1, 3])):
            connection.request("POST", INFER, json.dumps(body))
            used = connection.sock
            connection.getresponse().read()
            assert connection.sock is used
    assert serving.metric('inference_server_requests_total{code="200"}') == 2
    assert serving.metric('inference_server_requests_total{code="400"}') == 1
    assert serving.metric("inference_server_request_duration_seconds_count") == 3


def waiting(serving: Serving, number: int) -> None:
    wait_for(lambda: serving.state.batcher.depth == number, f"{number} requests in the queue")


def test_requests_that_come_together_share_a_call(serve: Callable[..., Serving]) -> None:
    serving = serve(scripted.Affine(), max_batch_size=8)
    serving.gate.open.clear()
    with ThreadPoolExecutor(16) as clients:
        first = clients.submit(serving.ask, "POST", INFER, tensor([0, 0, 0], [1, 3]))
        assert serving.gate.called.acquire(timeout=60)
        others = [clients.submit(serving.ask, "POST", INFER, tensor([i, 0, 0], [1, 3])) for i in range(10)]
        others.append(clients.submit(serving.ask, "POST", INFER, tensor([1, 2], [1, 2])))  # a shape that is wrong
        waiting(serving, 11)
        assert serving.metric("inference_server_queue_depth") == 11
        serving.gate.open.set()
        assert first.result()[0] == 200
        assert [round(other.result()[1]["outputs"][0]["data"][0], 3) for other in others[:10]] == [
            pytest.approx(i + 0.1) for i in range(10)
        ]
        assert others[10].result()[0] == 400
    # One alone, eight together, and the last two together; the wrong one alone.
    assert serving.metric("inference_server_batch_size_count") == 4
    assert serving.metric("inference_server_batch_size_sum") == 1 + 8 + 2 + 1
    assert serving.metric('inference_server_batch_size_bucket{le="4"}') == 3


class Picky(torch.nn.Module):
    """Refuses negative numbers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool((x < 0).any()):
            raise ValueError("negative")
        return x


@pytest.mark.parametrize("module", [Picky(), scripted.Total()])
def test_one_request_does_not_spoil_the_others(serve: Callable[..., Serving], module: torch.nn.Module) -> None:
    serving = serve(module)
    serving.gate.open.clear()
    with ThreadPoolExecutor(4) as clients:
        first = clients.submit(serving.ask, "POST", INFER, tensor([0], [1]))
        assert serving.gate.called.acquire(timeout=60)
        others = [clients.submit(serving.ask, "POST", INFER, tensor([i], [1])) for i in (1, -1, 2)]
        waiting(serving, 3)
        serving.gate.open.set()
        assert first.result()[0] == 200
        answers = [other.result() for other in others]
    total = isinstance(module, scripted.Total)
    assert [status for status, _ in answers] == [200, 200 if total else 400, 200]
    assert [answer["outputs"][0]["data"] for _, answer in answers[::2]] == [[1], [2]]
    assert ("no-batching" in serving.log.getvalue()) == total


def test_a_full_queue_is_told(serve: Callable[..., Serving]) -> None:
    serving = serve(scripted.Affine(), max_queue=1)
    serving.gate.open.clear()
    with ThreadPoolExecutor(2) as clients:
        first = clients.submit(serving.ask, "POST", INFER, tensor([0, 0, 0], [1, 3]))
        assert serving.gate.called.acquire(timeout=60)
        second = clients.submit(serving.ask, "POST", INFER, tensor([0, 0, 0], [1, 3]))
        waiting(serving, 1)
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", serving.port, timeout=60)) as connection:
            connection.request("POST", INFER, json.dumps(tensor([0, 0, 0], [1, 3])))
            answer = connection.getresponse()
            assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
            assert json.load(answer)["error"].startswith("too many requests wait")
        serving.gate.open.set()
        assert (first.result()[0], second.result()[0]) == (200, 200)


def configured(**config: Any) -> ServeConfig:
    return read(Fields(config))


def test_the_config_of_a_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WORK_DIR", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    found = configured(model="s3://models/team/sentiment v2.pt".replace(" ", "+"))
    assert (found.name, found.port, found.max_batch_size, found.max_delay) == ("sentiment-v2", 8080, 32, 0.002)
    assert (found.max_queue, found.threads) == (1024, 3)
    assert configured(model="digits-cnn", threads=2).name == "digits-cnn"
    assert configured(model="folder/m.pt", name="other").name == "other"
    with pytest.raises(ConfigError) as caught:
        configured(port=-1, max_batch_size=0, name="a/b", batch=1)
    for words in ("model: is missing", "port: is -1", "max_batch_size: is 0", "name: is 'a/b'", "batch: is unknown"):
        assert f"config.{words}" in str(caught.value)


def test_it_is_ready_once_the_model_is_loaded_and_drains_after_sigterm(tmp_path: Path) -> None:
    work, log, message = tmp_path / "work", tmp_path / "log", tmp_path / "termination-log"
    work.mkdir()
    os.mkfifo(work / "m.pt")  # the model is there when the test writes it
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": ":".join(PACKAGES),
        "PYTHONDONTWRITEBYTECODE": "1",
        "CONFIG": json.dumps({"model": "m.pt", "port": 0, "threads": 1}),
        "TERMINATION_LOG": str(message),
        "WORK_DIR": str(work),
    }

    def event(name: str) -> list[dict[str, Any]]:
        text = log.read_text()
        lines = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
        return [line for line in lines if line["event"] == name]

    with open(log, "wb") as output:
        command = [sys.executable, "-m", "inference_worker", "serve"]
        process = subprocess.Popen(command, env=env, stdout=output, stderr=output)
    try:
        (listening,) = wait_for(lambda: event("listening"), "the server to listen", seconds=300)
        port = listening["port"]
        assert ask(port, "GET", "/v2/health/live")[0] == 200
        assert ask(port, "GET", "/v2/health/ready") == (503, {"ready": False})
        assert ask(port, "POST", INFER, tensor([1], [1])) == (503, {"error": "the model is being loaded"})
        (work / "m.pt").write_bytes(scripted.saved(scripted.Scale(2.0)))
        wait_for(lambda: ask(port, "GET", "/v2/health/ready")[0] == 200, "the server to be ready", seconds=300)
        assert metric(port, "inference_server_ready") == 1

        body = json.dumps(tensor([21], [1])).encode()
        with socket.create_connection(("127.0.0.1", port), timeout=60) as half:
            half.sendall(b"POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n{" % (INFER.encode(), len(body)))
            assert ask(port, "POST", INFER, tensor([1], [1]))[0] == 200  # so that the half one has arrived
            process.send_signal(signal.SIGTERM)
            wait_for(lambda: ask(port, "GET", "/v2/health/ready")[0] == 503, "the server not to be ready")
            assert ask(port, "POST", INFER, tensor([1], [1]))[0] == 200
            half.sendall(body[1:])
            answer = b""
            while part := half.recv(4096):
                answer += part
        assert answer.startswith(b"HTTP/1.1 200 ") and b"Connection: close" in answer and b"[42]" in answer
        assert process.wait(60) == 143, log.read_text()
        assert json.loads(message.read_text()) == {"message": "stopped by a signal"}
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10)
