"""Prometheus text, termination message, log lines, success policies and data."""

from __future__ import annotations

import json
import math
import re
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from training_worker import config, data, termination
from training_worker.errors import DataError, UsageError
from training_worker.logs import Log, redact
from training_worker.metrics import CONTENT_TYPE, MetricsServer, render
from training_worker.progress import CheckpointReport, Progress, Report
from training_worker.success import EARLY_STOPPED, TARGET_REACHED, SuccessTracker

REPORT = Report(
    epochs=10,
    epoch=3,
    step=46,
    progress_ratio=0.25,
    world_size=2,
    loss=0.5,
    accuracy=0.875,
    metrics={"learning_rate": 0.001, "samples_per_second": 1200.0},
    checkpoint=CheckpointReport('/ck/"job"\\a/checkpoint-epoch-2', 2, 40, 1_700_000_000.0, 125_981),
)
SAMPLE = re.compile(r'^[a-z_]+(\{[a-z_]+="(\\.|[^"\\])*"(,[a-z_]+="(\\.|[^"\\])*")*\})? (\S+)$')


def test_metrics_are_prometheus_text() -> None:
    text = render(REPORT, gpu_utilization=73.0)
    lines = text.splitlines()
    for line in lines:
        assert line.startswith(("# HELP training_", "# TYPE training_")) or SAMPLE.match(line), line
    assert "training_epoch 3" in lines
    assert "training_progress_ratio 0.25" in lines
    assert "training_gpu_utilization_percent 73" in lines
    assert 'training_metric{name="learning_rate"} 0.001' in lines
    assert 'training_checkpoint_info{path="/ck/\\"job\\"\\\\a/checkpoint-epoch-2"} 1' in lines
    families = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(families) == len(set(families))
    assert text.endswith("\n")


def test_what_is_not_known_is_absent() -> None:
    text = render(Report())
    # Zeros would look like a training that starts from the first step, while a checkpoint is still being read.
    for name in ("training_epoch ", "training_step", "training_progress_ratio", "training_restored_step"):
        assert name not in text
    for name in ("training_loss", "training_accuracy", "training_gpu_utilization_percent", "training_checkpoint_epoch"):
        assert name not in text
    assert "NaN" in render(Report(loss=math.nan))


def test_the_server_answers_metrics_and_health() -> None:
    progress = Progress(REPORT)
    server = MetricsServer(0, lambda: render(progress.read()))
    base = f"http://127.0.0.1:{server.port}"
    with urllib.request.urlopen(f"{base}/metrics", timeout=5) as answer:
        assert answer.headers["Content-Type"] == CONTENT_TYPE
        assert "training_epochs 10" in answer.read().decode()
    with urllib.request.urlopen(f"{base}/healthz", timeout=5) as answer:
        assert answer.status == 200
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{base}/", timeout=5)
    server.close()


def test_the_termination_message_has_the_names_of_the_metrics() -> None:
    document = json.loads(termination.compose("Completed", "done", REPORT))
    assert document["reason"] == "Completed"
    assert (document["training_epoch"], document["training_loss"]) == (3, 0.5)
    assert document["training_metrics"] == REPORT.metrics
    assert document["training_checkpoint_step"] == 40


def test_the_termination_message_is_small_valid_json_whatever_happens() -> None:
    report = Report(loss=math.nan, metrics={f"metric_{i}": 1.0 for i in range(500)} | {"bad": math.inf})
    text = termination.compose("Error", "\N{SNOWMAN}" * 5000, report)
    assert len(text.encode()) <= termination.MAX_BYTES
    assert "training_loss" not in json.loads(text)


def test_the_default_termination_file_is_not_created_outside_a_container(tmp_path: Path) -> None:
    target = tmp_path / "message"
    termination.write(target, "{}")
    assert target.read_text() == "{}"


def test_secrets_are_left_out(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "hunter2hunter2")
    text = "failed with hunter2hunter2 at https://me:pw@store/x"
    assert redact(text) == "failed with *** at https://***@store/x"
    assert "hunter2" not in termination.compose("Error", text)
    Log(json_lines=True).error("end", text)
    assert "hunter2" not in capsys.readouterr().out


def test_an_event_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    Log().warning("x", "first\nsecond")
    Log(rank=3, json_lines=True).info("epoch", "epoch 1/2", loss=0.5)
    text, as_json = capsys.readouterr().out.splitlines()
    assert text == "warning: first | second"
    assert json.loads(as_json)["loss"] == 0.5


def tracker(**env: str) -> SuccessTracker:
    return SuccessTracker(config.load({"MODEL": "cnn", "DATASET": "digits", **env}).success)


def test_a_target_is_reached_from_below_or_above() -> None:
    rising = tracker(TARGET_METRIC="accuracy", TARGET_VALUE="0.9")
    assert rising.judge({"accuracy": 0.89}) is None
    assert rising.judge({"accuracy": 0.9}).reason == TARGET_REACHED
    falling = tracker(TARGET_METRIC="loss", TARGET_VALUE="0.1", TARGET_MODE="min")
    assert falling.judge({"loss": 0.2}) is None
    assert falling.judge({"loss": 0.05}).reason == TARGET_REACHED


def test_training_stops_early_when_nothing_improves() -> None:
    patient = tracker(EARLY_STOPPING_PATIENCE="2")
    verdicts = [patient.judge({"accuracy": value}) for value in (0.5, 0.6, 0.6, 0.55)]
    assert verdicts[:3] == [None] * 3
    assert verdicts[3].reason == EARLY_STOPPED


def test_digits_are_split_the_same_way_every_time(tmp_path: Path) -> None:
    one, two = (data.load("digits", tmp_path, 0.2, seed=1) for _ in range(2))
    assert (len(one.x_train), len(one.x_validation), one.classes) == (1438, 359, 10)
    assert one.sample_shape == (1, 8, 8)
    assert np.array_equal(one.y_validation, two.y_validation)
    assert not np.array_equal(one.y_validation, data.load("digits", tmp_path, 0.2, seed=2).y_validation)


def test_an_epoch_visits_every_sample_once() -> None:
    order = data.epoch_order(100, seed=1, epoch=0)
    assert sorted(order) == list(range(100))
    assert not np.array_equal(order, data.epoch_order(100, seed=1, epoch=1))


def test_own_archives_are_found_by_name(tmp_path: Path) -> None:
    arrays = {"x": np.zeros((10, 4), np.uint8), "y": np.arange(10) % 3}
    np.savez(tmp_path / "flat.npz", **arrays)
    (tmp_path / "team" / "set").mkdir(parents=True)
    np.savez(tmp_path / "team" / "set" / "data.npz", **arrays)
    for name in ("flat", "flat.npz", "team/set"):
        loaded = data.load(name, tmp_path, 0.2, seed=0)
        assert (loaded.sample_shape, len(loaded.x_train), loaded.classes) == ((4,), 8, 3)
    with pytest.raises(UsageError, match="known are digits, flat"):
        data.load("../etc", tmp_path, 0.2, seed=0)
    (tmp_path / "bad.npz").write_text("no archive")
    with pytest.raises(DataError, match="bad.npz"):
        data.load("bad", tmp_path, 0.2, seed=0)
