"""What the ranks of a job say to one another beside what is trained, whatever carries it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from training_worker.errors import DataError


class Sharing:
    """Gives what rank 0 has to every rank. Those who inherit it send bytes by ``_broadcast``."""

    rank: int
    world_size: int

    def share(self, produce: Callable[[], tuple[dict[str, Any], bytes]]) -> tuple[dict[str, Any], bytes]:
        """Run ``produce`` on rank 0 and give its result, a JSON object and bytes, to every rank.

        A DataError that it raises is raised on every rank.
        """
        if self.world_size == 1:
            return produce()
        header: dict[str, Any] = {}
        payload = b""
        if self.rank == 0:
            try:
                header, payload = produce()
                header = {"value": header}
            except DataError as error:
                header = {"error": str(error)}
        header = json.loads(self._broadcast(json.dumps(header).encode()))
        if "error" in header:
            raise DataError(header["error"])
        return header["value"], self._broadcast(payload)

    def gathered(self) -> None:
        """Called on every rank when rank 0 has written its last checkpoint, before any of them ends."""

    def finish(self) -> None:
        """Called on every rank when all has gone well, at the very end."""

    def _broadcast(self, data: bytes) -> bytes:
        raise NotImplementedError
