"""Which model a config asks for: a bundled one, a checkpoint of a training, or a TorchScript model by its location."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pool_worker.fields import Fields
from pool_worker.places import inside_work_dir

from inference_worker import access, locations, model, model_store
from inference_worker.access import Access
from inference_worker.errors import LocationError
from inference_worker.locations import Location
from inference_worker.predictor import Predictor

CHECKPOINT_MODELS = ("cnn", "mlp", "resnet-tiny")
SUFFIXES = (".pt", ".pth", ".ts")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Choice:
    """A model that is not loaded yet: the one at ``location`` if that is set, else by ``name``."""

    name: str
    checkpoint: Path | None = None
    location: Location | None = None
    digest: str | None = None

    def load(self, check: Callable[[], None]) -> Predictor:
        """Load it; ``check`` may raise to stop that. Raises TaskError."""
        if self.location is not None:
            return model_store.store().load(self.location, self.digest, check)
        return self.classifier()

    def classifier(self) -> model.Classifier:
        """The bundled model or the checkpoint. Raises ConfigError."""
        if self.checkpoint is not None:
            return model.from_checkpoint(self.name, self.checkpoint)
        return model.bundled(self.name)


def by_location(name: object, allowed: Access) -> bool:
    """Whether ``name`` is the location of a model. A path is one only in a pod that has one user."""
    return access.is_uri(name) or (
        not allowed.restricted and isinstance(name, str) and ("/" in name or name.endswith(SUFFIXES))
    )


def choose(fields: Fields, allowed: Access) -> Choice:
    """Read ``model``, ``model_sha256`` and ``checkpoint``."""
    if by_location(fields.raw("model"), allowed):
        return _located(fields, allowed)
    return of_the_worker(fields)


def of_the_worker(fields: Fields) -> Choice:
    """Read ``model`` and ``checkpoint``, for a bundled network."""
    if "checkpoint" not in fields:
        fields.raw("checkpoint")
        return Choice(fields.text("model", model.bundled_names()[0], choices=model.bundled_names()))
    path = None
    try:
        path = inside_work_dir(fields.text("checkpoint"))
    except ValueError as error:
        fields.problem("checkpoint", str(error))
    return Choice(fields.text("model", "cnn", choices=CHECKPOINT_MODELS), path)


def location(fields: Fields, name: str, allowed: Access) -> Location | None:
    """The location that field ``name`` has, or None when it has none that can be used; the problem is noted."""
    text = fields.text(name, required=True)
    if fields.raw(name) == "":
        fields.problem(name, "is empty: give a URI that begins with s3:// or https://, or a path below WORK_DIR")
    try:
        return locations.find(text, allowed) if text else None
    except LocationError as error:
        fields.problem(name, str(error))
        return None


def _located(fields: Fields, allowed: Access) -> Choice:
    digest = fields.text("model_sha256").lower()
    if digest and not _SHA256.fullmatch(digest):
        fields.problem("model_sha256", f"is {digest[:80]!r}, but must be the 64 hexadecimal digits of a SHA-256")
    found = location(fields, "model", allowed)
    return Choice(found.name if found else "", location=found, digest=digest or None)
