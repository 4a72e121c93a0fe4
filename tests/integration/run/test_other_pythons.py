"""Programs in forks of zygotes of other Pythons: each that is installed here, from 3.10 on.

These have neither torch nor what warmcc's package needs, so that each zygote is started by the part
of the start that needs neither, and imports modules of the standard library.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.zygotes import Zygotes
from warmcc import runs
from warmcc.client.run import facts

OLDEST, NEWEST = 10, 15
MODULES = "json,logging,multiprocessing.process,random,threading,zipimport"


def pythons() -> list[str]:
    """Programs named ``python`` of this version and of others, in their folders."""
    versions = os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
    found = [os.path.realpath(sys.executable)]
    for minor in range(OLDEST, NEWEST + 1):
        found.append(os.path.realpath(shutil.which(f"python3.{minor}") or ""))
        found += map(str, Path(versions, "versions").glob(f"3.{minor}.*/bin/python3.{minor}"))
    folders = {os.path.dirname(one) for one in found if os.path.isfile(one)}
    beside = [f"{one}/python" for one in folders if os.path.basename(one) != "shims"]
    return sorted(one for one in beside if os.access(one, os.X_OK))


class Other(Zygotes):
    """A folder with a zygote of another Python."""

    def __init__(self, python: str) -> None:
        super().__init__()
        self.python = python
        self.environment |= {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        folder = self.runtime / runs.FOLDER
        folder.mkdir(mode=0o700)
        digest = self._python(
            "import os\nfrom warmcc.client.run.facts import Process, digest, gather\n"
            f"print(digest(gather({python!r}, 'torch', Process(), dict(os.environ))))"
        )
        locks = [
            os.open(path, os.O_RDWR | os.O_CREAT)
            for path in (folder / runs.STARTING, runs.file_of(str(folder), digest, runs.LOCK))
        ]
        for lock in locks:
            fcntl.flock(lock, fcntl.LOCK_EX)
        told = {
            "folder": str(folder), "facts": digest, "starting": str(locks[0]),
            "lock": str(locks[1]), "python": python, "profile": "torch", "session": "0",
            "prefixes": ",".join(facts.PREFIXES), "late": ",".join(facts.LATE), "idle": "60",
            "modules": MODULES,
        }  # fmt: skip
        with open(runs.file_of(str(folder), digest, runs.LOG), "wb") as log:
            self.process = subprocess.Popen(
                [
                    python, "-c", "import json, sys\nfrom warmcc.daemon.run.__main__ import "
                    "become_zygote\nbecome_zygote(json.loads(sys.argv[1]))", json.dumps(told),
                ],
                env=self.environment, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                pass_fds=locks,
            )  # fmt: skip
        for lock in locks:
            os.close(lock)
        deadline = time.monotonic() + 60
        while not self.pids():
            assert self.process.poll() is None and time.monotonic() < deadline, self.logs()
            time.sleep(0.05)

    def _python(self, code: str) -> str:
        done = subprocess.run(
            [self.python, "-c", code], env=self.environment, capture_output=True, text=True,
            check=True,
        )  # fmt: skip
        return done.stdout.strip()

    def both(self, *words: str) -> tuple[int, str, str]:
        """What a program gives under python, after it has given the same in a fork."""
        launch = [self.python, "-m", "warmcc.client.run.launch", "--explain"]
        warm = self._run([*launch, *words], "typed", {})
        plain = self._run([self.python, *words], "typed", {})
        assert (warm.returncode, warm.stdout, warm.stderr) == (
            plain.returncode, plain.stdout, plain.stderr,
        )  # fmt: skip
        return plain.returncode, plain.stdout, plain.stderr

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        super().close()


@pytest.fixture(params=pythons(), scope="module")
def other(request: pytest.FixtureRequest) -> Iterator[Other]:
    try:
        made = Other(request.param)
    except subprocess.CalledProcessError as error:
        pytest.fail(f"{request.param}: {error.stderr}")
    try:
        yield made
    finally:
        made.close()


def test_a_command(other: Other) -> None:
    """In the zygote's fork, and with this Python's own view of itself."""
    code = "import sys; print(sys.version_info, sys.flags, sys.argv, sys.path, __name__)"
    assert other.both("-c", code, "a", "ü")[0] == 0
    launch = [other.python, "-m", "warmcc.client.run.launch", "-c"]
    found = other._run([*launch, "import sys; print('zipimport' in sys.modules)"], "", {})
    assert found.stdout == "True\n"


def test_a_script_with_its_ends(other: Other) -> None:
    name = other.script(
        "import atexit, sys, os, threading\natexit.register(print, 'last')\n"
        "print(__file__, __name__, __builtins__, sys.orig_argv[1:], sys.stdin.read())\n"
        "t = threading.Thread(target=print, args=('thread',)); t.start(); t.join()\n"
        "def f(x):\n    return 1 / x\n"
        "f(int(sys.argv[1]))\n"
    )
    assert other.both(name, "1")[0] == 0
    code, text, errors = other.both(name, "0")
    assert code == 1 and text.endswith("last\n") and "ZeroDivisionError" in errors


def test_a_module_standard_input_and_a_signal(other: Other) -> None:
    assert other.both("-m", "json.tool", "--help")[0] == 0
    assert "typed" in other.both("-")[2]  # NameError: the text of standard input
    assert other.both("-c", "import os; os.kill(os.getpid(), 9)")[0] == -9
    assert other.both("-c", "import sys; sys.exit(7)")[0] == 7
