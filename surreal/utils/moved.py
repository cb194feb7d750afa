"""Former import paths of modules that have moved, kept for those who import them: the same module under two names.

Used by the `__init__` of a package whose modules have gone into rooms: `keep_paths(__name__, {"client":
"connection.client"})`. Nothing is imported before somebody asks for it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


def keep_paths(package: str, moved: Mapping[str, str]) -> None:
    """Let former modules of `package` be imported as before.

    Args:
        package: full name of the package.
        moved: from a module's former name to its present one, both relative to the package.
    """
    sys.meta_path.append(_MovedModules({f"{package}.{old}": f"{package}.{new}" for old, new in moved.items()}))


class _MovedModules(MetaPathFinder, Loader):
    """Finds former names, after every other finder, and loads the module of the present name for them."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._specs: dict[str, ModuleSpec | None] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in self._names else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self._names[spec.name])
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has just written the former name's spec into the module, which has one of its own.
        alias = module.__spec__
        if alias is not None:
            module.__spec__ = self._specs.pop(alias.name)
