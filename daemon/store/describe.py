"""What artifacts were built for: the requests that the store keeps beside them, for bundles.

In a shared store there are no requests: other users read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from warmcc.daemon.store.hits import built
from warmcc.daemon.store.manifest import REQUEST

if TYPE_CHECKING:
    from warmcc.daemon.store.store import Checks, Store

KEY_LETTERS = 8  # of a key at least: names may be letters of keys as well


def found(store: Store, closures: Checks, wanted: str) -> dict[str, Any]:
    """The artifacts of an extension, by its name or the beginning of a key.

    ``found``: ``key``, ``request`` and ``built`` of those that hold; ``stale``: keys of those whose
    files or toolchain have changed since; ``unknown``: of those without
    a request, which are from a shared store or of an older warmcc. Raises OSError.
    """
    answer: dict[str, list[Any]] = {"found": [], "stale": [], "unknown": []}
    for key in dict.fromkeys(
        entry["key"]
        for entry in store.entries()
        if entry["kind"] == "artifact" and _is_wanted(entry, wanted)
    ):
        hit = store.find("artifact", key, closures)
        if hit is None:
            answer["stale"].append(key)
        elif REQUEST in hit[0].meta:
            answer["found"].append(
                {
                    "key": key, "request": hit[0].meta[REQUEST],
                    "built": msgspec.to_builtins(built(*hit, "hit", 0.0)),
                }
            )  # fmt: skip
        elif not {"output", "unkept"} & hit[0].meta.keys():  # no object, and under its own key
            answer["unknown"].append(key)
    return answer


def _is_wanted(entry: dict[str, Any], wanted: str) -> bool:
    is_key = len(wanted) >= KEY_LETTERS and entry["key"].startswith(wanted)
    return is_key or wanted in (entry["name"], entry["name"].removesuffix(".so"))
