"""``warmcc.watch`` and ``warmcc.reloading``: modules that follow the newest good build."""

from __future__ import annotations

import functools
import os
import sys
import threading
import types
from collections.abc import Iterable, Sequence
from typing import Any

from warmcc.client.live.build import build
from warmcc.client.live.contents import Contents
from warmcc.client.live.loop import Event, Loop, OnEvent
from warmcc.client.live.recipe import Recipe
from warmcc.client.live.reload.versions import Version, Versions
from warmcc.client.live.report.readable import readable
from warmcc.errors import DaemonError, WarmccError
from warmcc.protocol import Built

Sources = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def watch(
    name: str, sources: Sources, functions: str | Sequence[str] | None = None, *,
    on_event: OnEvent | None = None, keep: int = 1, **arguments: Any,
) -> Handle:  # fmt: skip
    """Build an extension from files, and rebuild it in the background when one is saved.

    ``sources`` are C++ and CUDA files. With ``functions`` they are what ``load_inline`` takes,
    stock's headers in front and these functions bound; without, what ``load`` takes. ``arguments``
    are those of the one or the other (flags, include paths). ``on_event`` is called with each
    ``Event``, in a thread of the loop; without it, what does not build is printed to standard
    error. ``keep`` versions before the newest stay loaded.

    Returns a handle, once there is a first version. Raises CompileError when that does not build,
    and what ``load`` raises for the same arguments.
    """
    return Handle(Recipe.of(name, sources, functions, arguments), keep, on_event, background=True)


def reloading(
    name: str, sources: Sources, functions: str | Sequence[str] | None = None, *,
    on_event: OnEvent | None = None, keep: int = 1, **arguments: Any,
) -> Handle:  # fmt: skip
    """As ``watch``, without a thread: each call builds first if a file was saved."""
    return Handle(Recipe.of(name, sources, functions, arguments), keep, on_event, background=False)


class Handle:
    """A module that changes as its sources do.

    Its attributes are those of the newest good version. A function taken from it is the newest
    version's at each call; a call under way ends on the code with which it began. ``version`` is
    the number of the newest version, ``history`` lists them, ``module`` is the newest as it is,
    ``error`` why the files as they are now do not build, or None.
    """

    def __init__(
        self, recipe: Recipe, keep: int, on_event: OnEvent | None, *, background: bool
    ) -> None:
        self._recipe = recipe
        self._on_event = on_event
        self._versions = Versions(recipe.name, keep=keep)
        self._functions: dict[str, _Function] = {}
        self._updating = threading.RLock()
        self._refreshing = False
        self._contents: Contents | None = None
        self._files: dict[str, str] = {}  # what the last good build has read, by digest
        self._loop: Loop | None = None
        self.error: Exception | None = None
        import torch  # noqa: F401  (its libraries must be there before a version's)

        if background:
            self._loop = Loop(recipe, self._take, self._tell)
            self._loop.start()
            while not self._loop.wait(0.2) and not isinstance(self.error, DaemonError):
                pass
        else:
            self._refresh()
        if self._versions.newest is None:
            error = self.error or WarmccError(f"{recipe.name} was not built")
            self.close()
            raise error

    # ------------------------------------------------------------------ as a module

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        value = getattr(self._current(), name)
        if not isinstance(value, (types.BuiltinFunctionType, types.FunctionType)):
            return value
        if name not in self._functions:
            self._functions[name] = _Function(self, name)
        return self._functions[name]

    def __dir__(self) -> list[str]:
        return sorted(
            {
                *super().__dir__(),
                *(name for name in dir(self._current()) if not name.startswith("_")),
            }
        )

    def __repr__(self) -> str:
        state = ", its files do not build" if self.error is not None else ""
        return f"<live extension {self._recipe.name!r}, version {self.version}{state}>"

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        return self._current().__doc__

    @property
    def module(self) -> types.ModuleType:
        """The newest good version's module; the version stays loaded while this is referenced."""
        return self._current()

    def _current(self) -> types.ModuleType:
        if self._loop is None:
            self._refresh()
        newest = self._versions.newest
        assert newest is not None
        if (module := newest.module) is None:
            raise AttributeError(
                f"{self._recipe.name} is a library and has no functions for Python"
            )
        return module

    # ------------------------------------------------------------------ versions

    @property
    def version(self) -> int:
        newest = self._versions.newest
        return newest.number if newest is not None else 0

    @property
    def history(self) -> list[Version]:
        """The versions so far, the newest last."""
        self._versions.release()
        return list(self._versions.history)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the files as they are now have been built, well or not (``error`` tells).
        False when the time, in seconds, runs out."""
        if self._loop is None:
            self._refresh()
            return True
        return self._loop.wait(timeout)

    def close(self) -> None:
        """Stop watching. The newest version stays usable."""
        if self._loop is not None:
            self._loop.close()

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ building

    def _take(self, built: Built) -> None:
        self._versions.add(built, is_module=self._recipe.is_module())

    def _tell(self, event: Event) -> None:
        if event.kind == "built":
            self.error = None
        elif event.kind in ("failed", "away"):
            told = self.error is not None and str(self.error) == str(event.error)
            self.error = event.error
            if self._on_event is None and not told and self._versions.newest is not None:
                said = f"warmcc: version {self.version} of {self._recipe.name} stays in use"
                print(f"{said}: {readable(event.error)}" if event.error else said, file=sys.stderr)
        if self._on_event is not None:
            self._on_event(event)

    def _refresh(self) -> None:
        """Build, if a file was saved since.
        Threads that call at the same time wait for the one that does; a listener that calls
        a function meanwhile gets the version that there is."""
        with self._updating:
            if self._refreshing or (self._contents is not None and not self._contents.touched()):
                return
            found = Contents.of(self._recipe.sources, self._files, self._contents)
            if found == self._contents:
                self._contents = found
                return
            self._refreshing = True
            try:
                self._rebuild(found)
            finally:
                self._refreshing = False

    def _rebuild(self, found: Contents) -> None:
        self._tell(Event("started"))
        try:
            built = build(self._recipe)
            found = found.as_built(built.files)
            self._files = built.files or self._files
            self._take(built)
        except DaemonError as error:
            self._tell(Event("away", error=error))
            return  # the next call asks again
        except Exception as error:
            self._tell(Event("failed", error=error))
        else:
            self._tell(Event("built", built=built))
        self._contents = found


class _Function:
    """One function of a handle, whatever version that has by the time of the call."""

    def __init__(self, handle: Handle, name: str) -> None:
        self._handle = handle
        functools.update_wrapper(self, getattr(handle._current(), name), updated=())
        vars(self).pop("__wrapped__")
        self.__name__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._handle._current(), self.__name__)(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<{self.__name__} of {self._handle!r}>"
