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
from typing import Any

from tests.support.daemons import Daemon, running


class Run:
    """One run of the tests. ``folder`` is where its processes meet; the first one makes it."""

    def __init__(self, folder: str | None = None) -> None:
        self.folder = Path(folder or tempfile.mkdtemp(prefix="wcc-tests-", dir="/tmp"))
        self._known: dict[str, Daemon] = {}

    def daemon(self, name: str, **settings: Any) -> Daemon:
        """The run's daemon of this name; started with ``settings`` where it is not there yet."""
        if name not in self._known:
            with self._locked(f"{name}.starting"):
                noted = self.folder / f"{name}.json"
                if noted.exists():
                    one = Daemon.adopted(**json.loads(noted.read_text()))
                else:
                    one = Daemon(**settings).start()
                    noted.write_text(json.dumps({"folder": str(one.folder), "pid": one.pid}))
            self._known[name] = one
            running.append(one)
        return self._known[name]

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
