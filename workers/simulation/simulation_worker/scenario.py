"""What is simulated: read from a job's config."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pool_worker.fields import Fields
from pool_worker.places import inside_work_dir

FAULTS = ("bias", "dropout", "spike", "stuck")
MAX_READINGS = 200_000_000
# What a result may have of each, so that it stays below the 256 KiB that the job service takes.
MAX_SENSORS = 500
MAX_FAULTS = 500
MAX_SAMPLES = 4000


@dataclass(frozen=True)
class Kind:
    """A kind of sensor and its usual figures. Frequencies are in hertz, the rest in ``unit``."""

    unit: str
    rate: float
    offset: float
    amplitude: float
    frequency: float
    noise: float
    drift_per_hour: float


KINDS = {
    "accelerometer": Kind(
        "m/s^2", rate=100.0, offset=9.81, amplitude=1.5, frequency=2.0, noise=0.05, drift_per_hour=0.02
    ),
    "gyroscope": Kind("rad/s", rate=100.0, offset=0.0, amplitude=0.3, frequency=1.0, noise=0.01, drift_per_hour=0.05),
    "pressure": Kind("kPa", rate=10.0, offset=101.3, amplitude=0.4, frequency=0.01, noise=0.03, drift_per_hour=0.01),
    "temperature": Kind(
        "degC", rate=1.0, offset=21.0, amplitude=4.0, frequency=1 / 3600, noise=0.1, drift_per_hour=0.05
    ),
}


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong with one sensor, in seconds since the beginning."""

    sensor: int
    kind: str
    start: float
    duration: float
    magnitude: float


@dataclass(frozen=True)
class Scenario:
    """All that decides about the readings: the same scenario gives the same numbers."""

    sensor: str
    unit: str
    sensors: int
    seconds: float
    rate: float
    offset: float
    amplitude: float
    frequency: float
    noise: float
    drift_per_hour: float
    seed: int
    faults: tuple[Fault, ...]
    faults_per_hour: float
    samples: int
    output: Path | None

    @property
    def readings(self) -> int:
        """Readings of each sensor."""
        return max(1, round(self.seconds * self.rate))


def read(config: object) -> Scenario:
    """The scenario of a job's config. Raises ConfigError that names every wrong field."""
    fields = Fields(config)
    sensor = fields.text("sensor", "accelerometer", choices=tuple(sorted(KINDS)))
    kind = KINDS[sensor]
    signal = fields.object("signal")
    seconds = fields.number("duration_seconds", 60.0, above=0, maximum=31_536_000)
    sensors = fields.integer("sensors", 1, minimum=1, maximum=MAX_SENSORS)
    scenario = Scenario(
        sensor=sensor,
        unit=kind.unit,
        sensors=sensors,
        seconds=seconds,
        rate=fields.number("sample_rate_hz", kind.rate, above=0, maximum=1_000_000),
        offset=signal.number("offset", kind.offset, minimum=-1e9, maximum=1e9),
        amplitude=signal.number("amplitude", kind.amplitude, minimum=0, maximum=1e9),
        frequency=signal.number("frequency_hz", kind.frequency, minimum=0, maximum=500_000),
        noise=fields.number("noise_std", kind.noise, minimum=0, maximum=1e9),
        drift_per_hour=fields.number("drift_per_hour", kind.drift_per_hour, minimum=-1e9, maximum=1e9),
        seed=fields.integer("seed", 0),
        faults=tuple(_fault(entry, sensors, seconds) for entry in fields.objects("faults", maximum=MAX_FAULTS)),
        faults_per_hour=fields.number("faults_per_hour", 0.0, minimum=0, maximum=3600),
        samples=fields.integer("samples", 0, maximum=MAX_SAMPLES),
        output=_output(fields),
    )
    total = scenario.sensors * scenario.readings
    if total > MAX_READINGS:
        fields.problem(
            "duration_seconds",
            f"gives {total} readings of all sensors, but at most {MAX_READINGS} are possible: "
            "lower it, sensors or sample_rate_hz",
        )
    fields.finish()
    return scenario


def _fault(entry: Fields, sensors: int, seconds: float) -> Fault:
    kind = entry.text("type", "spike", choices=FAULTS, required=True)
    return Fault(
        sensor=entry.integer("sensor", 0, maximum=sensors - 1),
        kind=kind,
        start=entry.number("start_seconds", 0.0, minimum=0, maximum=seconds, required=True),
        duration=entry.number("duration_seconds", 1.0, above=0, maximum=seconds),
        magnitude=entry.number("magnitude", 5.0, minimum=-1e9, maximum=1e9),
    )


def _output(fields: Fields) -> Path | None:
    name = fields.text("output")
    if not name:
        return None
    try:
        path = inside_work_dir(name)
    except ValueError as error:
        fields.problem("output", str(error))
        return None
    if path.suffix != ".csv":
        fields.problem("output", f"is {name!r}, but must end with .csv")
    return path
