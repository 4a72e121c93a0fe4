"""The daemon's status: the fields of ``warmcc status --json``.
All who show or count them share these types.

Every field has a default, so that a client reads the status of a daemon that lacks a newer one.
Times are seconds, sizes bytes; ``dict[str, int]`` counts by name or by reason.
"""

from __future__ import annotations

from typing import Any

import msgspec

Counts = dict[str, int]


class Requests(msgspec.Struct):
    """What became of requests.
    ``refused``, ``declined`` and ``fallbacks`` are reasons why stock torch had to build."""

    total: int = 0
    hits: int = 0
    misses: int = 0
    joined: int = 0
    failed: int = 0
    cancelled: int = 0
    busy: int = 0
    refused: Counts = {}
    declined: Counts = {}
    fallbacks: Counts = {}
    malformed: int = 0
    strangers: int = 0
    turned_away: int = 0


class Cache(msgspec.Struct):
    """``held_by`` is who writes to the configured folder, where this daemon has another."""

    path: str = ""
    held_by: str = ""


class Kept(msgspec.Struct):
    """Files of one kind."""

    count: int = 0
    bytes: int = 0


class Store(msgspec.Struct):
    """``quarantined`` counts the damaged files that were met since the start."""

    path: str = ""
    limit: int = 0
    bytes: int = 0
    quarantined: int = 0
    results: Kept = msgspec.field(default_factory=Kept)
    objects: Kept = msgspec.field(default_factory=Kept)
    artifacts: Kept = msgspec.field(default_factory=Kept)
    headers: Kept = msgspec.field(default_factory=Kept)
    quarantine: Kept = msgspec.field(default_factory=Kept)


class SharedStore(msgspec.Struct):
    """``refused`` says why it is not used."""

    path: str = ""
    found: int = 0
    offered: int = 0
    refused: str | None = None


class Remote(msgspec.Struct):
    """``refused`` says why it is not used; for ``rests`` seconds it is left alone, for ``reason``.
    ``found`` and ``missed`` are lookups; ``skipped`` those that were not made, ``not_found`` those
    that failed, by reason. ``given`` results are there; ``waiting`` will be given; ``dropped`` and
    ``not_given`` were not; ``not_shared`` depend on this machine."""

    url: str = ""
    refused: str = ""
    writes: bool = False
    rests: float = 0.0
    reason: str = ""
    found: int = 0
    missed: int = 0
    skipped: int = 0
    given: int = 0
    waiting: int = 0
    dropped: int = 0
    not_shared: int = 0
    not_found: Counts = {}
    not_given: Counts = {}


class Pch(msgspec.Struct):
    """``unfinished``: what a compiler's precompiled headers lack, and why."""

    used: int = 0
    fallbacks: Counts = {}
    unfinished: dict[str, str] = {}


class Ways(msgspec.Struct):
    """Builds by way; why functions were bound by pybind11, and why a prelude was whole."""

    used: Counts = {}
    fallbacks: Counts = {}
    pybind11: Counts = {}
    whole_prelude: Counts = {}


class Level(msgspec.Struct):
    """One level of a CUDA profile. ``ahead``: forks wait for the next unit."""

    name: str = ""
    headers: list[str] = []
    memory: int = 0
    ahead: bool = False
    served: int = 0


class CudaProfile(msgspec.Struct):
    """``no_warm_level``: why there is none, by the headers with which units begin."""

    id: str = ""
    state: str = ""
    memory: int = 0
    reason: str = ""
    flags: list[str] = []
    torch: bool = True
    headers: list[str] = []
    levels: list[Level] = []
    no_warm_level: dict[str, str] = {}


class Cuda(msgspec.Struct):
    """CUDA units by level; why not faster; steps found; why profiles were closed."""

    used: Counts = {}
    not_faster: Counts = {}
    steps_found: Counts = {}
    dropped: Counts = {}
    profiles: list[CudaProfile] = []


