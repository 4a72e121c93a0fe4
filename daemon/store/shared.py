"""A machine's shared store: its operator's daemon writes it, all others only read.

The operator owns the folder. That says something only where nobody else could have made it: not
below ``/tmp``, where everybody may, unless the owner is root, or the one whom the configuration
names (``shared_operator``). What others find in it is copied into their own store after the same
checks (digests, the closure), and only when nobody but root and the operator can have put it there.

What the operator builds stays the operator's own: into the folder goes what was built for everybody
(``warmcc seed``), and all of it only with ``shared_publish``.
"""

from __future__ import annotations

import logging
import os
import pwd
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from warmcc import digest
from warmcc.config import Config
from warmcc.daemon.closure.closure import Closure, Closures
from warmcc.daemon.store.claim import LOCK, take_lock
from warmcc.daemon.store.layout import Layout
from warmcc.daemon.store.manifest import Damaged, Result, decode, public
from warmcc.daemon.store.store import Store
from warmcc.daemon.store.trust import Trust

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

log = logging.getLogger(__name__)

_LIMIT = 1 << 30  # bytes of one file that is read from it


class SharedStore:
    """One folder.
    All methods block, and belong in a thread; ``refused`` says why it is not used."""

    def __init__(
        self, root: Path, own: Store, closures: Closures, trust: Trust, size_limit: int, *,
        operator: str = "", publish_all: bool = False,
    ) -> None:  # fmt: skip
        self._layout = Layout(root)
        self._own = own
        self._closures = closures
        self._trust = trust
        self._writer: Store | None = None
        self._publish_all = publish_all
        self.found = 0
        self.offered = 0
        self.refused: str | None = None
        try:
            self._owner = os.lstat(root).st_uid
            self.refused = self._distrust(root, operator)
            # An operator's second daemon, say on another machine, reads as the daemons of others
            # do.
            mine = self._owner == os.getuid() and self.refused is None
            if mine and (lock := take_lock(root / LOCK, f"process {os.getpid()}")) is not None:
                self._lock = lock
                self._writer = Store(root, size_limit, readable=True)
        except OSError as error:
            self.refused = f"{root}: {error.strerror}"
        if self.refused is not None:
            log.warning("the shared store is not used: %s", self.refused)

    @classmethod
    def of(cls, config: Config, own: Store, closures: Closures, trust: Trust) -> SharedStore | None:
        """What the users of this machine share, if the configuration names it."""
        if not config.shared_store:
            return None
        return cls(
            Path(config.shared_store), own, closures, trust, config.store_size,
            operator=config.shared_operator, publish_all=config.shared_publish,
        )  # fmt: skip

    @property
    def root(self) -> Path:
        return self._layout.root

    @property
    def operator(self) -> bool:
        """Whether it is this user's to fill."""
        return self._writer is not None

    def keep_headers(self, named: Callable[[], Iterable[str]]) -> None:
        """As ``Store.keep_headers``, for its operator."""
        if self._writer is not None:
            self._writer.keep_headers(named)

    def check(self, path: Path) -> None:
        """Raises Damaged for what is not the operator's alone, OSError."""
        _check(path, os.lstat(path), self._owner)

    def wants(self, asked: bool) -> bool:
        """Whether something is to be put there; ``asked``: it was made for everybody."""
        return self._writer is not None and (asked or self._publish_all)

    def _distrust(self, root: Path, operator: str) -> str | None:
        """Who else could have written in the folder, or have made it; None when nobody.
        Raises OSError."""
        known = {0, os.getuid()}
        if operator:
            try:
                named = int(operator) if operator.isdecimal() else pwd.getpwnam(operator).pw_uid
            except KeyError:
                return f"shared_operator is {operator!r}, but there is no such user"
            if self._owner != named:
                return (
                    f"{root} belongs to uid {self._owner}, and not to {operator} (shared_operator)"
                )
            known.add(named)
        path = str(root)
        while True:
            found = os.lstat(path)
            if not stat.S_ISDIR(found.st_mode):
                return f"{path} is not a folder"
            if found.st_uid not in (0, self._owner):
                return f"{path} belongs to uid {found.st_uid}"
            if found.st_mode & 0o022:
                sticky = found.st_mode & stat.S_ISVTX and found.st_uid == 0 and path != str(root)
                if not sticky:
                    return f"{path} can be written by others (mode {stat.S_IMODE(found.st_mode):o})"
                if self._owner not in known:
                    return (
                        f"anybody could have made {root} in {path}: set shared_operator to the "
                        "user that fills it "
                        f"(its owner is uid {self._owner}), or move it to where others cannot write"
                    )
            if path == "/":
                return None
            path = os.path.dirname(path)

    def find(self, key: str) -> tuple[Result, Path] | None:
        """A result of the shared store, now in one's own; None when there is none that holds."""
        if self.refused is not None or self._writer is not None:
            return None
        try:
            results = decode("artifact", key, self._read(self._layout.result_path("artifact", key)))
            for result in results:
                if all(maker in self._trust for maker in result.meta.get("makers", [])):
                    self.take_headers(result.closure)
                    if self._closures.holds(result.closure):
                        taken = self._take(key, result)
                        self.found += 1
                        return taken
        except FileNotFoundError:
            pass
        except (OSError, ValueError, Damaged) as error:
            log.warning("the shared store is damaged under %s: %s", key, error)
        return None

    def take_headers(self, closure: Closure) -> None:
        """Have the header sets of a closure in one's own store. Raises OSError, Damaged."""
        for name in closure.header_sets:
            if self._own.get_headers(name) is None:
                payload = self._read(self._layout.headers_path(name))
                if digest.of_bytes(payload) != name:
                    raise Damaged(f"header set {name}")
                self._own.put_headers(payload)

    def _take(self, key: str, result: Result) -> tuple[Result, Path]:
        data = self._read(self._layout.path_of(result))
        if digest.of_bytes(data) != result.file:
            raise Damaged(f"artifact {result.file}")
        tree = self._own.staging()
        try:
            copy = tree / "artifact"
            copy.write_bytes(data)
            return self._own.publish(
                "artifact", key, copy, result.name, result.closure, result.meta
            )
        finally:
            self._own.discard(tree)

    def _read(self, path: str) -> bytes:
        """The content of a file that its operator wrote. Raises OSError, Damaged."""
        with open(
            os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK), "rb"
        ) as file:
            found = os.fstat(file.fileno())
            _check(path, found, self._owner)
            if not stat.S_ISREG(found.st_mode):
                raise Damaged(f"{path} is not a regular file")
            if found.st_size > _LIMIT:
                raise Damaged(f"{path} is too large")
            return file.read()

    def offer(self, key: str, result: Result, path: Path, *, asked: bool) -> None:
        """Put a result into the shared store; does nothing unless run by its operator.
        Nor does it offer a result that no caller asked to share."""
        if (
            self._writer is None
            or not self.wants(asked)
            or self._writer.results("artifact", key)[:1] == [result]
        ):
            return
        try:
            self.give_headers(result.closure)
            known = self._writer.results("artifact", key)
            if not any(
                other.file == result.file and other.closure == result.closure for other in known
            ):
                self._writer.publish(
                    "artifact", key, path, result.name, result.closure, public(result.meta)
                )
                self.offered += 1
                self._writer.keep_to_limit()
        except OSError as error:
            log.warning("%s was not put into the shared store: %s", result.name, error)

    def give_headers(self, closure: Closure) -> None:
        """Put the header sets of a closure into the shared store, as its operator.
        Raises OSError."""
        assert self._writer is not None
        for name in closure.header_sets:
            if (payload := self._own.get_headers(name)) is not None:
                self._writer.put_headers(payload)


def _check(path: Path | str, found: os.stat_result, owner: int) -> None:
    plain = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)
    if not plain or found.st_uid != owner or found.st_mode & 0o022:
        raise Damaged(f"{path} is not the operator's alone")
