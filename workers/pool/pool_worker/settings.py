"""Settings of a pooled worker, read from environment variables. The operator sets those without a default."""

from __future__ import annotations

import math
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pool_worker.errors import SettingsError


@dataclass(frozen=True)
class Settings:
    """How the worker gets tasks. Times are in seconds."""

    service_url: str
    ca_file: Path | None  # authorities to trust beside those of the system
    token_file: Path | None
    token: str
    queue: str
    worker_id: str
    job_types: tuple[str, ...]  # empty: all that the worker can do
    concurrency: int
    lease_wait: float
    request_timeout: float
    grace: float
    metrics_port: int  # 0: none
    json_logs: bool


def load(env: Mapping[str, str]) -> Settings:
    """Read the settings from ``env``. Raises SettingsError that names every wrong variable, not only the first."""
    problems: list[str] = []

    def number(name: str, default: float, minimum: float, maximum: float) -> float:
        source = env.get(name, "").strip()
        try:
            value = float(source) if source else default
        except ValueError:
            value = math.nan
        if not minimum <= value <= maximum:
            problems.append(f"{name} is {source!r}, but must be a number from {minimum:g} to {maximum:g}")
            return default
        return value

    def text(name: str, remedy: str) -> str:
        value = env.get(name, "").strip()
        if not value:
            problems.append(f"{name} is not set: {remedy}")
        return value

    url = text("JOB_SERVICE_URL", "give the address of the job service, for example https://job-service:8000").rstrip(
        "/"
    )
    parts = urlsplit(url)
    if url and (parts.scheme not in ("http", "https") or not parts.hostname):
        problems.append(f"JOB_SERVICE_URL is {url!r}, but must begin with http:// or https:// and name a host")
    ca_file = env.get("JOB_SERVICE_CA_FILE", "").strip()
    token_file = env.get("JOB_SERVICE_TOKEN_FILE", "").strip()
    settings = Settings(
        service_url=url,
        ca_file=Path(ca_file) if ca_file else None,
        token_file=Path(token_file) if token_file else None,
        token=env.get("JOB_SERVICE_TOKEN", "").strip(),
        queue=text("QUEUE", "give the name of the queue whose tasks to take"),
        worker_id=env.get("WORKER_ID", "").strip() or socket.gethostname(),
        job_types=tuple(kind.strip() for kind in env.get("JOB_TYPES", "").split(",") if kind.strip()),
        concurrency=int(number("CONCURRENCY", 1, 1, 256)),
        lease_wait=number("LEASE_WAIT_SECONDS", 20, 0, 30),
        request_timeout=number("REQUEST_TIMEOUT_SECONDS", 10, 0.1, 300),
        grace=number("GRACE_SECONDS", 20, 0, 86400),
        metrics_port=int(number("METRICS_PORT", 8080, 0, 65535)),
        json_logs=env.get("LOG_FORMAT", "json").strip().lower() != "text",
    )
    if problems:
        raise SettingsError("; ".join(problems))
    return settings
