"""``warmcc run`` in tests: a runtime folder with zygotes of its own, and programs run there."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from warmcc import runs

PYTHON = os.path.join(os.path.dirname(sys.executable), "python")
START_SECONDS = 120.0


class Zygotes:
    """A folder for zygotes; programs run below it by ``warm`` and ``plain``, from ``where``."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="wcc-run-", dir="/tmp"))
        self.where = self.folder / "work"
        self.where.mkdir()
        self.runtime = self.folder / "runtime"
        self.runtime.mkdir(mode=0o700)
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "WARMCC_", "PYTEST_", "COV_"))
        }
        self.environment |= {"WARMCC_RUNTIME_DIR": str(self.runtime), "WARMCC_RUN_ZYGOTES": "8"}

    @property
    def sockets(self) -> list[Path]:
        return sorted((self.runtime / runs.FOLDER).glob(f"*{runs.SOCKET}"))

    def pids(self) -> list[int]:
        """The zygotes that answer."""
        answers = [runs.ask(str(path), runs.STATUS) for path in self.sockets]
        return [int(answer.split()[0]) for answer in answers if answer]

    def command(self, *words: str, explain: bool = True) -> list[str]:
        explained = ["--explain"] if explain else []
        return [PYTHON, "-m", "warmcc.client.run.launch", *explained, *words]

    def warm(
        self, *words: str, stdin: str = "", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a program by ``warmcc run --explain``."""
        return self._run(self.command(*words), stdin, variables)

    def plain(
        self, *words: str, stdin: str = "", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run it by python."""
        return self._run([PYTHON, *words], stdin, variables)

    def _run(
        self, command: Sequence[str], stdin: str, variables: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=self.where, env={**self.environment, **variables}, input=stdin,
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip

    def start(self, *words: str, **variables: str) -> None:
        """Have a zygote started, and wait until one serves such a run."""
        deadline = time.monotonic() + START_SECONDS
        while "python runs it" in (done := self.warm(*words, "-c", "pass", **variables)).stderr:
            assert time.monotonic() < deadline, f"no zygote: {done.stderr}\n{self.logs()}"
            time.sleep(0.1)

    def logs(self) -> str:
        """What zygotes wrote."""
        paths = sorted((self.runtime / runs.FOLDER).glob("*"))
        return "".join(
            f"{path.name}: {path.read_text(errors='replace')}\n"
            for path in paths
            if path.suffix in (runs.LOG, runs.FAILED)
        )

    def script(self, text: str, name: str = "script.py") -> str:
        """Write a script; gives its name."""
        path = self.where / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return name

    def close(self) -> None:
        """Leave no process and no file."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)
