"""The messages between client and daemon, and what their versions promise.

A message is one msgpack map with a ``type`` field, in one ZeroMQ frame behind the frame ``warmcc``.
The client's socket is a DEALER, the daemon's a ROUTER. ``Hello``, ``Welcome`` and ``Refused`` never
lose or retype a field, in any version: they are how two sides of different versions find out.
docs/internals/protocol.md is the same, for people who write another client.

The annotations are objects, not texts: msgspec would evaluate each text in each process.
"""

import functools
import os
from typing import Any, Literal, Union

import msgspec

from warmcc.request import KernelRequest, Request

PROTOCOL = 1
MAGIC = b"warmcc"
HEARTBEAT_SECONDS = 1.0  # the daemon says at least this often that a request is alive
# Stands for the caller's build directory in ``Built.sources``
BUILD_DIRECTORY = "@BUILD_DIRECTORY@"
CAPABILITIES = (
    "load", "load_inline", "compile", "depends", "cache", "describe", "status", "watch", "remote",
    "kernel", "stock",
)  # fmt: skip

Severity = Literal["fatal error", "error", "warning", "note"]


class Diagnostic(msgspec.Struct, frozen=True):
    """One message of a compiler or linker. ``line`` and ``column`` count from 1; 0 means unknown.

    ``file`` is the user's own path, or ``cpp_sources[i]`` for the i-th inline source.
    """

    file: str
    line: int
    column: int
    severity: Severity
    message: str


class Hello(msgspec.Struct, tag="hello"):
    """First message of a client: which protocols it speaks."""

    protocols: list[int]
    version: str
    pid: int


class Welcome(msgspec.Struct, tag="welcome"):
    """The daemon speaks ``protocol``, and accepts messages of up to ``message_size`` bytes."""

    protocol: int
    version: str
    pid: int
    capabilities: list[str]
    message_size: int = 32 << 20


class Refused(msgspec.Struct, tag="refused"):
    """No protocol in common. ``protocols`` are the daemon's."""

    protocols: list[int]
    version: str
    reason: str


class Build(msgspec.Struct, tag="build"):
    """Build, or find, what ``request`` describes.
    Answered by any number of ``Progress`` and ``Output``, then by one ``Built``, ``Failed``,
    ``Declined`` or ``Busy`` with the same ``id``. ``publish``: every user of this machine may
    read the result, with its sources (it goes into the shared store, if the daemon fills one).
    ``alike``: paths of the C++ sources, its own among them, that the client has to compile with the
    same flags."""

    id: int
    request: Request
    publish: bool = False
    alike: list[str] = []


class Kernel(msgspec.Struct, tag="kernel"):
    """Compile, or find, one text without torch's headers (capability ``kernel``).
    Answered as ``Build``."""

    id: int
    request: KernelRequest


class Cancel(msgspec.Struct, tag="cancel"):
    """The client no longer waits for ``id``. Nothing answers."""

    id: int


class Watch(msgspec.Struct, tag="watch"):
    """Ask for what shows that answers still stand (capability ``watch``).
    Answered by ``Watching``, or not at all."""

    id: int


class Fallback(msgspec.Struct, tag="fallback"):
    """The client took the stock path by itself, for ``reason``: counted, not answered."""

    reason: str


class Stock(msgspec.Struct, tag="stock"):
    """Stock torch builds in the client's process, or no longer does (capability ``stock``): work
    that nobody waits for gives way meanwhile. Nothing answers."""

    builds: bool


class Status(msgspec.Struct, tag="status"):
    """Answered by ``Report``."""

    id: int


class Cache(msgspec.Struct, tag="cache"):
    """Look after the store. Answered by ``Report`` (or ``Failed``).

    ``ls``: entries, newest first. ``verify``: read and check every file. ``prune``: evict down to
    ``limit`` bytes (the configured limit when None). ``clear``: remove all that is not in use.
    ``describe`` (capability ``describe``): the artifacts whose extension's name is ``wanted``, or
    whose key begins so, with the requests that they were built for. ``remote`` (capability
    ``remote``): write, read and delete a few bytes in the remote store.
    """

    id: int
    action: Literal["ls", "verify", "prune", "clear", "describe", "remote"]
    limit: int | None = None
    wanted: str = ""


class Stop(msgspec.Struct, tag="stop"):
    """End the daemon.
    Running builds are cancelled; their clients hear of it. Answered by ``Report``."""

    id: int


class Progress(msgspec.Struct, tag="progress"):
    """A request is alive.
    ``phase`` is one of queued, planning, compiling; ``seconds`` since it arrived."""

    id: int
    phase: str
    seconds: float
    done: int = 0
    total: int = 0


