"""Log lines on standard output, one per event: readable text, or JSON with ``LOG_FORMAT=json``."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from datetime import datetime, timezone
from typing import Any

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
_URL_USERINFO = re.compile(r"(://)[^/@\s]+@")


def utc_now() -> str:
    """The present time in RFC 3339, in UTC, to the second."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def redact(text: str) -> str:
    """``text`` without the values of secret-looking environment variables and without passwords in URLs."""
    for name, value in os.environ.items():
        if len(value) >= 6 and _SECRET_NAME.search(name):
            text = text.replace(value, "***")
    return _URL_USERINFO.sub(r"\1***@", text)


class Log:
    """Writes events of one rank. ``event`` is a stable identifier, ``message`` is for people."""

    def __init__(self, rank: int = 0, json_lines: bool = False) -> None:
        self.rank = rank
        self._json = json_lines
        self._lock = threading.Lock()

    def info(self, event: str, message: str, **fields: Any) -> None:
        """Log an expected event."""
        self._write("info", event, message, fields)

    def warning(self, event: str, message: str, **fields: Any) -> None:
        """Log something unexpected with which the worker goes on."""
        self._write("warning", event, message, fields)

    def error(self, event: str, message: str, **fields: Any) -> None:
        """Log why the worker ends."""
        self._write("error", event, message, fields)

    def _write(self, level: str, event: str, message: str, fields: dict[str, Any]) -> None:
        message = redact(message)
        if self._json:
            entry = {"time": utc_now(), "level": level, "rank": self.rank, "event": event, "message": message}
            line = json.dumps({**entry, **fields}, default=str)
        else:
            line = message if level == "info" else f"{level}: {message}"
            line = " | ".join(part for part in line.splitlines() if part.strip())
        with self._lock:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
