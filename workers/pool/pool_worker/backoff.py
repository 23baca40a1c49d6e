"""How long to wait before the next try."""

from __future__ import annotations

import random


class Backoff:
    """Delays that double from ``first`` up to ``most`` seconds, each between half and all of that by chance.

    The chance keeps a hundred workers from coming back to a service that has just started all at once.
    """

    def __init__(self, first: float = 0.2, most: float = 15.0) -> None:
        self._first = first
        self._most = most
        self._next = first

    def reset(self) -> None:
        """Start again from the first pause after a success."""
        self._next = self._first

    def delay(self, at_least: float | None = None) -> float:
        """The next delay in seconds; longer when the service asked for it by ``at_least``."""
        base, self._next = self._next, min(self._most, 2 * self._next)
        return max(base * random.uniform(0.5, 1.0), at_least or 0.0)  # noqa: S311 (no secret)
