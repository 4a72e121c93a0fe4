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
import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from warmcc import digest, status
from warmcc.daemon.cuda import dryrun
from warmcc.daemon.cuda.dryrun import NvccCommand, NvccPlan
from warmcc.daemon.cuda.overlay import searching
from warmcc.daemon.cuda.warm.fork_servers import ForkServer
from warmcc.daemon.cuda.warm.pool import Pool
from warmcc.daemon.system.background import Haste
from warmcc.daemon.system.runner import Runner

MAIN = "warmcc.cu"  # includes the prelude, and then the unit
UNIT = "user.cu"  # where the preprocessors stop
TEXT = "user.ii"  # where the front ends stop
PRELUDE = "prelude.ii"  # what they have read until then
BEGIN = "warmcc.begin"  # the file to which a unit's own first line belongs
_LIBRARIES = ("cublas_v2.h", "cusparse.h", "cusolverDn.h")
_OF_LIBRARIES = ("ATen/cuda/CUDAContext.h", "ATen/cuda/Exceptions.h")
HOST = "host"  # whose preprocessor and cudafe++ they are
_OPTIMISES = re.compile(r"-O(?:[1-3sgz]|fast)?")
Pair = tuple[ForkServer, ForkServer]  # a preprocessor and a front end
_FIRST_HEADER = re.compile(r'^# \d+ "/', re.M)
_EMPTY_SECONDS = 300.0
BEGINNING = f'# 1 "{BEGIN}"\ntypedef int warmcc_begin;\n'


