"""Log lines on standard output, one per event: JSON, or readable text with ``LOG_FORMAT=text``."""

from __future__ import annotations

import json
import sys
import threading
from datetime import datetime, timezone
from typing import Any, TextIO


class Log:
    """Writes events. ``event`` is a stable identifier, ``message`` is for people, fields are for machines."""

    def __init__(self, *, json_lines: bool = True, stream: TextIO | None = None, **fields: Any) -> None:
        self._json = json_lines
        self._stream = stream
        self._fields = fields
        self._lock = threading.Lock()

    def info(self, event: str, message: str, **fields: Any) -> None:
        """Log an expected event."""
        self._write("info", event, message, fields)

    def warning(self, event: str, message: str, **fields: Any) -> None:
        """Log something unexpected with which the worker goes on."""
        self._write("warning", event, message, fields)

    def error(self, event: str, message: str, **fields: Any) -> None:
        """Log what a user must fix."""
        self._write("error", event, message, fields)

    def _write(self, level: str, event: str, message: str, fields: dict[str, Any]) -> None:
        if self._json:
            now = datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            entry = {"time": now, "level": level, "event": event, "message": message, **self._fields, **fields}
            line = json.dumps(entry, default=str)
        else:
            text = " | ".join(part for part in message.splitlines() if part.strip())
            line = text if level == "info" else f"{level}: {text}"
        stream = self._stream or sys.stdout
        with self._lock:
            stream.write(line + "\n")
            stream.flush()
