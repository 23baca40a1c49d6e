"""What is wrong with a config is told with the names of the fields."""

from __future__ import annotations

from typing import Any

import pytest

from pool_worker.errors import ConfigError
from pool_worker.fields import Fields
from pool_worker.places import inside_work_dir


def problems(config: Any) -> str:
    fields = Fields(config)
    fields.integer("count", 1, minimum=1, maximum=10)
    fields.number("rate", 1.0, above=0)
    fields.text("kind", "a", choices=("a", "b"))
    fields.boolean("fast", False)
    fields.array("list", maximum=2)
    nested = fields.object("nested")
    nested.number("depth", 0.0)
    for entry in fields.objects("entries", maximum=3):
        entry.text("name", required=True)
    with pytest.raises(ConfigError) as caught:
        fields.finish()
    assert caught.value.retryable is False
    return str(caught.value)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"count": 0}, "config.count: is 0, but must be at least 1"),
        ({"count": 11}, "config.count: is 11, but must be at most 10"),
        ({"count": 1.5}, "config.count: is 1.5, but must be a whole number"),
        ({"count": True}, "config.count: is True, but must be a number"),
        ({"rate": 0}, "config.rate: is 0, but must be above 0"),
        ({"rate": "fast"}, "config.rate: is 'fast', but must be a number"),
        ({"kind": "c"}, "config.kind: is 'c', but must be one of a, b"),
        ({"fast": 1}, "config.fast: is 1, but must be true or false"),
        ({"list": []}, "config.list: has 0 entries, but must be a list of 1 to 2 entries"),
        ({"list": {}}, "config.list: is {}, but must be a list"),
        ({"nested": 3}, "config.nested: must be an object"),
        ({"nested": {"depth": None, "width": 1}}, "config.nested.width: is unknown: known are depth"),
        ({"entries": [{"name": "x"}, {}]}, "config.entries[1].name: is missing"),
        ({"typo": 1}, "config.typo: is unknown: known are count, entries"),
        ([], "config: must be an object"),
    ],
)
def test_wrong_fields_are_named(config: Any, words: str) -> None:
    assert words in problems(config)


def test_all_that_is_wrong_is_told_at_once() -> None:
    assert problems({"count": 0, "rate": -1, "typo": 1}).count("config.") == 3


@pytest.mark.parametrize("path", ["", ".", "..", "../x", "/etc/passwd", "a/../../b"])
def test_tasks_write_below_their_folder_only(path: str) -> None:
    with pytest.raises(ValueError, match="WORK_DIR"):
        inside_work_dir(path)
