"""Look at modules of torch as soon as they are imported, without importing them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class AtImport:
    """A finder that finds nothing itself. ``then`` are functions by the names of modules, each
    called with its module when that has been imported."""

    def __init__(self, then: Mapping[str, Callable[[ModuleType], None]]) -> None:
        self._then = dict(then)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._then:
            return None
        for finder in sys.meta_path:
            if finder is not self:
                spec = finder.find_spec(name, path, target)
                if spec is not None and spec.loader is not None:
                    return self._watched(spec, spec.loader)
        return None

    def _watched(self, spec: ModuleSpec, loader: Any) -> ModuleSpec:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            if self in sys.meta_path:  # and not disabled meanwhile
                self._then[spec.name](module)

        loader.exec_module = exec_module
        return spec
