"""One header set for an artifact of many units.

Each unit has a header set of its own, and those of a package differ in a few headers of thousands.
To check an artifact of fifty units, fifty sets would have to be in memory, and fifty times a
thousand folders looked at. What they say together is one set: an artifact holds when all of its
units do.

What does not fit together (a header that changed between two units, a name that one unit found in a
folder in which another must not find it) is left as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from warmcc.daemon.closure import header_sets
from warmcc.daemon.closure.closure import Closure
from warmcc.daemon.closure.header_sets import Entry, HeaderSet
from warmcc.daemon.closure.shadowing import Guard

FEW = 8  # so many sets are checked in less time than they are merged

Get = Callable[[str], "bytes | None"]
Put = Callable[[bytes], str]


class _Apart(Exception):
    """What does not fit together."""


def merged(closure: Closure, get: Get, put: Put, few: int = FEW) -> Closure:
    """A closure that holds just when the one given does, with fewer header sets.

    ``get`` and ``put`` are the store's (``get_headers``, ``put_headers``). Raises OSError when it
    cannot be written.
    """
    if len(closure.header_sets) <= few:
        return closure
    try:
        sets = {name: _read(name, get) for name in closure.header_sets}
        payload = _one([sets[name] for name in closure.headers])
        guards = [_guard(same, sets, put) for same in _by_folders(closure.guards)]
    except _Apart:
        return closure
    return msgspec.structs.replace(closure, headers=[put(payload)], guards=guards)


def _read(name: str, get: Get) -> HeaderSet:
    found = header_sets.decoded(get(name))
    if found is None:
        raise _Apart
    return found


def _one(sets: Iterable[HeaderSet]) -> bytes:
    names: set[str] = set()
    folders: dict[str, dict[str, tuple[str, int, int]]] = {}
    absent: dict[str, set[str]] = {}
    for one in sets:
        names.update(one.names)
        for folder, entries in one.folders.items():
            known = folders.setdefault(folder, {})
            for entry in entries:
                if known.setdefault(entry[0], entry) != entry:
                    raise _Apart
        for folder, missing in one.absent.items():
            absent.setdefault(folder, set()).update(missing)
    if any(not missing.isdisjoint(folders.get(folder, ())) for folder, missing in absent.items()):
        raise _Apart
    entries_of = {
        folder: [Entry(*entry) for entry in known.values()] for folder, known in folders.items()
    }
    return header_sets.encode(names, entries_of, absent)


def _by_folders(guards: Iterable[Guard]) -> list[list[Guard]]:
    same: dict[frozenset[str], list[Guard]] = {}
    for guard in guards:
        same.setdefault(frozenset(guard.folders), []).append(guard)
    return list(same.values())


def _guard(guards: list[Guard], sets: dict[str, HeaderSet], put: Put) -> Guard:
    """One guard in place of several of the same folders."""
    own: set[str] = set()
    theirs: set[str] = set()
    missing: dict[str, set[str]] = {}
    known: dict[str, set[str]] = {}
    for guard in guards:
        of_set = sets[guard.headers].names if guard.headers else []
        own.update(guard.names)
        theirs.update(of_set)
        for folder, there in guard.folders.items():
            known.setdefault(folder, set()).update(there)
            missing.setdefault(folder, set()).update({*guard.names, *of_set}.difference(there))
    if any(not missing[folder].isdisjoint(there) for folder, there in known.items()):
        raise _Apart
    folders = {folder: sorted(there) for folder, there in known.items()}
    return Guard(folders, sorted(own), put(header_sets.encode(theirs, {})) if theirs else "")