class Linker(msgspec.Struct):
    """How often a fast linker failed, by its option."""

    fallbacks: Counts = {}


class Ccache(msgspec.Struct):
    """How often ccache had an object."""

    hits: int = 0


class HugePages(msgspec.Struct):
    """Whether compilers ask for huge pages; if not, why."""

    used: bool = False
    reason: str = ""


class Accelerators(msgspec.Struct):
    """How often each was of use, and why not.
    ``withdrawn``: what lost trust, and for which difference."""

    pch: Pch = msgspec.field(default_factory=Pch)
    ways: Ways = msgspec.field(default_factory=Ways)
    cuda: Cuda = msgspec.field(default_factory=Cuda)
    samples: Counts = {}
    withdrawn: dict[str, str] = {}
    linker: Linker = msgspec.field(default_factory=Linker)
    ccache: Ccache = msgspec.field(default_factory=Ccache)
    huge_pages: HugePages = msgspec.field(default_factory=HugePages)


class Target(msgspec.Struct):
    """For whom the daemon warms up.
    ``learned`` from a request, or the daemon's own environment; ``why_not``: why it has served
    no build."""

    language: str = ""
    python: str = ""
    compiler: str = ""
    variables: dict[str, str] = {}
    learned: bool = False
    state: str = ""
    served: int = 0
    why_not: str = ""


class Profile(msgspec.Struct):
    """One precompiled header. ``shared``: it is of the machine's shared store."""

    id: str = ""
    state: str = ""
    title: str = ""
    headers: list[str] = []
    flags: list[str] = []
    finished: bool = False
    size: int = 0
    uses: int = 0
    used: float = 0.0
    reason: str = ""
    shared: bool = False


class Flight(msgspec.Struct):
    """One build under way; ``waiting`` counts its callers."""

    name: str = ""
    phase: str = ""
    seconds: float = 0.0
    waiting: int = 0


class Permits(msgspec.Struct):
    """Steps that may run at a time, and those that do."""

    limit: int = 0
    in_use: int = 0


class Zygote(msgspec.Struct):
    """A process that has torch imported."""

    pid: int = 0
    torch: str = ""
    rss: int = 0
    jobs: int = 0


class RunZygote(msgspec.Struct):
    """A process of ``warmcc run``. ``jobs`` counts its programs, ``running`` those that run now."""

    pid: int = 0
    profile: str = ""
    python: str = ""
    rss: int = 0
    jobs: int = 0
    running: int = 0


class DaemonStatus(msgspec.Struct):
    """All of it. ``runs`` is no part of the daemon: the command adds it."""

    pid: int = 0
    version: str = ""
    protocol: int = 0
    uptime: float = 0.0
    python: str = ""
    socket: str = ""
    cache: Cache = msgspec.field(default_factory=Cache)
    store: Store = msgspec.field(default_factory=Store)
    shared_store: SharedStore | None = None
    remote: Remote | None = None
    requests: Requests = msgspec.field(default_factory=Requests)
    compiles: int = 0
    links: int = 0
    units_reused: int = 0
    elsewhere: Counts = {}
    """Objects ``used`` of the same source in another folder; and why others were not, how often."""
    unpublished: int = 0
    accelerators: Accelerators = msgspec.field(default_factory=Accelerators)
    prewarming: int = 0
    prewarming_idle: int = 0
    """Sets of flags that are not warm yet, and those whose turn comes when the daemon is idle."""
    prewarmed: list[Target] = []
    profiles: list[Profile] = []
    unmatched: Counts = {}
    flights: list[Flight] = []
    queue: int = 0
    permits: Permits = msgspec.field(default_factory=Permits)
    clients: int = 0
    zygotes: list[Zygote] = []
    runs: list[RunZygote] = []
    memory: int = 0
    config: dict[str, Any] = {}


def read(data: dict[str, Any]) -> DaemonStatus:
    """A status as it came over the wire. Raises msgspec.ValidationError for what is none."""
    return msgspec.convert(data, DaemonStatus)
