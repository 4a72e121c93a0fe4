"""Take results from a place, and give them there. Blocking: it belongs in threads.

What is taken is checked as one's own results are (the closure, the digest), after the signature;
then it is in the store. What is given is complete in the place before it is offered.
"""

from __future__ import annotations

import os
import secrets
import time
import zlib
from pathlib import Path

import msgspec

from warmcc import digest, signing
from warmcc.daemon.closure.closure import Closure, Closures
from warmcc.daemon.plan import requested
from warmcc.daemon.remote import header_contents, offers, portable
from warmcc.daemon.remote.header_contents import HeaderContents
from warmcc.daemon.remote.offers import Offer
from warmcc.daemon.remote.places import Place, Trouble
from warmcc.daemon.store import REQUEST, Result, Store
from warmcc.daemon.store.trust import Trust
from warmcc.request import Request

_ROOT = "v1"
_LEVEL = 1  # of zlib: a network is slower than more of it
_THERE_SECONDS = 3600.0  # for so long, what was there is taken to be there still
_MOST_THERE = 10_000


class NotShared(Exception):
    """A result depends on more of this machine than its key can tell."""


class Exchange:
    """Between a place and a store. ``trusted`` are public keys, of which one must have signed what
    is taken (none: it need not be signed)."""

    def __init__(
        self, place: Place, store: Store, closures: Closures, contents: HeaderContents,
        trust: Trust, signer: signing.Signer | None, trusted: list[str],
    ) -> None:  # fmt: skip
        self._place = place
        self._store = store
        self._closures = closures
        self._contents = contents
        self._trust = trust
        self._signer = signer
        self._trusted = trusted
        self._there: dict[str, float] = {}  # names, and when they were seen (monotonic)

    # ------------------------------------------------------------------ taking

    def take(self, request: Request, key: str) -> tuple[Result, Path] | None:
        """A result for a request with this key, now in the store; None where there is none that
        holds here. Raises Trouble, NotShared, OSError."""
        sources = {path: digest.of_file(path) for path in request.sources if os.path.isfile(path)}
        remote_key = _key(request, key, sources)
        data = self._place.get(_name("results", remote_key), offers.LIMIT)
        damage: Trouble | None = None
        for offer in offers.unpacked(data) if data is not None else ():
            found = self._tried(offer, request, key, remote_key)
            if isinstance(found, Trouble):
                damage = found
            elif found is not None:
                return found
        if damage is not None:
            raise damage
        return None

    def _tried(
        self, offer: Offer, request: Request, key: str, remote_key: str
    ) -> tuple[Result, Path] | Trouble | None:
        """The result of an offer, if it holds here, or what is wrong with it; then another one may
        be right. Raises Trouble for what is wrong with the place, OSError."""
        try:
            result = offers.read(offer, remote_key, request.module_name, self._trusted)
            if any(path not in result.closure.files for path in request.sources):
                raise Trouble("damaged", "a result does not depend on its sources")
            if any(maker not in self._trust for maker in result.meta["makers"]):
                return None
            closure = self._localised(result.closure)
            return None if closure is None else self._keep(request, key, result, closure)
        except Trouble as trouble:
            if trouble.reason not in ("damaged", "not signed"):
                raise
            return trouble

    def _localised(self, closure: Closure) -> Closure | None:
        """A closure with this machine's header sets, if it holds here. Raises Trouble, OSError."""
        if not self._closures.holds(
            Closure(files=closure.files, absent=closure.absent, links=closure.links)
        ):
            return None
        known = {name: self._contents.known_as(name) for name in closure.header_sets}
        if all(known.values()) and self._closures.holds(found := _renamed(closure, known)):
            return found
        for name in closure.header_sets:
            payload = self._fetch("headers", name, header_contents.LIMIT)
            known[name] = self._contents.take(name, payload)
            if known[name] is None:
                return None
        found = _renamed(closure, known)
        return found if self._closures.holds(found) else None

    def _keep(
        self, request: Request, key: str, result: Result, closure: Closure
    ) -> tuple[Result, Path]:
        """Fetch the file of a result that holds, and publish it. Raises Trouble, OSError."""
        data = self._fetch("files", result.file, result.size)
        meta = dict(result.meta)
        if request.call != "compile":
            meta[REQUEST] = requested.to_keep(request)
        tree = self._store.staging()
        try:
            copy = tree / "artifact"
            copy.write_bytes(data)
            return self._store.publish("artifact", key, copy, result.name, closure, meta)
        finally:
            self._store.discard(tree)

    def _fetch(self, folder: str, content: str, limit: int) -> bytes:
        """What has this digest. Raises Trouble where it is not there, or damaged."""
        name = _name(folder, content)
        packed = self._place.get(name, limit + (limit >> 8) + 1024)  # zlib may make it longer
        if packed is None:
            self._there.pop(name, None)
            raise Trouble("damaged", f"{name} is missing")
        try:
            unpacking = zlib.decompressobj()
            data = unpacking.decompress(packed, limit + 1)
        except zlib.error as error:
            raise Trouble("damaged", f"{name} is damaged: {error}") from None
        if digest.of_bytes(data) != content:
            raise Trouble("damaged", f"{name} is damaged: its digest does not match")
        self._saw(name)
        return data

    # ------------------------------------------------------------------ giving

    def give(self, request: Request, key: str) -> bool:
        """Offer what the store has under a key; False where it does not hold any more.
        Raises Trouble, NotShared, OSError."""
        found = self._store.find("artifact", key, self._closures)
        if found is None:
            return False
        result, path = found
        if not 0 < result.size <= offers.FILE_LIMIT:
            raise NotShared(f"{result.name} has {result.size} bytes")
        remote_key = _key(request, key, result.closure.files)
        sets = {name: self._contents.given(name) for name in result.closure.header_sets}
        data = path.read_bytes()
        if digest.of_bytes(data) != result.file or not self._closures.holds(result.closure):
            return False
        names: dict[str, str | None] = {}
        for name, given in sets.items():
            if given is None:
                return False
            names[name] = given[0]
            self._put("headers", *given)
        self._put("files", result.file, data)
        offered = Result(
            result.file, result.name, result.size, _renamed(result.closure, names), result.created,
            offers.public(result.meta),
        )  # fmt: skip
        self._offer(remote_key, offered)
        return True

    def _put(self, folder: str, content: str, data: bytes) -> None:
        name = _name(folder, content)
        if time.monotonic() - self._there.get(name, -_THERE_SECONDS) < _THERE_SECONDS:
            return
        self._place.put(name, zlib.compress(data, _LEVEL))
        self._saw(name)

    def _saw(self, name: str) -> None:
        if len(self._there) >= _MOST_THERE:
            self._there.clear()
        self._there[name] = time.monotonic()

    def _offer(self, key: str, result: Result) -> None:
        """Put a result in front of those that are offered under a key. Of two who do so at the
        same time, one's may be lost."""
        name = _name("results", key)
        others: list[Offer] = []
        try:
            data = self._place.get(name, offers.LIMIT)
            known = offers.unpacked(data) if data is not None else []
            others = [one for one in known if not _replaces(one, key, result)]
        except Trouble as trouble:
            if trouble.reason != "damaged":
                raise
        self._place.put(name, offers.packed([offers.made(key, result, self._signer), *others]))

    # ------------------------------------------------------------------ trying

    def check(self, *, writes: bool) -> None:
        """Write, read and delete a few bytes; only read, unless it ``writes``. Raises Trouble."""
        name = f"{_ROOT}/probe/{secrets.token_hex(16)}"
        if not writes:
            self._place.get(name, 64)
            return
        data = secrets.token_bytes(64)
        self._place.put(name, data)
        try:
            if self._place.get(name, 64) != data:
                raise Trouble("wrong answer", "what was written is not what can be read")
        finally:
            self._place.delete(name)


def _key(request: Request, key: str, contents: dict[str, str]) -> str:
    """Raises NotShared."""
    found = portable.key_of(request, key, contents)
    if found is None:
        raise NotShared("it depends on this machine")
    return found


def _name(folder: str, name: str) -> str:
    if not digest.is_digest(name):
        raise Trouble("damaged", f"{name[:80]!r} is not a digest")
    return f"{_ROOT}/{folder}/{name[:2]}/{name}"


def _replaces(offer: Offer, key: str, result: Result) -> bool:
    """Whether a result takes the place of an offer: of one like it, or one that is damaged."""
    try:
        return offers.read(offer, key, result.name, []).closure == result.closure
    except Trouble:
        return True


def _renamed(closure: Closure, names: dict[str, str | None]) -> Closure:
    """A closure whose header sets have other names; all of them are known."""

    def renamed(name: str) -> str:
        return names[name] or "" if name else ""

    guards = [
        msgspec.structs.replace(guard, headers=renamed(guard.headers)) for guard in closure.guards
    ]
    headers = sorted(map(renamed, closure.headers))
    return msgspec.structs.replace(closure, headers=headers, guards=guards)
