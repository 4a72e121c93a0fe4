"""One level of warm state: a prelude, and the front ends that have read it.

The lean level's prelude are the overlay's headers (``overlay.py``), small and enough for most
kernels; a warm level's are the real ones with which a unit begins. A level has a preprocessor and
``cudafe++`` for the host, and a preprocessor and ``cicc`` for each device architecture. All stop
behind the prelude; what a unit says itself is preprocessed and then compiled in forks of them.

A level behind torch/extension.h has front ends of its own for the host alone, and the lean level's
for the devices: device code rarely needs more, and the real headers take a gigabyte for each.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from warmcc import digest, status
from warmcc.daemon.cuda import dryrun
from warmcc.daemon.cuda.dryrun import NvccCommand, NvccPlan
from warmcc.daemon.cuda.warm.fork_servers import ForkServer, Served
from warmcc.daemon.system.background import Haste
from warmcc.daemon.system.runner import Runner

MAIN = "warmcc.cu"  # includes the prelude, and then the unit
UNIT = "user.cu"  # where the preprocessors stop
TEXT = "user.ii"  # where the front ends stop
PRELUDE = "prelude.ii"  # what they have read until then
BEGIN = "warmcc.begin"  # the file to which a unit's own first line belongs
_LIBRARIES = ("cublas_v2.h", "cusparse.h", "cusolverDn.h")
_OF_LIBRARIES = ("ATen/cuda/CUDAContext.h", "ATen/cuda/Exceptions.h")
BEGINNING = f'# 1 "{BEGIN}"\ntypedef int warmcc_begin;\n'


@dataclass(eq=False)
class Level:
    """The fork servers of a prelude.

    headers  are the prelude
    maker    all that it is made of, in a name (see ``store/trust.py``)
    front    folders that are searched before torch's
    head     what cudafe++ writes of the prelude alone
    memory   bytes that the servers held when they started
    lender   the level whose front ends for the devices it has, if they are not its own
    lacking  macros of torch's headers that it does not have as they are, once that is known
    unmentioned  macros of callers that nothing of what it has read mentions
    """

    name: str
    maker: str
    headers: tuple[str, ...]
    folder: Path
    front: list[str]
    preprocessor: ForkServer
    cudafe: ForkServer
    devices: dict[str, tuple[ForkServer, ForkServer]]
    head: str = ""
    memory: int = 0
    lender: Level | None = None
    lacking: frozenset[str] | None = None
    unmentioned: set[str] = field(default_factory=set)

    @property
    def servers(self) -> list[ForkServer]:
        """Its own."""
        pairs = self.devices.values() if self.lender is None else ()
        return [self.preprocessor, self.cudafe, *(server for pair in pairs for server in pair)]

    @property
    def devices_front(self) -> list[str]:
        """As ``front``, for the devices."""
        return self.front if self.lender is None else self.lender.front

    @property
    def front_ends(self) -> list[ForkServer]:
        return [self.cudafe, *(compiler for _, compiler in self.devices.values())]

    @property
    def served(self) -> int:
        """Units, as far as they came."""
        return self.preprocessor.served

    @property
    def is_ahead(self) -> bool:
        """Whether forks wait for the next unit."""
        return any(server.is_ahead for server in self.front_ends)

    @property
    def alive(self) -> bool:
        """With those that it was lent."""
        lent = self.lender is None or self.lender.alive
        return lent and all(server.alive for server in self.servers)

    def report(self) -> status.Level:
        """What ``warmcc status`` shows of it."""
        return status.Level(self.name, list(self.headers), self.memory, self.is_ahead, self.served)

    async def close(self) -> None:
        await asyncio.gather(*(server.close() for server in self.servers))


def _held(level: Level) -> int:
    """Bytes that the servers hold. Looks at every process of the machine."""
    sockets = {server.address for server in level.servers}
    total = 0
    for process in psutil.process_iter(["environ"]):
        with contextlib.suppress(psutil.Error):
            if (process.info["environ"] or {}).get("WARMCC_SOCKET") in sockets:
                total += process.memory_full_info().pss
    return total


async def start(
    name: str, maker: str, folder: Path, plan: NvccPlan, headers: tuple[str, ...],
    front: list[str], runner: Runner,
    library: Path, environment: dict[str, str], haste: Haste, *,
    lender: Level | None = None,
) -> Level:  # fmt: skip
    """Start the servers of a level in an empty folder. ``front`` are folders searched before
    torch's; without ``haste`` they give way to builds until they have started; those for the
    devices are those of a ``lender``, if there is one.

    Raises ServerDied, OSError.
    """
    level = Level(name, maker, headers, folder, front, *_servers(name, folder, plan, runner))
    if lender is not None:
        level.lender, level.devices = lender, lender.devices
    text = includes(headers)

    async def one(
        preprocess: NvccCommand, front_end: list[str], first: ForkServer, second: ForkServer
    ) -> None:
        first.folder.mkdir(parents=True)
        (first.folder / MAIN).write_text(f'{text}#include "{UNIT}"\n', encoding="utf-8")
        words = [
            *in_front(list(preprocess.options), front),
            "-MD",
            "-MF",
            "user.d",
            MAIN,
            "-o",
            TEXT,
        ]
        await first.start(words, environment, library, stop=UNIT, output=TEXT, haste=haste)
        second.folder.mkdir(parents=True)
        (second.folder / PRELUDE).write_bytes((first.folder / TEXT).read_bytes())
        second.prelude = digest.of_file(second.folder / PRELUDE)
        joined = f'#include "{PRELUDE}"\n#include "{TEXT}"\n'
        (second.folder / "main.ii").write_text(joined, encoding="utf-8")
        words = ["main.ii" if word == preprocess.output else word for word in front_end]
        # Behind the lean prelude cudafe++ spends half its time in lists of namespace std's types.
        huge = second is level.cudafe and bool(front)
        await second.start(words, environment, library, stop=TEXT, huge=huge, haste=haste)

    try:
        await asyncio.gather(
            one(plan.preprocess, plan.cudafe.words, level.preprocessor, level.cudafe),
            *(
                one(device.preprocess, device.cicc.words, *level.devices[device.architecture])
                for device in plan.devices
                if lender is None
            ),
        )
        await _read_head(level, plan)
        level.memory = await asyncio.to_thread(_held, level)
    except BaseException:
        await level.close()
        raise
    return level


def includes(headers: tuple[str, ...]) -> str:
    """Text that includes those of the headers that can be: not every toolkit has the libraries that
    some are about.
    """
    lines = []
    for header in headers:
        needed = [header, *(_LIBRARIES if header in _OF_LIBRARIES else [])]
        condition = " && ".join(f"__has_include(<{name}>)" for name in needed)
        lines.append(f"#if {condition}\n#include <{header}>\n#endif\n")
    return "".join(lines)


def _servers(
    name: str, folder: Path, plan: NvccPlan, runner: Runner
) -> tuple[ForkServer, ForkServer, dict[str, tuple[ForkServer, ForkServer]]]:
    def server(kind: str) -> ForkServer:
        return ForkServer(f"{name} {kind}", runner, folder / kind)

    devices = {
        device.architecture: (
            server(f"preprocessor-{device.architecture}"),
            server(f"cicc-{device.architecture}"),
        )
        for device in plan.devices
    }
    return server("preprocessor"), server("cudafe"), devices


async def _read_head(level: Level, plan: NvccPlan) -> None:
    """Have an empty unit compiled, to know what belongs to the prelude."""
    folder = level.folder / "empty"
    folder.mkdir()
    (folder / TEXT).write_text(BEGINNING, encoding="utf-8")
    (folder / dryrun.MODULE_ID).write_text(dryrun.NO_MODULE_ID, encoding="utf-8")
    served: Served = await level.cudafe.run(folder, 300.0)
    if served.code != 0:
        raise OSError(f"cudafe++ of the {level.name} prelude: {served.output[-2000:]}")
    written = (folder / plan.cudafe.text).read_text(encoding="utf-8", errors="surrogateescape")
    head, found, _ = written.partition(f'# 1 "{BEGIN}"\n')
    if not found:
        raise OSError("cudafe++ does not write where a unit begins")
    level.head = head


def files(text: str) -> frozenset[str]:
    """The files that preprocessed text comes from."""
    return frozenset(re.findall(r'^# \d+ "([^"]+)"', text, re.M))


def in_front(words: list[str], folders: list[str]) -> list[str]:
    """The words of a preprocessor that searches these folders before all that are given with
    -isystem.
    """
    at = next((index for index, word in enumerate(words) if word == "-isystem"), len(words))
    return [
        *words[:at],
        *(part for folder in folders for part in ("-isystem", folder)),
        *words[at:],
    ]


class OtherPrologue(Exception):
    """cudafe++ wrote something else in front of the prelude than for an empty unit."""


def of_users(written: str, level: Level, known: frozenset[str]) -> str:
    """The unit's own part of what cudafe++ wrote, without the lines of files that the host's
    prelude has (``known``) and of folders in front. Raises OtherPrologue.

    Of the prelude itself it writes the same declarations for every unit, with names more or less
    qualified. Of one that has read more than the host's, the unit's own part has the rest.
    """
    head, found, own = written.partition(f'# 1 "{BEGIN}"\n')
    prologue = _prologue(head)
    if not found or prologue != _prologue(level.head):
        raise OtherPrologue(prologue[-2000:])
    more = "" if level.lender is None else head[len(prologue) :]
    others = (BEGIN, MAIN)
    kept: list[str] = []
    keep = False
    for line in (more + own).split("\n"):
        if (match := _MARKER.match(line)) is not None and match[1] is not None:
            known_one = match[1] in others or match[1] in known
            keep = not known_one and not match[1].startswith(tuple(level.front))
        if keep:
            kept.append(line)
    return "\n".join(kept)


def _prologue(text: str) -> str:
    """What stands in front of the first line of a header."""
    return re.split(r'^# \d+ "/', text, maxsplit=1, flags=re.M)[0]


_MARKER = re.compile(r'# \d+(?: "([^"]+)")?')


def place_unit(folder: Path, prologue: str, include: str) -> None:
    """Write the unit for a preprocessor: ``include`` is how it finds the source."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / UNIT).write_text(f'{BEGINNING}{prologue}#include "{include}"\n', encoding="utf-8")
