"""TorchScript models by location: fetched once, kept on disk and, the last few, in memory."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from pool_worker import places
from pool_worker.errors import ConfigError

from inference_worker.errors import LocationError
from inference_worker.locations import Location, Source, reading
from inference_worker.predictor import ScriptPredictor

DEFAULT_MAX_BYTES = 4 << 30
IN_MEMORY = 3
READ_BYTES = 1 << 20
LOCK_SECONDS = 0.2
Check = Callable[[], None]


@dataclass(frozen=True)
class _Kept:
    predictor: ScriptPredictor
    digest: str


class ModelStore:
    """Models below ``folder``. Files of at most ``max_bytes`` are taken; all together have at most twice as much.

    A file is named by the hash of its URI, version and size, and by the hash of its content: an object that has changed
    is fetched again.
    """

    def __init__(self, folder: Path, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[Path, _Kept] = OrderedDict()

    def load(self, location: Location, digest: str | None, check: Check) -> ScriptPredictor:
        """The model at ``location``, whose SHA-256 must be ``digest`` where that is given.

        ``check`` is called while it is fetched, and may raise to stop that. Raises ConfigError, or TaskError when
        another try can help.
        """
        with self._locked(check):
            try:
                path, found = self._file(location, check)
            except LocationError as error:
                raise error.of("model") from error
            if digest is not None and digest != found:
                raise ConfigError(f"config.model_sha256: is {digest}, but {location.name} has {found}")
            kept = self._kept.get(path)
            if kept is None:
                kept = self._kept[path] = _Kept(_load(location.name, path), found)
                while len(self._kept) > IN_MEMORY:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(path)
            return kept.predictor

    @contextlib.contextmanager
    def _locked(self, check: Check) -> Iterator[None]:
        """One task at a time fetches; the others may be cancelled meanwhile."""
        while not self._lock.acquire(timeout=LOCK_SECONDS):
            check()
        try:
            yield
        finally:
            self._lock.release()

    def _file(self, location: Location, check: Check) -> tuple[Path, str]:
        """The file of a model as it is now, and the hash of its content."""
        with reading(location) as source:
            if source.size is not None and source.size > self._max_bytes:
                raise self._too_large(location)
            key = hashlib.sha256(f"{location.name}\n{source.version}\n{source.size}".encode()).hexdigest()[:32]
            if source.version is not None:
                for path in self._folder.glob(f"{key}-*.pt"):
                    os.utime(path)
                    return path, path.stem.partition("-")[2]
            return self._fetch(location, source, key, check)

    def _fetch(self, location: Location, source: Source, key: str, check: Check) -> tuple[Path, str]:
        temporary: Path | None = None
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._make_room(source.size or 0)
            digest, size = hashlib.sha256(), 0
            descriptor, name = tempfile.mkstemp(dir=self._folder, prefix=".partial-")
            temporary = Path(name)
            with open(descriptor, "wb") as file:
                while data := source.stream.read(READ_BYTES):
                    check()
                    size += len(data)
                    if size > self._max_bytes:
                        raise self._too_large(location)
                    digest.update(data)
                    file.write(data)
            path = self._folder / f"{key}-{digest.hexdigest()}.pt"
            os.replace(temporary, path)
            return path, digest.hexdigest()
        except OSError as error:
            raise LocationError(f"{location.name} cannot be kept in {self._folder}: {error}", retryable=True) from error
        finally:
            if temporary is not None:
                temporary.unlink(missing_ok=True)

    def _make_room(self, size: int) -> None:
        """Remove the files that were not used for longest, so that one of ``size`` bytes has room."""
        files = sorted(self._folder.glob("*.pt"), key=lambda path: path.stat().st_mtime_ns)
        room = 2 * self._max_bytes - size - sum(path.stat().st_size for path in files)
        for path in files:
            if room >= 0:
                break
            room += path.stat().st_size
            path.unlink()
            self._kept.pop(path, None)

    def _too_large(self, location: Location) -> ConfigError:
        return ConfigError(
            f"config.model: {location.name} is larger than {self._max_bytes} bytes: raise MODEL_MAX_BYTES of the worker"
        )


def max_bytes(env: Mapping[str, str]) -> int:
    """MODEL_MAX_BYTES, by default 4 GiB. Raises ConfigError."""
    text = env.get("MODEL_MAX_BYTES", "").strip()
    if not text:
        return DEFAULT_MAX_BYTES
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"MODEL_MAX_BYTES of the worker is {text!r}, but must be a whole number of bytes from 1")
    return int(text)


def store() -> ModelStore:
    """The store of this process, below WORK_DIR."""
    return _store(places.models_dir(), max_bytes(os.environ))


@functools.lru_cache(maxsize=1)
def _store(folder: Path, most: int) -> ModelStore:
    return ModelStore(folder, most)


def _load(name: str, path: Path) -> ScriptPredictor:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        module = torch.jit.load(str(path), map_location=device).eval()
    except (RuntimeError, ValueError) as error:
        path.unlink(missing_ok=True)
        what = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        raise ConfigError(
            f"config.model: {name} is no TorchScript file: "
            f"save the model with torch.jit.script(model).save(FILE): {what}"
        ) from error
    return ScriptPredictor(name, module, device)
