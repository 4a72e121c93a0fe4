"""A fuzzer of wrong hits: small projects (projects.py), changed at random (mutations.py).

After each change the daemon's answer is compared with a fresh compile that knows no cache. Run by
test_wrong_hits.py, in a mount namespace.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import zmq

import warmcc
from tests.support.calls import Connection, load_request
from tests.support.daemons import Daemon
from tests.support.fault.clock import Clock
from tests.support.fault.mutations import MUTATIONS, SCENARIOS, any_there
from tests.support.fault.projects import LOCAL, LOCAL_LIBRARIES, Project, marks
from warmcc.client.calls import api
from warmcc.client.calls.arguments import LeftToStock
from warmcc.errors import CompileError
from warmcc.protocol import Built, Cache, Declined, Failed, Status

_UNTIL_REMEMBERED = 5
CLOCK = "an edit while the clock is set back"


class Fuzzer:
    """Projects, one daemon, and what came of it so far."""

    def __init__(self, daemon: Daemon, connection: Connection, clock: Clock, seed: int) -> None:
        self._daemon = daemon
        self._connection = connection
        self._clock = clock
        self._random = random.Random(seed)
        self._number = 0
        self.counts: Counter[str] = Counter()
        self.by_mutation: Counter[str] = Counter()

    def run(self, mutations: int, each: int = 150) -> None:
        """Raises AssertionError with what was changed, and both results, at the first that is
        wrong.
        """
        done = 0
        while done < mutations:
            project = self._project()
            history = ["a new project"]
            self._compare(project, history)
            for _ in range(min(each, mutations - done)):
                if self._random.random() < 0.02:
                    history.append(
                        self._edit_while_the_clock_is_set_back(
                            project, any_there(project) or "inc1/n0.h"
                        )
                    )
                else:
                    change = self._random.choice(MUTATIONS)
                    change(project)
                    history.append(change.__name__)
                self.by_mutation[history[-1]] += 1
                self._compare(project, history)
                project.through_file = None
                done += 1
            self._forget(project)

    def scenario(self, name: str) -> None:
        """Raises AssertionError when its last step is answered wrongly."""
        project = self._project()
        for change in SCENARIOS.get(name, [self._edit_while_the_clock_is_set_back]):
            change(project)
            self._compare(project, [name])
        self._forget(project)

    def _project(self) -> Project:
        self._number += 1
        return Project(
            self._daemon.folder / f"project-{self._number}", self._random, f"fuzz{self._number}"
        )

    @staticmethod
    def _forget(project: Project) -> None:
        shutil.rmtree(project.root)
        for left in (*LOCAL.iterdir(), *LOCAL_LIBRARIES.iterdir()):
            shutil.rmtree(left) if left.is_dir() else left.unlink()

    def _request(self, project: Project) -> Any:
        return load_request(
            [project.root / "src/unit.cpp"], name=project.tag, module_name=project.tag,
            is_python_module=False, extra_cflags=project.flags, extra_ldflags=project.link_flags,
            environment=project.environment,
        )  # fmt: skip

    def _compare(self, project: Project, history: list[str]) -> None:
        expected = project.fresh()
        self._compare_in_this_process(project, expected, history)
        answer = self._connection.build(self._request(project))
        if isinstance(answer, Declined):
            assert answer.expected, answer
            self.counts["left to stock"] += 1
            return
        assert isinstance(answer, (Built, Failed)), answer
        found = marks(answer.path) if isinstance(answer, Built) else None
        outcome = answer.outcome if isinstance(answer, Built) else "error"
        self.counts[outcome] += 1
        assert found == expected, (
            f"wrong {outcome} after {history[-12:]}:\n  daemon {found}\n  fresh  {expected}\n"
            f"  {answer.message if isinstance(answer, Failed) else answer.path}"
        )

    def _compare_in_this_process(
        self, project: Project, expected: dict[str, list[str]] | None, history: list[str]
    ) -> None:
        """The answers of a process that asks until it gives them from memory: the first may be of
        before the change.
        """
        for _ in range(_UNTIL_REMEMBERED):
            asked = self._requests()
            answer = calling(self._daemon, project)
            if isinstance(answer, Declined):
                return
            found = marks(answer.path) if answer is not None else None
            remembered = self._requests() == asked
            self.counts["remembered"] += remembered
            if answer is not None and not remembered:
                self.counts[answer.outcome] += 1
            assert found == expected, (
                f"wrong {'memory' if remembered else 'answer'} in a process after "
                f"{history[-12:]}:\n"
                f"  process {found}\n  fresh   {expected}"
            )
            if remembered or answer is None:
                return

    def _requests(self) -> int:
        """How many builds the daemon was asked for."""
        self._connection.send(Status(0))
        return int(self._connection.answer(number=0).data["requests"]["total"])

    def _edit_while_the_clock_is_set_back(self, project: Project, name: str = "inc2/n0.h") -> str:
        """A header is edited while it is compiled, and the clock of the wall was set back
        meanwhile.
        """
        project.slow = True
        project.source()
        self._clock.shift(3600)
        number = self._connection.ask(self._request(project))
        compiler = _wait_for("cc1plus", str(project.root))
        time.sleep(self._random.random() * 0.2)
        project.write(name)
        self._clock.shift(0)
        self._connection.answer(number=number)
        project.slow = False
        self.counts["clock set back, compiler met" if compiler else "clock set back, too late"] += 1
        return CLOCK


def calling(daemon: Daemon, project: Project) -> Built | Declined | None:
    """What ``load`` gets in this process, which loads nothing; None for what does not compile."""
    os.environ.clear()
    os.environ.update({**daemon.environment, **project.environment})
    given = inspect.signature(warmcc.load).parameters
    arguments = {name: parameter.default for name, parameter in given.items() if name != "newer"}
    arguments |= {
        "name": project.tag, "sources": [str(project.root / "src/unit.cpp")],
        "is_python_module": False, "extra_cflags": project.flags,
        "extra_ldflags": project.link_flags,
    }  # fmt: skip
    try:
        return api.answered("load", arguments)[1]
    except LeftToStock:
        return Declined(0, "", True)
    except CompileError:
        return None


def _wait_for(program: str, about: str, seconds: float = 60.0) -> bool:
    """Wait until a program runs with this in its arguments."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    command = Path(entry.path, "cmdline").read_bytes()
                    if program.encode() in command.split(b"\0", 1)[0] and about.encode() in command:
                        return True
        time.sleep(0.005)
    return False


