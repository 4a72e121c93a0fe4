"""What ``test_forks.py`` runs in a PID namespace: a fork server whose system calls fail, beside a
process of the same user that has nothing to do with it. Prints what happened as JSON. ``python -m
tests.support.fault.forking SCENARIO FOLDER``.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import mmap
import os
import resource
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

from warmcc.daemon.cuda.warm.fork_servers import CannotFork, ForkServer, ServerDied, ServerLibrary
from warmcc.daemon.system.runner import Runner

USER = 54321  # has no process but ours
FUNCTIONS = {
    "fork": ("EAGAIN", "ENOMEM"),
    "accept4": ("EMFILE", "ENFILE", "ENOMEM", "EINTR", "ECONNABORTED"), "poll": ("EINTR", "ENOMEM"),
    "recv": ("EINTR", "ENOMEM"), "send": ("EPIPE", "ENOBUFS"), "wait4": ("EINTR", "ECHILD"),
    "pidfd_open": ("EMFILE", "ENOSYS"), "chdir": ("EACCES",), "dup2": ("EBUSY",),
    "getrlimit": ("EPERM",), "setrlimit": ("EPERM",), "prctl": ("EPERM",),
}  # fmt: skip
PROGRAM = r"""
#include <stdio.h>
int main(void) {
  int number = 0;
  FILE* unit = fopen("unit", "r");
  if (unit == NULL || fscanf(unit, "%d", &number) != 1) return 3;
  fprintf(stderr, "read %d\n", number);
  return 0;
}
"""


class Scenario:
    """A fork server of a small program, a preloaded library that makes calls fail, and a
    bystander.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runner = Runner()
        self.number = 0
        control = folder / "control"
        control.write_bytes(bytes(32))
        with open(control, "r+b") as file:
            self._control = mmap.mmap(file.fileno(), 32)
        for source, words in (
            ("program.c", ["-o", "program"]),
            ("fail.c", ["-shared", "-fPIC", "-o", "fail.so"]),
        ):
            subprocess.run(["gcc", "-O1", source, *words, "-ldl"], cwd=folder, check=True)
        self.server = ForkServer("program", self.runner, folder)

    async def start(self, *front: str) -> None:
        environment = {
            "PATH": os.environ["PATH"],
            "FAIL_CONTROL": str(self.folder / "control"),
            "WARMCC_CPU": "60",
        }
        library = await ServerLibrary(self.folder / "library", self.runner).path("gcc", environment)
        library.parent.chmod(0o755)
        both = Path(f"{self.folder}/fail.so:{library}")
        await self.server.start(
            [*front, str(self.folder / "program")], environment, both, stop="unit"
        )

    def arm(self, function: str, error: str, call: int) -> None:
        self._control[:] = struct.pack(
            "llll", [*FUNCTIONS].index(function) + 1, getattr(errno, error), call, 0
        )

    def calls(self) -> int:
        return int(struct.unpack("llll", self._control[:])[3])

    def disarm(self) -> bool:
        """Whether the call has failed."""
        left = struct.unpack("llll", self._control[:])[2]
        self._control[:] = bytes(32)
        return bool(left <= 0)

    async def run(self, *, ahead: bool = False) -> str:
        """Serve one unit, and say how that went."""
        self.number += 1
        place = self.folder / str(self.number)
        place.mkdir()
        place.chmod(0o777)
        (place / "unit").write_text(str(self.number))
        try:
            if ahead:
                await self.server.fork_ahead()
            served = await self.server.run(place, 30.0)
        except CannotFork as error:
            return f"cannot fork: {errno.errorcode[error.errno]}"
        except ServerDied:
            return "hung up" if self.server.alive else "died"
        if served.code == 0:
            assert served.output == f"read {self.number}\n", served
        return f"status {served.code}"


async def injected(scenario: Scenario) -> dict[str, Any]:
    """Each call of each function fails in turn, with and without a fork ahead of need."""
    outcomes: dict[str, list[str]] = {}
    after = set()
    await scenario.start()
    for function, errors in FUNCTIONS.items():
        for error in errors:
            for ahead in (False, True):
                for call in range(1, 20):
                    scenario.arm(function, error, call)
                    outcome = await scenario.run(ahead=ahead)
                    if not scenario.disarm():
                        break
                    outcomes.setdefault(f"{function} {error}", []).append(outcome)
                    after.add(await scenario.run())
    return {"outcomes": outcomes, "after": sorted(after)}


async def limited(scenario: Scenario) -> dict[str, Any]:
    """The user may have no more processes: not the one that waits for a child, then not the child,
    then both.
    """
    others = [subprocess.Popen(["sleep", "1000"], user=USER) for _ in range(2)]
    as_user = [f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
    await scenario.start(
        "prlimit", "--nproc=4", "setpriv", *as_user
    )  # the bystander, the others and the server
    found = {"none": await scenario.run()}
    for name, other in zip(("middleman", "both"), others, strict=True):
        other.kill()
        other.wait()
        found[name] = await scenario.run()
    return found


async def crowded(scenario: Scenario) -> dict[str, Any]:
    """The server has no descriptor left for a connection; it asks again, and not without end."""
    await scenario.start()
    (pid,) = [int(p) for p in os.listdir("/proc") if p.isdigit() and _name(p) == "program"]
    free = next(number for number in range(1000) if not os.path.lexists(f"/proc/{pid}/fd/{number}"))
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (free, hard))
    scenario.arm("accept4", "EMFILE", 1 << 30)
    waiting = asyncio.create_task(scenario.run())
    while scenario.calls() < 3:
        await asyncio.sleep(0.01)
    await asyncio.sleep(1)
    asked = scenario.calls()
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
    return {"asked": asked, "outcome": await waiting}


def _name(pid: str) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def main() -> None:
    name, folder = sys.argv[1:]
    os.environ["WARMCC_RUNTIME_DIR"] = folder
    (Path(folder) / "program.c").write_text(PROGRAM)
    (Path(folder) / "fail.c").write_text(Path(__file__).with_name("fail.c").read_text())
    scenario = Scenario(Path(folder))
    user = USER if name == "limited" else None
    bystander = subprocess.Popen(["sleep", "1000"], user=user)

    async def all_of_it() -> Any:
        found = await {"injected": injected, "limited": limited, "crowded": crowded}[name](scenario)
        await scenario.server.close()
        return found

    with contextlib.closing(scenario.runner):
        found = asyncio.run(all_of_it())
    print(
        json.dumps(
            {
                **found,
                "bystander": "alive"
                if bystander.poll() is None
                else f"ended {bystander.returncode}",
            }
        )
    )
    bystander.kill()


if __name__ == "__main__":
    main()
