"""Reads the fields of a job's config and collects what is wrong with them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pool_worker.errors import ConfigError


class Fields:
    """Typed access to a JSON object. ``finish`` raises one ConfigError that names every wrong field.

    A wrong field reads as its default until then.
    """

    def __init__(self, document: Any, path: str = "config", problems: list[str] | None = None) -> None:
        self._path = path
        self._problems = problems if problems is not None else []
        self._known: set[str] = set()
        self._nested: list[Fields] = []
        if not isinstance(document, Mapping):
            self._problems.append(f"{path}: must be an object")
            document = {}
        self._document: Mapping[str, Any] = document

    def __contains__(self, name: str) -> bool:
        return self._document.get(name) is not None

    def problem(self, name: str, what: str) -> None:
        """Note that field ``name`` is wrong."""
        self._problems.append(f"{self._path}.{name}: {what}")

    def finish(self) -> None:
        """Raise ConfigError for all that is wrong, unknown fields included."""
        self._collect_unknown()
        if self._problems:
            raise ConfigError("; ".join(dict.fromkeys(self._problems)))

    def raw(self, name: str) -> Any:
        """The value as it is, or None."""
        self._known.add(name)
        return self._document.get(name)

    def text(self, name: str, default: str = "", *, choices: tuple[str, ...] = (), required: bool = False) -> str:
        """A string, one of ``choices`` if there are some."""
        value = self.raw(name)
        if value is None:
            if required:
                self.problem(name, "is missing" + (f": give one of {', '.join(choices)}" if choices else ""))
            return default
        if not isinstance(value, str) or (choices and value not in choices):
            must = f"one of {', '.join(choices)}" if choices else "a string"
            self.problem(name, f"is {_short(value)}, but must be {must}")
            return default
        return value

    def boolean(self, name: str, default: bool) -> bool:
        """true or false."""
        value = self.raw(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.problem(name, f"is {_short(value)}, but must be true or false")
            return default
        return value

    def integer(
        self, name: str, default: int = 0, *, minimum: int = 0, maximum: int = 2**53, required: bool = False
    ) -> int:
        """A whole number within bounds."""
        value = self.number(name, default, minimum=minimum, maximum=maximum, required=required)
        if value != int(value):
            self.problem(name, f"is {value:g}, but must be a whole number")
            return default
        return int(value)

    def number(
        self,
        name: str,
        default: float = 0.0,
        *,
        minimum: float = -math.inf,
        maximum: float = math.inf,
        above: float | None = None,
        required: bool = False,
    ) -> float:
        """A finite number within bounds; ``above`` excludes its value."""
        value = self.raw(name)
        if value is None:
            if required:
                self.problem(name, "is missing: give a number")
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            self.problem(name, f"is {_short(value)}, but must be a number")
            return default
        if above is not None and value <= above:
            self.problem(name, f"is {value:g}, but must be above {above:g}")
            return default
        if value < minimum:
            self.problem(name, f"is {value:g}, but must be at least {minimum:g}")
            return default
        if value > maximum:
            self.problem(name, f"is {value:g}, but must be at most {maximum:g}")
            return default
        return value

    def array(self, name: str, *, maximum: int) -> list[Any] | None:
        """A list of 1 to ``maximum`` entries, or None when it is not there."""
        value = self.raw(name)
        if value is None:
            return None
        if not isinstance(value, list) or not 1 <= len(value) <= maximum:
            what = f"has {len(value)} entries" if isinstance(value, list) else f"is {_short(value)}"
            self.problem(name, f"{what}, but must be a list of 1 to {maximum} entries")
            return None
        return value

    def object(self, name: str) -> Fields:
        """The fields of an object within, none when it is not there."""
        value = self.raw(name)
        return self._within({} if value is None else value, name)

    def objects(self, name: str, *, maximum: int) -> list[Fields]:
        """The fields of each object in a list, none when it is not there."""
        return [self._within(entry, f"{name}[{i}]") for i, entry in enumerate(self.array(name, maximum=maximum) or [])]

    def items(self) -> list[tuple[str, Any]]:
        """All fields with their values, whatever their names."""
        self._known.update(self._document)
        return list(self._document.items())

    def _within(self, document: Any, name: str) -> Fields:
        nested = Fields(document, f"{self._path}.{name}", self._problems)
        self._nested.append(nested)
        return nested

    def _collect_unknown(self) -> None:
        for name in self._document:
            if name not in self._known:
                self.problem(str(name), f"is unknown: known are {', '.join(sorted(self._known))}")
        for nested in self._nested:
            nested._collect_unknown()


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
