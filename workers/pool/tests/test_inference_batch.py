"""Batches from and to locations: all of the output or nothing, progress, wrong lines, and the command for a pod."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scripted
from conftest import PACKAGES, wait_for
from inference_worker import access, locations, model
from inference_worker.handler import infer
from pool_worker.errors import ConfigError, TaskError, TaskStoppedError
from pool_worker.tasks import CANCELLED, Context, Task
from s3_server import S3


class Watched(Context):
    """Keeps the progress, and is cancelled after some of it."""

    def __init__(self, cancel_after: int = 0) -> None:
        super().__init__()
        self.ratios: list[float] = []
        self._cancel_after = cancel_after

    def progress(self, ratio: float) -> None:
        self.ratios.append(ratio)
        if len(self.ratios) == self._cancel_after:
            self.stop(CANCELLED)


def run(context: Context | None = None, **config: Any) -> Any:
    return infer(Task("id", 1, "inference", config, visibility_seconds=30), context or Context())


def parsed(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in content.splitlines()]


def test_a_batch_from_and_to_the_store(s3: S3) -> None:
    lines = ["[1, 2, 3]", '{"id": {"row": "ä"}, "input": [0, 0, 0]}', "", '{"input": [1, 0, 0]}', "[0, 1e-3, 0]"]
    content = "\n".join(lines).encode()
    uri, context = s3.put("affine.pt", scripted.saved(scripted.Affine())), Watched()
    result = run(
        context, model=uri, input=s3.put("in.jsonl", content), output=s3.uri("out/o.jsonl"), batch_size=2
    )
    assert s3.get("out/o.jsonl").startswith('{"id":1,"output":[14.1000004,-0.949999988]}\n{"id":{"row": "ä"}'.encode())
    said = parsed(s3.get("out/o.jsonl"))
    assert [entry["id"] for entry in said] == [1, {"row": "ä"}, 4, 5]
    expected = [[14.1, -0.95], [0.1, -0.2], [1.1, 0.3], [0.102, -0.201]]
    assert np.allclose([entry["output"] for entry in said], expected)
    ends = [len("\n".join(lines[:2])) + 2, len(content)]  # ä has two bytes
    assert context.ratios == [pytest.approx(ends[0] / ends[1]), 1, 1]
    assert (result["count"], result["bytes"], result["output"]) == (4, len(content), s3.uri("out/o.jsonl"))
    assert (result["model"], result["device"], result["latency_ms"]["batches"]) == (uri, result["device"], 2)
    assert result["items_per_second"] > 0


def test_the_bundled_model_takes_locations(s3: S3, tmp_path: Path) -> None:
    images, labels = model.digits()
    unseen = model.digits_validation()[:50]
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "in.jsonl").write_text("".join(f"{json.dumps(images[i].tolist())}\n" for i in unseen))
    run(input="in.jsonl", output="new/folder/out.jsonl", postprocess="argmax")
    folder = tmp_path / "work" / "new" / "folder"
    assert [entry.name for entry in folder.iterdir()] == ["out.jsonl"]
    said = [entry["output"] for entry in parsed((folder / "out.jsonl").read_bytes())]
    assert np.mean(said == labels[unseen]) > 0.95


def test_a_second_try_takes_the_place_of_the_first(s3: S3) -> None:
    config = {"model": s3.put("m.pt", scripted.saved(scripted.Scale(2.0))), "output": s3.uri("o.jsonl")}
    run(**config, input=s3.put("in.jsonl", b"[1]\n[2]\n"))
    run(**config, input=s3.put("in.jsonl", b"[3]\n"))
    assert s3.get("o.jsonl") == b'{"id":1,"output":[6]}\n'


@pytest.mark.parametrize("target", ["s3", "path"])
def test_a_cancelled_batch_leaves_nothing(s3: S3, tmp_path: Path, target: str) -> None:
    uri = s3.put("m.pt", scripted.saved(scripted.Scale(2.0)))
    source = s3.put("in.jsonl", b"[1]\n" * 30)
    context = Watched(cancel_after=2)
    with pytest.raises(TaskStoppedError):
        run(context, model=uri, input=source, output=s3.uri("o") if target == "s3" else "out/o", batch_size=10)
    assert context.ratios == [pytest.approx(1 / 3), pytest.approx(2 / 3)]
    assert (sorted(s3.keys()), s3.unfinished()) == (["in.jsonl", "m.pt"], [])
    assert not (tmp_path / "work" / "out").exists() or not list((tmp_path / "work" / "out").iterdir())


def test_a_large_output_is_sent_in_parts_and_is_there_only_when_it_is_whole(s3: S3) -> None:
    block = os.urandom(1 << 20)
    location = locations.find(s3.uri("large"), access.own())
    with pytest.raises(ZeroDivisionError), locations.writing(location.create()) as sink:
        for _ in range(9):
            sink.write(block)
        assert (s3.keys(), s3.unfinished()) == ([], ["large"])
        raise ZeroDivisionError
    assert (s3.keys(), s3.unfinished()) == ([], [])
    with locations.writing(location.create()) as sink:
        for _ in range(9):
            sink.write(block)
        sink.commit()
    assert (s3.keys(), s3.unfinished()) == (["large"], [])
    digest, size = hashlib.sha256(), 0
    with locations.reading(location) as source:
        while data := source.stream.read(1_000_000):
            digest.update(data)
            size += len(data)
    assert (size, digest.digest()) == (9 << 20, hashlib.sha256(block * 9).digest())


def test_an_object_that_changes_while_it_is_read_is_worth_another_try(s3: S3) -> None:
    s3.put("in", os.urandom(9 << 20))
    with (
        pytest.raises(locations.LocationError, match="has changed while it was read") as caught,
        locations.reading(locations.find(s3.uri("in"), access.own())) as source,
    ):
        source.stream.read(8 << 20)
        s3.put("in", b"other")
        source.stream.read(1)
    assert caught.value.retryable


@pytest.mark.parametrize(
    ("third", "words"),
    [
        (b"[1, 2", "line 3 of .*in.jsonl is wrong: .*delimiter"),
        (b"[1, 2, 3]", r"line 3 of .* is wrong: has the shape \[3\], but the first input has \[2\]"),
        (b"[1, [2]]", "line 3 of .* is wrong: its lists have different lengths"),
        (b'["1", "2"]', "line 3 of .* is wrong: must be a list of numbers"),
        (b"[1, NaN]", "line 3 of .* is wrong: NaN is no JSON"),
        (b"7", "line 3 of .* is wrong: must be a list of numbers"),
        (b'{"id": 7}', "line 3 of .* is wrong: input is missing"),
        (b'{"input": [1, null]}', "line 3 of .* is wrong: input: must be a list of numbers"),
        (b'{"input": [1, 2], "x": 1}', "line 3 of .* is wrong: x is unknown"),
        (b"\xff", "line 3 of .* is wrong: .*decode"),
        (b"[" * 100_000, "line 3 of .* is wrong: .*nested too deeply"),
        (b"[1e38, 1]", "lines? 3.* of .*: the model gives a number that is infinite"),
    ],
)
def test_a_wrong_line_is_named_and_leaves_no_output(s3: S3, third: bytes, words: str) -> None:
    uri = s3.put("m.pt", scripted.saved(scripted.Scale(100.0)))
    source = s3.put("in.jsonl", b"[1, 2]\n\n" + third + b"\n[1, 2]\n")
    with pytest.raises(TaskError, match=f"config.input: {words}") as caught:
        run(model=uri, input=source, output=s3.uri("o"), batch_size=1)
    assert not caught.value.retryable
    assert sorted(s3.keys()) == ["in.jsonl", "m.pt"]


def test_what_else_can_be_wrong(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = s3.put("m.pt", scripted.saved(scripted.Scale(2.0)))
    source = s3.put("in.jsonl", b"[1]\n")
    for config, words in (
        ({"input": source}, "config.output: is missing"),
        ({"input": source, "output": ""}, "config.output: is empty"),
        ({"input": source, "output": "https://host/o"}, "config.output: https://host/o is not allowed"),
        ({"input": source, "output": "../o"}, "config.output: is '../o', but must be a path below WORK_DIR"),
        ({"input": source, "output": "s3://elsewhere/o"}, "config.output: .* is not allowed in this pool"),
        ({"input": "s3://elsewhere/i", "output": s3.uri("o")}, "config.input: .* is not allowed in this pool"),
        ({"input": s3.uri("missing"), "output": s3.uri("o")}, "config.input: .*missing is not there"),
    ):
        with pytest.raises(ConfigError, match=words):
            run(model=uri, **config)
    with pytest.raises(TaskError, match="config.input: .* has no lines"):
        run(model=uri, input=s3.put("empty", b"\n"), output=s3.uri("o"))
    monkeypatch.setenv("ALLOWED_URIS", f"{s3.uri('')},s3://elsewhere/,https://host/")
    with pytest.raises(ConfigError, match="config.output: s3://elsewhere/o cannot be written: there is no such bucket"):
        run(model=uri, input=source, output="s3://elsewhere/o")
    with pytest.raises(ConfigError, match="config.output: https://host/o cannot be written: give a URI"):
        run(model=uri, input=source, output="https://host/o")


class Command:
    """``python3 -m inference_worker batch`` in a process."""

    def __init__(self, folder: Path, env: dict[str, str], config: Any) -> None:
        self.log, self.message = folder / "log", folder / "termination-log"
        base = {"PATH": os.environ["PATH"], "PYTHONPATH": ":".join(PACKAGES), "OMP_NUM_THREADS": "1"}
        base["PYTHONDONTWRITEBYTECODE"] = "1"
        own = {"CONFIG": json.dumps(config), "TERMINATION_LOG": str(self.message), "WORK_DIR": str(folder / "work")}
        with open(self.log, "wb") as log:
            command = [sys.executable, "-m", "inference_worker", "batch"]
            self.process = subprocess.Popen(command, env={**base, **env, **own}, stdout=log, stderr=log)

    def events(self, name: str) -> list[dict[str, Any]]:
        """The log lines of one event so far."""
        text = self.log.read_text()
        lines = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
        return [line for line in lines if line["event"] == name]

    def ended(self) -> tuple[int, dict[str, Any]]:
        """The exit code and the termination message."""
        code = self.process.wait(300)
        return code, json.loads(self.message.read_text())


@pytest.fixture
def command(s3: S3, tmp_path: Path) -> Iterator[Callable[..., Command]]:
    started: list[Command] = []

    def start(**config: Any) -> Command:
        folder = tmp_path / str(len(started))
        folder.mkdir()
        started.append(Command(folder, s3.env, config))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait(10)


def test_the_command_leaves_its_figures_as_last_words(s3: S3, command: Callable[..., Command]) -> None:
    uri = s3.put("m.pt", scripted.saved(scripted.Scale(2.0)))
    good = command(model=uri, input=s3.put("in", b"[1]\n[2]\n"), output=s3.uri("o"))
    wrong_line = command(model=uri, input=s3.put("bad", b"[1]\nx\n"), output=s3.uri("o2"))
    wrong_config = command(model=uri, input=s3.uri("in"), batch=1)
    code, message = good.ended()
    assert code == 0, good.log.read_text()
    assert message.keys() == {"model", "device", "count", "bytes", "output", "latency_ms", "items_per_second"}
    assert (message["count"], message["output"]) == (2, s3.uri("o"))
    assert good.events("progress")[-1]["progress"] == 1
    assert s3.get("o") == b'{"id":1,"output":[2]}\n{"id":2,"output":[4]}\n'
    code, message = wrong_line.ended()
    assert (code, message["message"][:36]) == (65, f"config.input: line 2 of {s3.uri('bad')}"[:36])
    code, message = wrong_config.ended()
    assert code == 64
    assert "config.output: is missing" in message["message"] and "config.batch: is unknown" in message["message"]


def test_the_command_stops_between_batches(s3: S3, command: Callable[..., Command]) -> None:
    uri = s3.put("m.pt", scripted.saved(scripted.Scale(2.0)))
    long = command(model=uri, input=s3.put("in", b"[1]\n" * 1_000_000), output=s3.uri("o"), batch_size=1)
    wait_for(lambda: long.events("progress"), "progress", seconds=300)
    long.process.send_signal(signal.SIGTERM)
    assert long.ended() == (143, {"message": "stopped by a signal"})
    assert (sorted(s3.keys()), s3.unfinished()) == (["in", "m.pt"], [])
