"""The task simulation: its numbers are those of the scenario."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest
from pool_worker.errors import ConfigError, TaskStoppedError
from pool_worker.tasks import CANCELLED, Context, Task
from simulation_worker.handler import simulate

QUIET = {"noise_std": 0, "drift_per_hour": 0}


@pytest.fixture(autouse=True)
def work_dir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("WORK_DIR", str(tmp_path))
    return tmp_path


def run(config: dict[str, Any]) -> dict[str, Any]:
    return dict(simulate(Task("id", 1, "simulation", config, visibility_seconds=30), Context()))


def statistics(config: dict[str, Any]) -> dict[str, Any]:
    return run(config)["statistics"][0]


def test_a_sine_wave_has_the_figures_of_one() -> None:
    figures = statistics({**QUIET, "duration_seconds": 10, "signal": {"offset": 3, "amplitude": 2, "frequency_hz": 1}})
    assert figures["count"] == 1000
    assert figures["mean"] == pytest.approx(3, abs=1e-9)
    assert figures["std"] == pytest.approx(math.sqrt(2), abs=1e-9)
    assert (figures["min"], figures["max"]) == pytest.approx((1, 5), abs=1e-9)


def test_noise_and_drift_are_as_asked_for() -> None:
    flat = {"amplitude": 0, "offset": 0}
    noise = statistics({"noise_std": 0.5, "drift_per_hour": 0, "duration_seconds": 3000, "signal": flat})
    assert noise["count"] == 300_000  # several chunks
    assert noise["std"] == pytest.approx(0.5, rel=0.01)
    drift = statistics(
        {**QUIET, "drift_per_hour": 6, "duration_seconds": 7200, "sensor": "temperature", "signal": flat}
    )
    assert drift["max"] == pytest.approx(12, rel=0.001)
    assert drift["mean"] == pytest.approx(6, rel=0.001)


def test_the_seed_decides() -> None:
    def samples(seed: int) -> Any:
        result = run({"seed": seed, "samples": 50, "sensors": 3, "faults_per_hour": 3600, "duration_seconds": 30})
        return result["samples"], result["faults"], result["statistics"]

    assert samples(1) == samples(1)
    assert samples(1)[0] != samples(2)[0]
    assert samples(1)[1] != samples(2)[1]


def test_faults_show_in_the_readings() -> None:
    def with_fault(kind: str) -> dict[str, Any]:
        fault = {"type": kind, "start_seconds": 2, "duration_seconds": 3, "magnitude": 50}
        return run(
            {
                **QUIET,
                "duration_seconds": 10,
                "sample_rate_hz": 10,
                "samples": 100,
                "faults": [fault],
                "signal": {"offset": 0, "amplitude": 1, "frequency_hz": 0.3},
            }
        )

    def values(result: dict[str, Any]) -> list[float | None]:
        return [value for _, _, value in result["samples"]]

    assert values(with_fault("dropout"))[20:50] == [None] * 30
    assert with_fault("dropout")["statistics"][0]["missing"] == 30
    assert len(set(values(with_fault("stuck"))[20:50])) == 1
    assert sum(value is not None and value > 40 for value in values(with_fault("spike"))) == 1
    assert sum(value is not None and value > 40 for value in values(with_fault("bias"))) == 30
    assert with_fault("bias")["faults"] == [
        {"sensor": 0, "type": "bias", "start_seconds": 2, "duration_seconds": 3, "magnitude": 50}
    ]


def test_faults_by_chance_are_as_many_as_asked_for() -> None:
    result = run({"sensor": "temperature", "sensors": 20, "duration_seconds": 36_000, "faults_per_hour": 2})
    assert result["fault_count"] == len(result["faults"]) == pytest.approx(400, rel=0.2)


def test_the_largest_result_is_below_what_the_job_service_takes() -> None:
    result = run(
        {"sensors": 500, "duration_seconds": 60, "sample_rate_hz": 1, "faults_per_hour": 3600, "samples": 4000}
    )
    assert len(json.dumps(result, separators=(",", ":"))) < 256 * 1024
    assert result["fault_count"] > len(result["faults"]) == 500


def test_readings_go_to_a_file(work_dir: Path) -> None:
    result = run(
        {
            "duration_seconds": 2,
            "sensors": 2,
            "samples": 400,
            "output": "a/readings.csv",
            "faults": [{"type": "dropout", "start_seconds": 0, "duration_seconds": 0.05}],
        }
    )
    path = work_dir / "a" / "readings.csv"
    assert result["output"] == {"path": str(path), "size_bytes": path.stat().st_size}
    with open(path) as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 400 == result["readings"]
    assert [row["value"] for row in rows[:5]] == [""] * 5
    assert float(rows[10]["value"]) == pytest.approx(result["samples"][10][2], rel=1e-8)
    assert [p.name for p in path.parent.iterdir()] == ["readings.csv"]


def test_a_stopped_task_leaves_no_file(work_dir: Path) -> None:
    context = Context()
    context.stop(CANCELLED)
    with pytest.raises(TaskStoppedError):
        simulate(Task("id", 1, "simulation", {"output": "readings.csv"}, visibility_seconds=30), context)
    assert list(work_dir.iterdir()) == []


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"sensor": "nose"}, "config.sensor: is 'nose'"),
        ({"duration_seconds": 0}, "config.duration_seconds: is 0"),
        ({"sample_rate_hz": 1e9}, "config.sample_rate_hz"),
        ({"duration_seconds": 31_536_000}, "config.duration_seconds: gives 3153600000 readings"),
        ({"noise_std": -1}, "config.noise_std: is -1"),
        ({"faults": [{"type": "melt"}]}, r"config.faults\[0\].type: is 'melt'"),
        ({"faults": [{"type": "spike"}]}, r"config.faults\[0\].start_seconds: is missing"),
        ({"faults": [{"type": "spike", "start_seconds": 1, "sensor": 1}]}, r"config.faults\[0\].sensor: is 1"),
        ({"signal": {"phase": 1}}, "config.signal.phase: is unknown"),
        ({"output": "/etc/x.csv"}, "config.output: .* below WORK_DIR"),
        ({"output": "x.txt"}, "config.output: .* end with .csv"),
    ],
)
def test_wrong_configs_are_refused(config: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        run(config)