class Output(msgspec.Struct, tag="output"):
    """What the build printed (commands and compiler output), as it comes.
    Sent only to requests with ``verbose``."""

    id: int
    text: str


class Built(msgspec.Struct, tag="built"):
    """The artifact is at ``path``, complete and checked.
    ``outcome``: where it came from; ``hit`` (the store), ``miss`` (built for this request) or
    ``joined`` (built for another client's equal request at the same time).

    ``sources`` names the files that stock would have left in the build directory, with their
    content (``BUILD_DIRECTORY`` in it stands for that directory); ``commands`` are the commands
    that built it; ``way`` says how in words, and ``steps`` the seconds of each step of a miss
    (``plan``, ``compile``, ``link``, ``publish``). ``files`` are the files of the user that it was
    made of, with their SHA-256. ``page`` and ``watched``: see ``Watching``. Of an object
    (``compile``) also ``output``, what the build printed, and ``depends``, all files that the
    compiler read. ``kept``: the store has the artifact under its request, so that ``files`` is
    known to be complete. Of a ``Kernel`` also ``names``: the lowered names of its expressions.
    """

    id: int
    path: str
    outcome: Literal["hit", "miss", "joined"]
    seconds: float
    commands: list[str] = []
    sources: dict[str, str] = {}
    warnings: list[str] = []
    way: str = ""
    steps: dict[str, float] = {}
    files: dict[str, str] = {}
    page: int = 0
    watched: list[str] = []
    output: str = ""
    depends: list[str] = []
    kept: bool = False
    names: dict[str, str] = {}


class Watching(msgspec.Struct, tag="watching"):
    """Comes with two file descriptors (SCM_RIGHTS): a page of memory, and an inotify instance.
    The latter must not be read.

    A ``Built`` whose ``page`` is not 0 stands for as long as nothing waits in the second, and the
    first 8 bytes of the first (a number of this machine) are twice ``page``, looked at in this
    order; the artifact and ``files`` without ``watched`` are what they were; and the list of mounts
    did not change. ``namespace`` says of which mounts.
    """

    id: int
    namespace: str


class Failed(msgspec.Struct, tag="failed"):
    """The build ended in an error in the caller's code.
    ``exception`` names the type that stock raises (``RuntimeError`` for compile errors, which
    carry ``diagnostics``; ``ValueError``, ``OSError`` …)."""

    id: int
    exception: str
    message: str
    diagnostics: list[Diagnostic] = []
    errno: int | None = None
    filename: str | None = None


class Declined(msgspec.Struct, tag="declined"):
    """The daemon leaves this one to stock torch, for ``reason``.
    ``expected`` is False when something is broken (the user should hear of it), True when the
    daemon by design does not build such a thing yet."""

    id: int
    reason: str
    expected: bool


class Busy(msgspec.Struct, tag="busy"):
    """Too many builds wait (``queue`` in the configuration): this one is not begun.
    Ask again in ``seconds``."""

    id: int
    seconds: float
    waiting: int


class Report(msgspec.Struct, tag="report"):
    """Answer to ``Status``, ``Cache`` and ``Stop``: a map of plain values."""

    id: int
    data: dict[str, Any]


# A Union, which msgspec reads at run time.
ClientMessage = Union[  # noqa: UP007
    Hello, Build, Kernel, Cancel, Watch, Fallback, Stock, Status, Cache, Stop
]  # fmt: skip
DaemonMessage = Union[  # noqa: UP007
    Welcome, Refused, Progress, Output, Built, Watching, Failed, Declined, Busy, Report
]

# What decoding raises: text that is not UTF-8 is a ValueError, nesting without end a
# RecursionError.
Undecodable = (msgspec.MsgspecError, ValueError, RecursionError)


def mount_namespace() -> str:
    """Which list of mounts this process sees; empty when that cannot be told."""
    try:
        found = os.stat("/proc/self/ns/mnt")
    except OSError:
        return ""
    return f"{found.st_dev}:{found.st_ino}"


encode = msgspec.msgpack.Encoder().encode


# Only one of the two is needed in a process, and to make one takes a tenth of its first hit.
@functools.cache
def _decoder(messages: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(messages)


def decode_client_message(data: bytes) -> ClientMessage:
    """Raises what ``Undecodable`` names."""
    message: ClientMessage = _decoder(ClientMessage).decode(data)
    return message


def decode_daemon_message(data: bytes) -> DaemonMessage:
    """Raises what ``Undecodable`` names."""
    message: DaemonMessage = _decoder(DaemonMessage).decode(data)
    return message
