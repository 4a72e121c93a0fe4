"""What the processes of one run of the tests share: pytest-xdist starts several.

A shared daemon is started by the process that needs it first, noted in the folder of the run, and
ended by the process that started the run.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.support.cuda import CudaDaemon
from tests.support.daemons import Daemon, running

D = TypeVar("D", bound=Daemon)


class Run:
    """One run of the tests. ``folder`` is where its processes meet; the first one makes it."""

    def __init__(self, folder: str | None = None) -> None:
        self.folder = Path(folder or tempfile.mkdtemp(prefix="wcc-tests-", dir="/tmp"))
        self._known: dict[str, Daemon] = {}

    def warm(self) -> Daemon:
        """A daemon that warms up for the default flags."""
        settings = {"ccache": False, "prewarm": None, "sample_after": 5.0}
        return self._daemon("warm", Daemon, settings)

    def warm_cuda(self) -> CudaDaemon:
        """A daemon that warms up for CUDA units, too. It has room for all levels that tests want:
        none goes for another, and forks ahead fit beside them. It has the steps of two processors,
        on which units wait for what is not warm yet.
        """
        settings = {
            "prewarm": [""], "prewarm_cuda": True, "sample_after": 0.5, "cuda_memory": 8 << 30,
            "jobs": 4,
        }  # fmt: skip
        return self._daemon("warm_cuda", CudaDaemon, settings)

    def _daemon(self, name: str, kind: type[D], settings: dict[str, Any]) -> D:
        """The run's daemon of this name; started where it is not there yet."""
        if name not in self._known:
            with self._locked(f"{name}.starting"):
                noted = self.folder / f"{name}.json"
                if noted.exists():
                    one = kind.adopted(**json.loads(noted.read_text()))
                else:
                    one = kind(**settings).start()
                    noted.write_text(json.dumps({"folder": str(one.folder), "pid": one.pid}))
            self._known[name] = one
            running.append(one)
        found = self._known[name]
        assert isinstance(found, kind)
        return found

    @contextlib.contextmanager
    def using(self, name: str, *, alone: bool) -> Iterator[None]:
        """Use a daemon: together with other processes, or ``alone``. Whoever waits to be alone
        holds up those who come later.
        """
        how = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
        with contextlib.ExitStack() as held:
            with self._locked(f"{name}.turn"):
                held.enter_context(self._locked(f"{name}.used", how))
            yield

    @contextlib.contextmanager
    def _locked(self, name: str, how: int = fcntl.LOCK_EX) -> Iterator[None]:
        with open(self.folder / name, "w") as file:
            fcntl.flock(file, how)
            yield

    def end(self) -> list[str]:
        """End the daemons, and say what was wrong with that: they must leave no process."""
        wrong = []
        for noted in self.folder.glob("*.json"):
            one = Daemon.adopted(**json.loads(noted.read_text()))
            try:
                one.stop()
            except AssertionError as error:
                wrong.append(f"{noted.stem}: {error}")
            finally:
                one.discard()
        return wrong

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


RUN: pytest.StashKey[Run] = pytest.StashKey()
