"""The versions of a live extension: the one in use, the released and the kept ones."""

from __future__ import annotations

import threading
import time
import types
from dataclasses import dataclass, field

from warmcc.client.live.reload.library import Inspected, Library
from warmcc.errors import WarmccError
from warmcc.protocol import Built


class NotReloadable(WarmccError):
    """A version that cannot be loaded beside an earlier one in the same process."""


@dataclass
class Version:
    """One good build.
    ``number`` counts from 1; ``seconds`` is what the build took, ``time`` when it was loaded,
    in seconds since the epoch."""

    number: int
    path: str
    outcome: str
    seconds: float
    time: float
    _library: Library | None = field(default=None, repr=False)

    @property
    def module(self) -> types.ModuleType | None:
        """The version's module, as long as it is loaded and somebody holds it."""
        return self._library.module if self._library is not None else None

    @property
    def state(self) -> str:
        """``loaded``, ``released``, or ``kept`` with the reason why it stays in memory."""
        if self._library is None or self._library.gone:
            return "released"
        return f"kept: {self._library.kept}" if self._library.kept is not None else "loaded"


class Versions:
    """Loads what was built, in order.
    The newest and the ``keep`` before it are held; others go when nobody has anything of them
    any longer. Only one thread may add."""

    def __init__(self, name: str, *, keep: int = 1, remembered: int = 1000) -> None:
        self._name = name
        self._keep = keep
        self._remembered = remembered
        self._lock = threading.Lock()
        self._kept: dict[str, Library] = {}  # by path: the dynamic loader has one object for a path
        self._registers: str | None = None
        self.history: list[Version] = []

    @property
    def newest(self) -> Version | None:
        return self.history[-1] if self.history else None

    def add(self, built: Built, *, is_module: bool) -> Version:
        """Load what was built and put it in use.
        Raises NotReloadable, ImportError, OSError, and whatever the module raises when it
        is initialised; the version before stays in use then."""
        newest = self.newest
        if newest is not None and newest.path == built.path and newest.state != "released":
            return newest  # nothing but comments changed
        library = self._kept.get(built.path)
        if library is None:
            found = Inspected(built.path)
            self._check(found)
            library = Library(found, self._name, is_module=is_module)
        if library.kept is not None:
            self._kept[built.path] = library
        number = newest.number + 1 if newest is not None else 1
        version = Version(number, built.path, built.outcome, built.seconds, time.time(), library)
        with self._lock:
            self.history.append(version)
            del self.history[: -self._remembered]
        self.release()
        return version

    def _check(self, found: Inspected) -> None:
        """Torch takes the definition of an operator once: a second one would end the process."""
        if not found.registers_operators:
            return
        if self._registers not in (None, found.path):
            raise NotReloadable(
                f"{self._name} registers operators (TORCH_LIBRARY), and torch has those of the "
                "version before until "
                "this process ends; run it in a new process, as `warmcc watch --run` does"
            )
        self._registers = found.path

    def release(self) -> None:
        """Let go of what is not in use."""
        with self._lock:
            old = self.history[: -1 - self._keep]
        used = {id(version._library) for version in self.history[-1 - self._keep :]}
        for version in old:
            library = version._library
            if library is None or library.gone or id(library) in used:
                continue
            if library.kept is None:
                library.retire()
                library.release()
