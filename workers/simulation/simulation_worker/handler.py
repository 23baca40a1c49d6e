"""The tasks of the job type simulation."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from pool_worker.errors import TaskError
from pool_worker.tasks import Context, Task

from simulation_worker import scenario as scenarios
from simulation_worker.scenario import Fault, Scenario
from simulation_worker.sensors import Chunk, faults_of, readings
from simulation_worker.statistics import Statistics


def simulate(task: Task, context: Context) -> Mapping[str, Any]:
    """Compute the readings of all sensors of the task's config, and return their figures, faults and first samples."""
    scenario = scenarios.read(task.config)
    began = time.monotonic()
    try:
        with _Output(scenario.output) as output:
            sensors, faults, samples = _run(scenario, output, context)
            output.keep()
    except OSError as error:
        raise TaskError(f"config.output: {scenario.output} cannot be written: {error}") from error
    took = time.monotonic() - began
    total = scenario.sensors * scenario.readings
    result: dict[str, Any] = {
        "sensor": scenario.sensor,
        "unit": scenario.unit,
        "sample_rate_hz": scenario.rate,
        "duration_seconds": scenario.seconds,
        "seed": scenario.seed,
        "readings": total,
        "statistics": sensors,
        "fault_count": len(faults),
        "faults": faults[: scenarios.MAX_FAULTS],
        "readings_per_second": round(total / max(took, 1e-9)),
    }
    if scenario.samples:
        result["samples"] = samples
    if scenario.output is not None:
        result["output"] = {"path": str(scenario.output), "size_bytes": scenario.output.stat().st_size}
    return result


def _run(
    scenario: Scenario, output: _Output, context: Context
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[list[float | None]]]:
    """Figures of each sensor, the faults of all, and the first samples as [sensor, seconds, value]."""
    sensors: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    samples: list[list[float | None]] = []
    done, total = 0, scenario.sensors * scenario.readings
    for sensor in range(scenario.sensors):
        statistics, faults = Statistics(), faults_of(scenario, sensor)
        for chunk in readings(scenario, sensor, faults):
            context.check()
            statistics.add(chunk.values)
            output.write(sensor, chunk)
            for i in range(min(scenario.samples - len(samples), len(chunk.values))):
                value = float(chunk.values[i])
                samples.append([sensor, round(float(chunk.times[i]), 9), None if np.isnan(value) else round(value, 9)])
            done += len(chunk.values)
            context.progress(done / total)
        sensors.append({"sensor": sensor, **statistics.figures()})
        events += [_event(fault) for fault in faults]
    return sensors, events, samples


def _event(fault: Fault) -> dict[str, Any]:
    return {
        "sensor": fault.sensor,
        "type": fault.kind,
        "start_seconds": round(fault.start, 6),
        "duration_seconds": round(fault.duration, 6),
        "magnitude": round(fault.magnitude, 6),
    }


class _Output:
    """Writes readings as CSV, under another name until all are there: a stopped task leaves no half of a file."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._stream: IO[str] | None = None

    def __enter__(self) -> _Output:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._stream = open(self._partial, "w", encoding="ascii")
            self._stream.write("sensor,seconds,value\n")
        return self

    @property
    def _partial(self) -> Path:
        assert self._path is not None
        return self._path.with_name(self._path.name + ".partial")

    def write(self, sensor: int, chunk: Chunk) -> None:
        """Write the readings of a chunk; a missing value is an empty field."""
        if self._stream is not None:
            rows = zip(chunk.times.tolist(), chunk.values.tolist(), strict=True)
            self._stream.writelines(f"{sensor},{t:.6f},{'' if v != v else format(v, '.9g')}\n" for t, v in rows)

    def keep(self) -> None:
        """All is written: give the file its name."""
        if self._stream is not None:
            assert self._path is not None
            self._stream.close()
            self._partial.replace(self._path)
            self._stream = None

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            self._stream.close()
            with contextlib.suppress(OSError):
                self._partial.unlink()
