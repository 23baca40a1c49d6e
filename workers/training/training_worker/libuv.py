"""Stores without libuv, where PyTorch is built without it.

PyTorch 2.4 and later ask for libuv whenever a TCPStore is made, also when they are built without it, as Debian 13's is:
``env://`` and ``torchrun`` then fail, and ``USE_LIBUV=0`` helps only the first. In the image ``training-worker.pth``
calls this at each start of Python, so that scripts of users need no change.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # every program of the image would wait for the import of typing
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any


def install() -> None:
    """Change TCPStore as soon as torch.distributed is imported, before which this must be called."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Leaves all modules to the other finders, and changes torch.distributed when it is loaded."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "torch.distributed":
            return None
        found = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:
            _call_after_loading(spec.loader, _without_libuv_where_needed)
        return spec


def _call_after_loading(loader: Any, change: Callable[[ModuleType], None]) -> None:
    load = loader.exec_module

    def load_and_change(module: ModuleType) -> None:
        load(module)
        change(module)

    loader.exec_module = load_and_change


def _without_libuv_where_needed(distributed: ModuleType) -> None:
    """Have TCPStore try again without libuv when it says that there is none. Elsewhere nothing changes."""
    store = getattr(distributed, "TCPStore", None)
    if store is None:  # PyTorch without distributed training
        return
    make = store.__init__

    def make_with_what_is_built(self: Any, *args: Any, **settings: Any) -> None:
        try:
            make(self, *args, **settings)
        except RuntimeError as error:
            if "without libuv" not in str(error):
                raise
            make(self, *args, **{**settings, "use_libuv": False})

    store.__init__ = make_with_what_is_built
