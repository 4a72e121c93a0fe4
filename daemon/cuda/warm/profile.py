"""A profile: the warm state of one set of flags for nvcc. Its life is in ``profiles.py``."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from warmcc import status
from warmcc.daemon.cuda import dryrun
from warmcc.daemon.cuda.warm import host_pch
from warmcc.daemon.cuda.warm.level import Level
from warmcc.daemon.plan import requested
from warmcc.daemon.system.background import Haste
from warmcc.daemon.toolchain import Toolchain
from warmcc.daemon.toolchain.cuda import Cuda
from warmcc.request import Request

Apart = Callable[[], AbstractAsyncContextManager[None]]
_LOOK_SECONDS = 0.02
# What a unit loses that has to do without it, as urgency: three times what a C++ unit loses without
# its precompiled header (35 and 12 s on 16 cores), for which such a unit asks three times.
_LOSS = 9


@dataclass(frozen=True)
class Refusal:
    """Why there is no warm level, since when."""

    reason: str
    at: float = field(default_factory=time.monotonic)


@dataclass(eq=False)
class Growth:
    """A warm level on its way: what makes it, and whether units have asked for it twice."""

    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    haste: Haste = field(default_factory=Haste)
    begun: bool = False

    @property
    def goes_on(self) -> bool:
        return not all(task.done() for task in self.tasks)


@dataclass(frozen=True)
class Need:
    """How much a unit needs a profile: in which context it ``waits`` for one, if it does; its own
    ``weight`` (``eligibility.weight``), and in ``units`` that of all units of its request.
    ``ahead``: no unit needs it yet."""

    waits: Apart | None
    weight: float = 1
    units: float = 1
    ahead: bool = False


@dataclass(eq=False)
class CudaProfile:
    """The warm state of one set of flags. ``headers`` are those of the host's prelude; ``torch``:
    whether these are torch's; ``extras`` those among them of the toolkit's libraries, with which
    units begin; ``left_out`` the flags of the unit for which it was wanted that it does not need
    (``unit_text/macros.py``); ``folders`` the caller's folders of headers; ``programs`` says what
    runs the ``plan``, with which variables that count."""

    key: str
    toolchain: Toolchain
    flags: list[str]
    torch: bool
    headers: tuple[str, ...]
    extras: tuple[str, ...]
    plan: dryrun.NvccPlan
    programs: str
    environment: dict[str, str]
    left_out: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    state: str = "building"
    begun: bool = False
    lean_lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # held while it gets that level
    host_lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # while its prelude is looked for
    reason: str = ""
    host: host_pch.HostPrelude | None = None
    ignored: list[str] = field(default_factory=list)  # folders that the host's prelude does without
    lean: Level | None = None
    warm: dict[tuple[str, ...], Level] = field(
        default_factory=dict
    )  # by the headers that units begin with
    refused: dict[tuple[str, ...], Refusal] = field(default_factory=dict)
    growing: dict[tuple[str, ...], Growth] = field(default_factory=dict)  # what makes or made them
    used: float = field(default_factory=time.monotonic)
    asked: int = 0  # times that it was wanted, and did not serve
    missed: int = 0  # times that a unit had to do without it
    without: float = 0  # the weight of these units
    served: int = 0  # times that one had not
    busy: int = 0  # units that are being compiled with it
    failed_at: float = 0.0

    def __post_init__(self) -> None:
        # whether a build waits for it, and what builds have lost without it
        self.haste = Haste(urgency=lambda: _LOSS * self.missed)

    @property
    def serves(self) -> bool:
        """Whether units may be compiled with it. The last step of theirs waits for the host's
        prelude, as long as that is being made."""
        if self.state == "building":
            return any(found.alive for found in self.levels)
        return self.state == "ready"

    async def host_text(self) -> host_pch.HostPrelude:
        """Its host's prelude, once that one's text is there. Raises RuntimeError."""
        while self.host is None and self.state == "building":
            await asyncio.sleep(_LOOK_SECONDS)
        if self.host is None:
            raise RuntimeError(self.reason or "the host's prelude could not be made")
        return self.host

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """While a unit is compiled with it."""
        self.busy += 1
        try:
            yield
        finally:
            self.busy -= 1

    @property
    def worth(self) -> int:
        """How often it was wanted."""
        return self.asked + self.served

    @property
    def memory(self) -> int:
        """Bytes that its servers hold, as they started, divided by the levels that have them."""
        return sum(found.memory for found in self.levels)

    @property
    def levels(self) -> list[Level]:
        return [*([] if self.lean is None else [self.lean]), *self.warm.values()]

    def report(self) -> status.CudaProfile:
        """What ``warmcc status`` shows of it."""
        return status.CudaProfile(
            self.key[:12],
            self.state,
            self.memory + sum(found.size for found in self.levels if found.is_ahead),
            self.reason,
            self.flags,
            self.torch,
            list(self.extras if self.torch else self.headers),
            [found.report() for found in self.levels],
            {" ".join(headers): refusal.reason for headers, refusal in self.refused.items()},
        )


def environment_of(request: Request, toolkit: Cuda) -> dict[str, str]:
    """What nvcc gives the programs that it runs."""
    found = requested.build_environment(request)
    return {**found, "PATH": toolkit.search_path(found)}
