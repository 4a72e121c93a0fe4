"""One connection to the daemon: connect, greet, ask, and give up in time.

A connection can be made to a daemon that is stopped or busy. A session therefore greets before
anything else. A lost connection is a lost daemon (the kernel closes it when the process dies), and
what was asked on it is not coming.

A session belongs to one thread of one process. ``current`` keeps one for each.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from warmcc import paths, protocol
from warmcc.client.connection.timeouts import GREETING_SECONDS, silence_limit
from warmcc.client.connection.wire import Connection
from warmcc.errors import (
    DaemonBusy,
    DaemonError,
    DaemonTimeout,
    DaemonUnavailable,
    VersionMismatch,
    WarmccError,
)
from warmcc.protocol import (
    Build,
    Built,
    Busy,
    Cancel,
    Declined,
    Failed,
    Output,
    Progress,
    Refused,
    Report,
    Watch,
    Watching,
    Welcome,
)
from warmcc.request import KernelRequest, Request
from warmcc.version import __version__

if TYPE_CHECKING:
    from warmcc.client.connection.remembering import Memory

_NOBODY = "the warmcc daemon is not running; start it with `warmcc start`"

# What is answered, with the same ``id``.
Asked = Build | protocol.Kernel | protocol.Status | protocol.Cache | protocol.Stop
OnProgress = Callable[[Progress], None]
OnOutput = Callable[[str], None]


def check_folder() -> None:
    """The socket's folder must be this user's alone.
    Raises DaemonUnavailable when there is none, else DaemonError."""
    folder = paths.runtime_dir()
    try:
        found = folder.lstat()
    except (FileNotFoundError, NotADirectoryError):
        raise DaemonUnavailable(_NOBODY) from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise DaemonError(
            f"{folder} is not private to you, so a daemon in it cannot be trusted; remove it, run "
            "chmod 700 on it, or set WARMCC_RUNTIME_DIR"
        )


class Session:
    """A greeted connection. Not to be shared between threads or across a fork.

    Raises DaemonError (unavailable, silent, busy, of another version), and ConfigError for
    WARMCC_TIMEOUT.
    """

    def __init__(self, *, autostart: bool, timeout: float | None = None) -> None:
        self._connection: Connection | None = None
        self._silence = silence_limit() if timeout is None else timeout
        self._number = 0
        self._watched = False  # whether the daemon was asked to be remembered
        self._mounts: int | None = None
        self.memory: Memory | None = None
        try:
            self._open()
        except DaemonUnavailable:
            if not autostart:
                raise
            from warmcc.client.connection import spawn

            spawn.until(self._opens)

    @property
    def welcome(self) -> Welcome:
        """What the daemon said of itself."""
        return self._welcome

    def usable(self) -> bool:
        """Whether this process may still ask on this connection."""
        return self._connection is not None and self._connection.usable()

    # ------------------------------------------------------------------ connecting

    def _open(self) -> None:
        check_folder()
        path = paths.socket_path()
        if not path.exists():
            raise DaemonUnavailable(_NOBODY)
        seconds = min(GREETING_SECONDS, self._silence)
        try:
            self._connection = Connection(str(path), seconds, self._silence)
            self._send(protocol.Hello([protocol.PROTOCOL], __version__, os.getpid()))
            self._welcome = self._greeted(self._receive(seconds))
        except DaemonUnavailable:
            self.close()
            raise DaemonUnavailable(_NOBODY) from None  # the socket is a dead daemon's
        except DaemonTimeout:
            self.close()
            raise DaemonTimeout(f"the daemon did not answer `hello` within {seconds:g} s") from None
        except BaseException:
            self.close()
            raise

    @staticmethod
    def _greeted(answer: protocol.DaemonMessage) -> Welcome:
        if isinstance(answer, Welcome) and answer.protocol == protocol.PROTOCOL:
            return answer
        if isinstance(answer, Refused) and protocol.PROTOCOL in answer.protocols:
            raise DaemonBusy(f"the daemon accepts no more clients: {answer.reason}")
        if isinstance(answer, (Welcome, Refused)):
            spoken = answer.protocols if isinstance(answer, Refused) else [answer.protocol]
            theirs = ", ".join(map(str, spoken))
            raise VersionMismatch(
                f"this is warmcc {__version__} (protocol {protocol.PROTOCOL}), the daemon that "
                "runs is warmcc "
                f"{answer.version} (protocol {theirs}).\nRestart it with: warmcc stop; warmcc start"
            )
        raise DaemonError(f"unexpected reply to `hello`: {type(answer).__name__}")

    def _opens(self) -> bool:
        try:
            self._open()
        except (DaemonUnavailable, DaemonTimeout):
            return False
        return True

    def close(self) -> None:
        """Give the connection up; the daemon cancels what only this session waited for."""
        memory, connection, mounts = self.memory, self._connection, self._mounts
        self.memory = self._connection = self._mounts = None
        if memory is not None:
            memory.close()
        if connection is not None:
            connection.close()
        if mounts is not None:
            os.close(mounts)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # A thread that ends takes its session with it.
        if getattr(self, "_connection", None) is not None:
            self.close()

    # ------------------------------------------------------------------ messages

    def _send(self, message: protocol.ClientMessage) -> None:
        if self._connection is None:
            raise DaemonUnavailable("this session was closed")
        self._connection.send([protocol.MAGIC, protocol.encode(message)])

    def _receive(self, seconds: float, interrupt: int | None = None) -> protocol.DaemonMessage:
        """The next message. Raises DaemonTimeout, DaemonUnavailable, DaemonError, Interrupted."""
        if self._connection is None:
            raise DaemonUnavailable("this session was closed")
        try:
            frames = self._connection.receive(seconds, interrupt)
        except DaemonTimeout:
            raise DaemonTimeout(f"no message from the daemon for {seconds:g} s") from None
        if len(frames) != 2 or frames[0] != protocol.MAGIC:
            raise DaemonError("the daemon sent an invalid message")
        try:
            return protocol.decode_daemon_message(frames[1])
        except protocol.Undecodable as error:
            raise DaemonError(f"the daemon sent an invalid message: {error}") from error

    def _converse(
        self, message: Asked, on_progress: OnProgress | None, on_output: OnOutput | None = None,
        meanwhile: Callable[[], None] | None = None, interrupt: int | None = None,
    ) -> protocol.DaemonMessage:  # fmt: skip
        """Send, then receive until the answer comes.
        Whatever interrupts that cancels the request."""
        try:
            self._send(message)
            if meanwhile is not None:
                meanwhile()
            while True:
                answer = self._receive(self._silence, interrupt)
                if isinstance(answer, Refused):
                    raise DaemonUnavailable(f"the daemon refused a message: {answer.reason}")
                if isinstance(answer, Watching):
                    from warmcc.client.connection import remembering

                    self.memory = remembering.memory(answer, self._connection, self._mounts)
                    continue
                if getattr(answer, "id", None) != message.id:
                    continue  # it belongs to something that was cancelled
                if isinstance(answer, Progress):
                    if on_progress is not None:
                        on_progress(answer)
                elif isinstance(answer, Output):
                    if on_output is not None:
                        on_output(answer.text)
                else:
                    return answer
        except BaseException:
            with contextlib.suppress(DaemonError):
                self._send(Cancel(message.id))
            raise

    def build(
        self, request: Request | KernelRequest, *, on_progress: OnProgress | None = None,
        on_output: OnOutput | None = None, meanwhile: Callable[[], None] | None = None,
        interrupt: int | None = None, publish: bool = False, alike: Sequence[str] = (),
    ) -> Built | Failed | Declined | Busy:  # fmt: skip
        """Have a request built. Blocks for as long as the daemon shows signs of life.

        ``meanwhile`` is called when the request is on its way, to do something useful in the time
        that it takes. The build is cancelled, and Interrupted raised, when the file descriptor
        ``interrupt`` has something to read. ``publish`` and ``alike``: see ``protocol.Build``.
        """
        message: Asked
        if isinstance(request, KernelRequest):
            self._number += 1
            message = protocol.Kernel(self._number, request)
        else:
            self._watch()
            self._number += 1
            message = Build(self._number, request, publish, list(alike))
        answer = self._converse(message, on_progress, on_output, meanwhile, interrupt)
        if isinstance(answer, (Built, Failed, Declined, Busy)):
            return answer
        raise DaemonError(f"unexpected reply to `build`: {type(answer).__name__}")

    def _watch(self) -> None:
        """Ask, once, for what it takes to remember answers; it comes before the next one. Those of
        kernels are kept by their objects, whose first call need not import how."""
        if not self._watched and "watch" in self.welcome.capabilities:
            from warmcc.client.connection import remembering

            self._watched = True
            self._mounts = remembering.mounts()
            self._number += 1
            self._send(Watch(self._number))

    def ask(
        self,
        make: Callable[[int], Asked],
        *,
        on_progress: OnProgress | None = None,
    ) -> Report:
        """Send what ``make(id)`` gives (Status, Cache, Stop) and return the report.
        Raises WarmccError if it failed."""
        self._number += 1
        answer = self._converse(make(self._number), on_progress)
        if isinstance(answer, Report):
            return answer
        if isinstance(answer, Failed):
            raise WarmccError(answer.message)
        raise DaemonError(f"unexpected reply: {type(answer).__name__}")

    def tell(self, message: protocol.Fallback | protocol.Stock) -> None:
        """Send something that is not answered. Raises DaemonUnavailable."""
        self._send(message)


# ---------------------------------------------------------------------- one session for each thread

_local = threading.local()


def _forked() -> None:
    """A child has none of its parent's sessions."""
    global _local
    _local = threading.local()


