"""The readings of a sensor: a sine wave with noise, drift and faults, chunk by chunk."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from simulation_worker.scenario import FAULTS, Fault, Scenario

CHUNK = 65_536
SECONDS_PER_HOUR = 3600.0
# Streams of random numbers, so that those of one thing do not move with those of another.
_NOISE, _FAULTS = 0, 1


@dataclass(frozen=True)
class Chunk:
    """Readings in a row. A reading that is missing is not a number."""

    times: np.ndarray
    values: np.ndarray


def faults_of(scenario: Scenario, sensor: int) -> list[Fault]:
    """The faults of one sensor: those that were asked for, and those that happen by chance, by when they begin."""
    chance = np.random.default_rng([scenario.seed, _FAULTS, sensor])
    faults = [fault for fault in scenario.faults if fault.sensor == sensor]
    expected = scenario.faults_per_hour * scenario.seconds / SECONDS_PER_HOUR
    scale = max(scenario.amplitude, 10 * scenario.noise, 1e-9)
    for _ in range(int(chance.poisson(expected)) if expected else 0):
        faults.append(
            Fault(
                sensor=sensor,
                kind=FAULTS[int(chance.integers(len(FAULTS)))],
                start=float(chance.uniform(0, scenario.seconds)),
                duration=float(min(chance.exponential(5.0) + 1 / scenario.rate, scenario.seconds)),
                magnitude=float(chance.choice([-1, 1]) * chance.uniform(2, 5) * scale),
            )
        )
    return sorted(faults, key=lambda fault: fault.start)


def readings(scenario: Scenario, sensor: int, faults: Sequence[Fault]) -> Iterator[Chunk]:
    """All readings of one sensor. A chunk does not depend on how the earlier ones were read."""
    phase = 2 * math.pi * sensor / max(1, scenario.sensors)
    for number, start in enumerate(range(0, scenario.readings, CHUNK)):
        count = min(CHUNK, scenario.readings - start)
        times = (start + np.arange(count)) / scenario.rate
        noise = np.random.default_rng([scenario.seed, _NOISE, sensor, number]).standard_normal(count)
        values = _clean(scenario, times, phase) + scenario.noise * noise
        for fault in faults:
            _apply(scenario, fault, times, values, phase)
        yield Chunk(times, values)


def _clean(scenario: Scenario, times: np.ndarray, phase: float) -> np.ndarray:
    wave = scenario.amplitude * np.sin(2 * math.pi * scenario.frequency * times + phase)
    return scenario.offset + wave + scenario.drift_per_hour * times / SECONDS_PER_HOUR


def _apply(scenario: Scenario, fault: Fault, times: np.ndarray, values: np.ndarray, phase: float) -> None:
    affected = (times >= fault.start) & (times < fault.start + fault.duration)
    if fault.kind == "spike":  # one reading, whatever the duration
        affected = (times >= fault.start) & (times < fault.start + 1 / scenario.rate)
    if not affected.any():
        return
    if fault.kind == "dropout":
        values[affected] = np.nan
    elif fault.kind == "stuck":  # the clean value at its beginning, which may be in an earlier chunk
        values[affected] = _clean(scenario, np.array([fault.start]), phase)[0]
    else:
        values[affected] += fault.magnitude
