"""Event files are as TensorBoard reads them, and the stand-in for TensorBoard shows what is in them."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from conftest import WORKER_ROOT, free_port, wait_for

from training_worker import board, events
from training_worker.logs import Log


def log() -> Log:
    return Log(rank=0, json_lines=False)


def test_the_checksum_is_that_of_the_standard() -> None:
    # RFC 3720, appendix B.4, and the check value of CRC-32C.
    assert events.crc32c(b"123456789") == 0xE3069283
    assert events.crc32c(bytes(32)) == 0x8A9136AA
    assert events.crc32c(b"\xff" * 32) == 0x62A8AB43


def test_the_bytes_are_those_of_the_formats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events.time, "time", lambda: 1.0)
    events.EventWriter(tmp_path, log(), step=300).scalars(301, {"loss": 0.5})
    (file,) = tmp_path.iterdir()
    assert "tfevents" in file.name
    one = "09000000000000f03f"  # field 1, fixed64: 1.0
    expected = [
        bytes.fromhex(one + "1a0d") + b"brain.Event:2",
        bytes.fromhex(one + "10ac02" + "3a020801"),  # step 300; session_log {status: START}
        # step 301; summary {value {tag: "loss" simple_value: 0.5}}
        bytes.fromhex(one + "10ad02" + "2a0d" + "0a0b" + "0a04") + b"loss" + bytes.fromhex("150000003f"),
    ]
    data = file.read_bytes()
    for content in expected:
        length = struct.pack("<Q", len(content))
        assert data[:8] == length
        assert data[12 : 12 + len(content)] == content
        data = data[16 + len(content) :]
    assert data == b""


def test_what_is_written_is_read(tmp_path: Path) -> None:
    first = events.EventWriter(tmp_path / "a", log())
    for step in range(1, 6):
        first.scalars(step, {"loss": 1 / step, "accuracy": 0.5})
    events.EventWriter(tmp_path / "a", log(), step=4).scalars(4, {"loss": 9.0})  # resumed from a checkpoint of step 3
    runs = board.read(tmp_path)
    assert sorted(runs) == ["a"]
    assert [point[1:] for point in runs["a"]["loss"]] == [(1, 1.0), (2, 0.5), (3, pytest.approx(1 / 3)), (4, 9.0)]
    assert len(runs["a"]["accuracy"]) == 3


def test_a_record_that_is_cut_off_or_damaged_ends_the_file(tmp_path: Path) -> None:
    data = events.record(b"one") + events.record(b"two")
    assert list(events.records(data)) == [b"one", b"two"]
    assert list(events.records(data[:-1])) == [b"one"]
    assert list(events.records(data[:12] + b"One" + data[15:])) == []


def test_training_goes_on_without_event_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    writer = events.EventWriter(tmp_path / "file" / "logs", log())
    writer.scalars(1, {"loss": 1.0})
    assert capsys.readouterr().out.count("no more event files for TensorBoard") == 1
    events.EventWriter(None, log()).scalars(1, {"loss": 1.0})


def test_the_stand_in_answers_as_tensorboard_does(tmp_path: Path) -> None:
    port = free_port()
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(WORKER_ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    options = [f"--logdir={tmp_path}", f"--port={port}", "--reload_interval=15"]
    server = subprocess.Popen([sys.executable, "-m", "training_worker.board", *options], env=environment, stdout=subprocess.DEVNULL)

    def ask(path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return str(answer.read().decode())

    def up() -> bool:
        try:
            return ask("/data/runs") == "[]"
        except OSError:
            return False

    try:
        wait_for(up, "the stand-in, without any files")
        events.EventWriter(tmp_path, log()).scalars(7, {"loss": 0.25})
        assert json.loads(ask("/data/runs")) == ["."]
        assert json.loads(ask("/data/plugin/scalars/tags")) == {".": {"loss": {}}}
        ((_, step, value),) = json.loads(ask("/data/plugin/scalars/scalars?run=.&tag=loss"))
        assert (step, value) == (7, 0.25)
        assert "<td>loss</td><td>7</td><td>0.25</td>" in ask("/")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            ask("/data/plugin/scalars/scalars?run=.&tag=nothing")
    finally:
        server.terminate()
        server.wait(10)
