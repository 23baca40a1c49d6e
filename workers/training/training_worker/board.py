"""A stand-in for TensorBoard that shows scalars, for clusters that cannot pull TensorBoard's own image.

It takes TensorBoard's options and answers its scalar requests at the same addresses, with the same JSON:
``/data/runs``, ``/data/plugin/scalars/tags`` and ``/data/plugin/scalars/scalars?run=RUN&tag=TAG``. ``/`` is a plain page
with the last value of each scalar. All other options and plugins of TensorBoard are missing.
"""

from __future__ import annotations

import argparse
import html
import json
import struct
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from training_worker.events import fields, records

Point = tuple[float, int, float]
Run = dict[str, list[Point]]


def read(directory: Path) -> dict[str, Run]:
    """All scalars below ``directory``: runs by the names of their folders, in them points by tag, in the order of steps."""
    runs: dict[str, Run] = {}
    for path in sorted(directory.rglob("*tfevents*")):
        run = runs.setdefault(str(path.parent.relative_to(directory)), {})
        for event in records(path.read_bytes()):
            _take(run, event)
    return runs


def _take(run: Run, event: bytes) -> None:
    wall_time, step, restarted, values = 0.0, 0, False, []
    for number, value in fields(event):
        if number == 1 and isinstance(value, float):
            wall_time = value
        elif number == 2 and isinstance(value, int):
            step = value
        elif number == 5 and isinstance(value, bytes):
            values = [content for _, content in fields(value) if isinstance(content, bytes)]
        elif number == 7:
            restarted = True
    if restarted:
        for tag in run:
            run[tag] = [point for point in run[tag] if point[1] < step]
    for content in values:
        named = dict(fields(content))
        tag, scalar = named.get(1), named.get(2)
        if isinstance(tag, bytes) and isinstance(scalar, float):
            run.setdefault(tag.decode(), []).append((wall_time, step, scalar))


class Handler(BaseHTTPRequestHandler):
    """Answers from the files as they are at the time of the request."""

    directory = Path()
    timeout = 10
    server_version = "training-board"
    sys_version = ""

    def do_GET(self) -> None:  # noqa: N802 (name given by http.server)
        address = urlsplit(self.path)
        try:
            runs = read(self.directory)
        except (OSError, ValueError, IndexError, struct.error) as error:
            self._answer(500, "text/plain", f"the event files cannot be read: {error}\n")
            return
        if address.path == "/":
            self._answer(200, "text/html", _page(runs))
        elif address.path == "/data/runs":
            self._answer_json(sorted(runs))
        elif address.path == "/data/plugin/scalars/tags":
            self._answer_json({run: {tag: {} for tag in sorted(runs[run])} for run in sorted(runs)})
        elif address.path == "/data/plugin/scalars/scalars":
            asked = parse_qs(address.query)
            run, tag = asked.get("run", [""])[0], asked.get("tag", [""])[0]
            if tag in runs.get(run, {}):
                self._answer_json(runs[run][tag])
            else:
                self._answer(404, "text/plain", f"run {run!r} has no scalar {tag!r}\n")
        else:
            self._answer(404, "text/plain", "not found\n")

    def _answer_json(self, value: Any) -> None:
        self._answer(200, "application/json", json.dumps(value))

    def _answer(self, status: int, kind: str, body: str) -> None:
        payload = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *_: object) -> None:
        """Requests are not logged."""


def _page(runs: dict[str, Run]) -> str:
    rows = "".join(
        f"<tr><td>{html.escape(run)}</td><td>{html.escape(tag)}</td><td>{points[-1][1]}</td><td>{points[-1][2]:g}</td></tr>"
        for run, tags in sorted(runs.items())
        for tag, points in sorted(tags.items())
        if points
    )
    return (
        "<!DOCTYPE html><title>Training</title><h1>Training</h1><p>Last values. This is a stand-in for TensorBoard.</p>"
        f"<table><tr><th>run</th><th>scalar</th><th>step</th><th>value</th></tr>{rows}</table>"
    )


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(prog="tensorboard", description=__doc__)
    parser.add_argument("--logdir", required=True, type=Path)
    parser.add_argument("--port", type=int, default=6006)
    parser.add_argument("--bind_all", action="store_true")
    arguments, _ = parser.parse_known_args()
    Handler.directory = arguments.logdir
    server = ThreadingHTTPServer(("" if arguments.bind_all else "127.0.0.1", arguments.port), Handler)
    print(f"scalars below {arguments.logdir} are served on port {server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
