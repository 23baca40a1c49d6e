"""Measures the inference worker: requests a second and latency of ``serve``, and lines a second of ``batch``.

The model is the bundled one as TorchScript. Clients, server and, for batches, the S3 server share the processors.
Rounds go in turn: each has every number of connections, with batching and without; the table has their medians.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WORKERS = Path(__file__).resolve().parent.parent
PACKAGES = [str(WORKERS / name) for name in ("pool", "inference", "training")]
sys.path[:0] = [*PACKAGES, str(WORKERS / "pool" / "tests")]

from s3_server import S3  # noqa: E402 (the path must be set first)

CONNECTIONS = (1, 8, 32)
BATCH_SIZES = {"on": 32, "off": 1}
START_SECONDS = 300.0


@dataclass(frozen=True)
class Round:
    """What one round of one number of connections has measured. Latencies are in milliseconds."""

    requests_per_second: float
    p50: float
    p99: float


def main() -> None:
    """Measure and print tables."""
    parser = argparse.ArgumentParser(description="measure the inference worker")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of a round of one number of connections")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", type=int, default=1, help="images in a request")
    parser.add_argument("--lines", type=int, default=100_000, help="lines of a batch; 0: no batch")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "model.pt").write_bytes(exported())
        measure_serving(folder, options.seconds, options.rounds, options.images)
        if options.lines:
            measure_batches(folder, options.lines, options.rounds)


def exported() -> bytes:
    """The bundled network as a TorchScript file; it takes images of shape (count, 1, 8, 8)."""
    import io

    import torch
    from inference_worker import model

    file = io.BytesIO()
    torch.jit.save(torch.jit.script(model.bundled("digits-cnn").network.cpu()), file)
    return file.getvalue()


def environment(folder: Path, config: dict[str, Any], **more: str) -> dict[str, str]:
    """Of a command in a process of its own."""
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": ":".join(PACKAGES),
        "WORK_DIR": str(folder),
        "TERMINATION_LOG": str(folder / "termination-log"),
        "CONFIG": json.dumps(config),
        **more,
    }


@contextlib.contextmanager
def serving(folder: Path, max_batch_size: int) -> Iterator[int]:
    """A server on a port of its own."""
    config = {"model": "model.pt", "port": 0, "max_batch_size": max_batch_size}
    command = [sys.executable, "-m", "inference_worker", "serve"]
    with subprocess.Popen(command, env=environment(folder, config), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                event = json.loads(line)
                if event["event"] == "ready":
                    break
                if event["event"] == "end":
                    raise SystemExit(event["message"])
            # The rest of the log is thrown away, so that the pipe does not fill.
            threading.Thread(target=process.stdout.read, daemon=True).start()
            yield event["port"]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def measure_serving(folder: Path, seconds: float, rounds: int, images: int) -> None:
    """Print the table of requests."""
    data = [[float((i + j) % 17) for j in range(64)] for i in range(images)]
    tensor = {"name": "image", "shape": [images, 1, 8, 8], "datatype": "FP32", "data": data}
    body = json.dumps({"inputs": [tensor]}).encode()
    head = f"POST /v2/models/model/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    request = head.encode() + body
    results: dict[tuple[str, int], list[Round]] = {}
    with contextlib.ExitStack() as stack:
        ports = {name: stack.enter_context(serving(folder, size)) for name, size in BATCH_SIZES.items()}
        for port in ports.values():  # TorchScript compiles with its first calls
            drive(port, request, max(CONNECTIONS), min(1.0, seconds))
        for _ in range(rounds):
            for connections in CONNECTIONS:
                for name, port in ports.items():
                    found = drive(port, request, connections, seconds)
                    results.setdefault((name, connections), []).append(found)
    print(f"\nmedians of {rounds} rounds of {seconds:g} s, {images} image(s) a request, {os.cpu_count()} processors\n")
    print("| batching | connections | requests/s | images/s | p50 | p99 |\n|---|---:|---:|---:|---:|---:|")
    for (name, connections), found_in in sorted(results.items(), key=lambda entry: (entry[0][1], entry[0][0])):
        rate = statistics.median(one.requests_per_second for one in found_in)
        p50, p99 = (statistics.median(getattr(one, figure) for one in found_in) for figure in ("p50", "p99"))
        print(f"| {name} | {connections} | {rate:,.0f} | {rate * images:,.0f} | {p50:.1f} ms | {p99:.1f} ms |")


def drive(port: int, request: bytes, connections: int, seconds: float) -> Round:
    """Send ``request`` on each of so many connections, again as soon as it was answered."""
    latencies: list[list[float]] = [[] for _ in range(connections)]
    start = threading.Barrier(connections + 1)
    failures: list[BaseException] = []

    def client(own: list[float]) -> None:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                start.wait()
                until = time.perf_counter() + seconds
                while (began := time.perf_counter()) < until:
                    connection.sendall(request)
                    receive(connection)
                    own.append(1000 * (time.perf_counter() - began))
        except BaseException as error:
            failures.append(error)
            start.abort()

    threads = [threading.Thread(target=client, args=(own,)) for own in latencies]
    for thread in threads:
        thread.start()
    with contextlib.suppress(threading.BrokenBarrierError):
        start.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    if failures:
        raise SystemExit(f"a client failed: {failures[0]!r}")
    together = sorted(one for own in latencies for one in own)
    return Round(len(together) / took, percentile(together, 0.5), percentile(together, 0.99))


def receive(connection: socket.socket) -> None:
    """Read one answer, which must be 200."""
    answer = b""
    while (end := answer.find(b"\r\n\r\n")) < 0:
        answer += some(connection)
    if not answer.startswith(b"HTTP/1.1 200 "):
        raise RuntimeError(answer[:200])
    at = answer.lower().index(b"content-length:") + len(b"content-length:")
    left = end + 4 + int(answer[at : answer.index(b"\r\n", at)]) - len(answer)
    while left > 0:
        left -= len(some(connection))


def some(connection: socket.socket) -> bytes:
    """What has come."""
    part = connection.recv(65536)
    if not part:
        raise ConnectionError("the server has closed the connection")
    return part


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value that ``share`` of the others do not exceed."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def measure_batches(folder: Path, lines: int, rounds: int) -> None:
    """Print how fast a batch goes from and to an S3 server."""
    (folder / "s3").mkdir()
    store = S3(folder / "s3")
    try:
        until = time.monotonic() + START_SECONDS
        while not store.answers():
            if time.monotonic() > until:
                raise SystemExit(f"the S3 server does not answer: {store.log.read_text()}")
            time.sleep(0.05)
        store.new_bucket()
        image = [[[(i * 5 + j) % 17 for j in range(8)] for i in range(8)]]
        config = {
            "model": store.put("model.pt", (folder / "model.pt").read_bytes()),
            "input": store.put("in.jsonl", f"{json.dumps(image)}\n".encode() * lines),
            "output": store.uri("out.jsonl"),
            "batch_size": 256,
        }
        found = [batch(folder, config, store.env) for _ in range(rounds)]
    finally:
        store.close()
    rate = statistics.median(float(one["items_per_second"]) for one in found)
    size = int(found[0]["bytes"]) / lines
    print(f"\nbatch of {lines:,} lines of {size:.0f} bytes, median of {rounds}: {rate:,.0f} lines/s\n")


def batch(folder: Path, config: dict[str, Any], env: dict[str, str]) -> dict[str, Any]:
    """Run one batch in a process of its own, and return its last words."""
    message = folder / "termination-log"
    message.touch()
    command = [sys.executable, "-m", "inference_worker", "batch"]
    subprocess.run(command, env=environment(folder, config, **env), stdout=subprocess.DEVNULL, check=True)
    result: dict[str, Any] = json.loads(message.read_text())
    return result


if __name__ == "__main__":
    main()