@contextlib.contextmanager
def system_folders() -> Iterator[None]:
    """Empty folders in place of the system's local ones, for this mount namespace alone."""
    for place in (LOCAL, LOCAL_LIBRARIES):
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(place)], check=True)
    yield


def another_processor(daemon: Daemon) -> dict[str, Any]:
    """How a build with ``-march=native`` is answered before and after the machine got another
    processor.
    """
    project = Project(daemon.folder / "project", random.Random(0), "native")
    told: dict[str, Any] = {}

    def outcome(context: zmq.Context[zmq.Socket[bytes]], *flags: str) -> str:
        connection = Connection(daemon, context)
        asked = load_request(
            [project.root / "src/unit.cpp"], name="native", module_name="native",
            is_python_module=False, extra_cflags=[*flags, *project.flags],
            extra_ldflags=project.link_flags, environment=project.environment,
        )  # fmt: skip
        answer = connection.build(asked)
        connection.close()
        assert isinstance(answer, Built), answer
        return str(answer.outcome)

    with zmq.Context() as context:
        daemon.start()
        told["before"] = [outcome(context, "-march=native"), outcome(context, "-march=native")]
        outcome(context)
        daemon.stop()
        other = daemon.folder / "cpuinfo"
        other.write_text(
            re.sub(
                r"^(flags|Features)(\s*): ",
                r"\1\2: warp ",
                Path("/proc/cpuinfo").read_text(),
                flags=re.M,
            )
        )
        subprocess.run(["mount", "--bind", str(other), "/proc/cpuinfo"], check=True)
        daemon.start()
        told["another"] = outcome(context, "-march=native")
        told["without the flag"] = outcome(context)
        daemon.stop()
    return told


@contextlib.contextmanager
def fuzzing(daemon: Daemon, seed: int) -> Iterator[Fuzzer]:
    """A fuzzer with its daemon, whose clock it may set."""
    clock = Clock(daemon.folder)
    daemon.environment |= clock.environment
    with system_folders(), zmq.Context() as context:
        connection = Connection(daemon.start(), context)
        try:
            yield Fuzzer(daemon, connection, clock, seed)
        finally:
            connection.close()
            clock.close()
        daemon.stop()


def sound(daemon: Daemon) -> None:
    """Raises AssertionError when the store holds what is damaged."""
    report = daemon.ask(Cache(1, "verify"), 60.0).data
    assert report["damaged"] == 0, report


def fuzz(daemon: Daemon, mutations: int, seed: int) -> dict[str, Any]:
    """Random changes."""
    started = time.monotonic()
    with fuzzing(daemon, seed) as fuzzer:
        fuzzer.run(mutations)
        sound(daemon)
    told = {
        "seed": seed,
        "mutations": mutations,
        "seconds": round(time.monotonic() - started),
        **fuzzer.counts,
    }
    return {**told, "by mutation": dict(fuzzer.by_mutation)}


def play(daemon: Daemon) -> None:
    """Play each scenario of which standard input has the name, and print what came of it: counts,
    or what ``failed``.
    """
    with fuzzing(daemon, 0) as fuzzer:
        for name in map(str.strip, sys.stdin):
            fuzzer.counts.clear()
            try:
                fuzzer.scenario(name)
                sound(daemon)
                told: dict[str, Any] = dict(fuzzer.counts)
            except Exception:
                told = {"failed": traceback.format_exc()}
            print(json.dumps(told), flush=True)


def main() -> None:
    """``processor``, ``scenarios`` (names on standard input) or ``random MUTATIONS SEED``: prints
    what came of it as JSON.
    """
    what, *rest = sys.argv[1:]
    daemon = Daemon(pch=False)
    try:
        if what == "scenarios":
            play(daemon)
        elif what == "processor":
            print(json.dumps(another_processor(daemon)))
        else:
            print(json.dumps(fuzz(daemon, int(rest[0]), int(rest[1]))))
    finally:
        daemon.discard()


if __name__ == "__main__":
    main()