os.register_at_fork(after_in_child=_forked)


def current(*, autostart: bool) -> Session:
    """The session of this thread.
    It is a new one when the last was lost, or when the variables that place it have changed."""
    session: Session | None = getattr(_local, "session", None)
    where = (paths.runtime_dir(), os.environ.get("WARMCC_TIMEOUT"))
    if session is not None and (not session.usable() or _local.where != where):
        forget()
        session = None
    if session is None:
        session = Session(autostart=autostart)
        _local.session, _local.where = session, where
    return session


def memory() -> Memory | None:
    """What the session of this thread remembers."""
    session: Session | None = getattr(_local, "session", None)
    return None if session is None else session.memory


@contextlib.contextmanager
def stock_builds() -> Iterator[None]:
    """For the time of the block, have the daemon of this thread's session, if there is one, leave
    the processors to this process."""
    session: Session | None = getattr(_local, "session", None)
    if session is None or not session.usable() or "stock" not in session.welcome.capabilities:
        yield
        return
    with contextlib.suppress(DaemonError):
        session.tell(protocol.Stock(builds=True))
    try:
        yield
    finally:
        with contextlib.suppress(DaemonError):
            session.tell(protocol.Stock(builds=False))


def forget() -> None:
    """Close the session of this thread."""
    session: Session | None = getattr(_local, "session", None)
    _local.session = None
    if session is not None:
        session.close()


atexit.register(forget)