@dataclass(eq=False)
class Level:
    """The fork servers of a prelude.

    headers  are the prelude
    maker    all that it is made of, in a name (see ``store/trust.py``)
    folder   is its own
    front    folders that are searched before torch's
    pool     where its servers are from
    served   units, as far as they came
    lender   the level whose front ends for the devices it has, if they are not its own
    behind   what units' own headers say to a device's architecture ("" is the host): a file, and
             the macros that are others behind the level's prelude
    unmentioned  macros of callers that nothing of what it has read mentions
    prologues    what cudafe++ may write in front of the prelude, by how that was found out
    """

    name: str
    maker: str
    headers: tuple[str, ...]
    folder: Path
    front: list[str]
    preprocessor: ForkServer
    cudafe: ForkServer
    devices: dict[str, Pair]
    pool: Pool = field(default_factory=Pool)
    served: int = 0
    lender: Level | None = None
    behind: dict[tuple[str, tuple[str, ...]], tuple[Path, frozenset[str]]] = field(
        default_factory=dict
    )
    unmentioned: set[str] = field(default_factory=set)
    prologues: dict[int, str] = field(default_factory=dict)

    @property
    def servers(self) -> list[ForkServer]:
        """Those that it was not lent. Other levels may have them, too."""
        pairs = self.devices.values() if self.lender is None else ()
        return [self.preprocessor, self.cudafe, *(server for pair in pairs for server in pair)]

    @property
    def memory(self) -> int:
        """Bytes that its servers hold, divided by the levels that have them."""
        return sum(server.memory // max(1, server.users) for server in set(self.servers))

    @property
    def size(self) -> int:
        """Bytes that its servers hold."""
        return sum(server.memory for server in set(self.servers))

    @property
    def devices_front(self) -> list[str]:
        """As ``front``, for the devices."""
        return self.front if self.lender is None else self.lender.front

    @property
    def front_ends(self) -> list[ForkServer]:
        return [self.cudafe, *(compiler for _, compiler in self.devices.values())]

    @property
    def is_ahead(self) -> bool:
        """Whether forks wait for the next unit."""
        return all(server.is_ahead for server in self.front_ends)

    @property
    def alive(self) -> bool:
        """With those that it was lent."""
        lent = self.lender is None or self.lender.alive
        return lent and all(server.alive for server in self.servers)

    def report(self) -> status.Level:
        """What ``warmcc status`` shows of it."""
        return status.Level(self.name, list(self.headers), self.memory, self.is_ahead, self.served)

    async def close(self) -> None:
        await asyncio.gather(*(self.pool.give_back(server) for server in self.servers))
        await asyncio.to_thread(shutil.rmtree, self.folder, True)


@dataclass(frozen=True)
class Recipe:
    """What a level is made of, and with. ``headers`` are the prelude, and ``front`` the folders
    searched before torch's; ``programs`` says which programs run the ``plan``, with which
    variables that count; ``root`` is where folders of levels and servers are. The front ends for
    the devices are those of a ``lender``, if there is one."""

    name: str
    maker: str
    headers: tuple[str, ...]
    front: list[str]
    plan: NvccPlan
    programs: str
    environment: dict[str, str]
    library: Path
    runner: Runner
    root: Path
    pool: Pool
    lender: Level | None = None

    @property
    def steps(self) -> dict[str, tuple[NvccCommand, list[str]]]:
        """The preprocessor and the words of the front end, for the host and each device."""
        host = {HOST: (self.plan.preprocess, self.plan.cudafe.words)}
        if self.lender is not None:
            return host
        return host | {
            one.architecture: (one.preprocess, one.cicc.words) for one in self.plan.devices
        }

    def new(self) -> Path:
        return self.root / f"{self.name}-{secrets.token_hex(8)}"

    def known(self, *parts: Any) -> str:
        """The name of a server."""
        return digest.of_value([self.programs, self.headers, self.front, *parts])

    def hint(self, kind: str) -> str:
        """As much of the name of a front end as is known before its text is: that flags of the same
        kind for g++ make the same text of the headers is likely."""
        preprocess, words = self.steps[kind]
        said = [_OPTIMISES.sub("-O", word) for word in preprocess.options]
        return self.known(said, words)

    @property
    def missing(self) -> float:
        """The share of its front ends that no other level seems to have."""
        kinds = list(self.steps)
        return sum(not self.pool.is_expected(self.hint(kind)) for kind in kinds) / len(kinds)


async def start(recipe: Recipe, haste: Haste) -> Level:
    """Start the servers of a level that are not there; without ``haste`` they give way to builds
    until they have started. Raises ServerDied, OSError."""
    taken: list[ForkServer] = []
    tasks = {
        kind: asyncio.create_task(_pair(recipe, kind, haste, taken.append)) for kind in recipe.steps
    }
    folder = recipe.new()
    try:
        await asyncio.to_thread(folder.mkdir, parents=True)
        await asyncio.gather(*tasks.values())
        pairs = {kind: task.result() for kind, task in tasks.items()}
        lender, host = recipe.lender, pairs.pop(HOST)
        level = Level(
            recipe.name, recipe.maker, recipe.headers, folder, recipe.front, *host,
            pairs if lender is None else lender.devices, pool=recipe.pool, lender=lender,
        )  # fmt: skip
        await asyncio.to_thread(_measure, [server for server in taken if not server.memory])
    except BaseException:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        await asyncio.gather(*map(recipe.pool.give_back, taken))
        await asyncio.to_thread(shutil.rmtree, folder, True)
        raise
    return level


async def _pair(
    recipe: Recipe, kind: str, haste: Haste, took: Callable[[ForkServer], None]
) -> Pair:
    """A preprocessor behind a prelude, and a front end behind the text that it makes of it."""
    preprocess, front_end = recipe.steps[kind]
    options = searching.in_front(list(preprocess.options), recipe.front)
    reading = [*options, "-MD", "-MF", "user.d", MAIN, "-o", TEXT]
    files = {MAIN: f'{includes(recipe.headers)}#include "{UNIT}"\n'.encode()}
    first = await recipe.pool.take(
        recipe.known(reading), haste,
        partial(_started, recipe, f"preprocessor-{kind}", reading, files, stop=UNIT, output=TEXT),
        recipe.hint(kind) + MAIN,
    )  # fmt: skip
    took(first)
    text = await asyncio.to_thread((first.folder / TEXT).read_bytes)
    compiling = ["main.ii" if word == preprocess.output else word for word in front_end]
    files = {PRELUDE: text, "main.ii": including().encode()}
    # Behind the lean prelude cudafe++ spends half its time in lists of namespace std's types.
    huge = kind == HOST and bool(recipe.front)
    prelude = digest.of_bytes(text)
    second = await recipe.pool.take(
        recipe.known(compiling, prelude), haste,
        partial(_started, recipe, f"front-end-{kind}", compiling, files, stop=TEXT, huge=huge),
        recipe.hint(kind),
    )  # fmt: skip
    took(second)
    second.prelude = prelude
    return first, second


async def _started(
    recipe: Recipe, kind: str, words: list[str], files: dict[str, bytes], haste: Haste, *,
    stop: str, output: str | None = None, huge: bool = False,
) -> ForkServer:  # fmt: skip
    """A new server, in a folder with these files."""
    server = ForkServer(f"{recipe.name} {kind}", recipe.runner, recipe.new())
    try:
        server.folder.mkdir(parents=True)
        for name, content in files.items():
            (server.folder / name).write_bytes(content)
        await server.start(
            words, recipe.environment, recipe.library,
            stop=stop, output=output, huge=huge, haste=haste,
        )  # fmt: skip
    except BaseException:
        await recipe.pool.give_back(server)
        raise
    return server


def including() -> str:
    """What front ends read: the prelude, and then a unit."""
    return f'#include "{PRELUDE}"\n#include "{TEXT}"\n'


def _measure(servers: list[ForkServer]) -> None:
    """See how many bytes servers hold. Looks at every process of the machine."""
    by_address = {server.address: server for server in servers}
    for process in psutil.process_iter(["environ"]):
        with contextlib.suppress(psutil.Error):
            address = (process.info["environ"] or {}).get("WARMCC_SOCKET", "")
            if address in by_address:
                by_address[address].memory += process.memory_full_info().pss


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


async def empty_unit(level: Level, plan: NvccPlan) -> str:
    """The prologue of a unit that is empty behind the prelude, which shows that its cudafe++ can
    compile one. Raises ServerDied, OSError."""
    server = level.cudafe
    if not server.prologue:
        folder = level.folder / "empty"
        folder.mkdir(exist_ok=True)
        place_empty(folder)
        served = await server.run(folder, _EMPTY_SECONDS)
        if served.code != 0:
            raise OSError(f"cudafe++ of the {level.name} prelude: {served.output[-2000:]}")
        written = folder / plan.cudafe.text
        server.prologue = prologue_of(written.read_text(encoding="utf-8", errors="surrogateescape"))
    return server.prologue


def place_empty(folder: Path) -> None:
    """Write a unit with nothing in it for cudafe++."""
    (folder / TEXT).write_text(BEGINNING, encoding="utf-8")
    (folder / dryrun.MODULE_ID).write_text(dryrun.NO_MODULE_ID, encoding="utf-8")


def prologue_of(text: str) -> str:
    """What a preprocessor or cudafe++ wrote in front of the first line of a header."""
    return _FIRST_HEADER.split(text, maxsplit=1)[0]


def files(text: str) -> frozenset[str]:
    """The files that preprocessed text comes from."""
    return frozenset(re.findall(r'^# \d+ "([^"]+)"', text, re.M))


def place_unit(folder: Path, prologue: str, include: str) -> None:
    """Write the unit for a preprocessor: ``include`` is how it finds the source."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / UNIT).write_text(f'{BEGINNING}{prologue}#include "{include}"\n', encoding="utf-8")
