"""Keep what a flight made: read the dependencies, and publish objects and artifact.

What changed while it was read makes a result unpublishable: its caller gets it, and the store does
not.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from warmcc.daemon.build.work import Outcome, Work
from warmcc.daemon.closure import assembler_reads, merging
from warmcc.daemon.closure.closure import ChangedDuringBuild, Closure, Closures
from warmcc.daemon.closure.seen import Seen
from warmcc.daemon.pch import lean
from warmcc.daemon.plan import keys, requested, ways
from warmcc.daemon.plan.ways import Unit
from warmcc.daemon.store import REQUEST, Result, Store
from warmcc.daemon.store.trust import Trust
from warmcc.daemon.toolchain import lookups, ninja
from warmcc.daemon.toolchain.flags import split
from warmcc.protocol import BUILD_DIRECTORY

log = logging.getLogger(__name__)

# What the linker reads below these is the system's, not the user's
SYSTEM_ROOTS = "/usr", "/lib", "/lib64", "/opt"


class Publisher:
    """Publishes into one store.
    ``ours`` are folders whose files are never dependencies (PCH, kept objects)."""

    def __init__(self, store: Store, closures: Closures, trust: Trust, ours: list[Path]) -> None:
        self._store = store
        self._trust = trust
        self._closures = closures
        self._own_folders = tuple(str(path) for path in ours)

    def units(self, work: Work) -> None:
        """Keep the objects that were compiled.
        One whose inputs changed meanwhile is passed over."""
        seen = Seen()
        for unit in work.units:
            made = work.tree / unit.object
            if work.has(unit) or not made.exists():
                continue
            behind_lean = work.way.name == "lean" and not unit.cuda
            maker = lean.maker(work.toolchain.digest) if behind_lean else work.outcome(unit).maker
            work.outcomes[unit] = Outcome(maker=maker)
            try:
                read = ninja.dependencies(work.tree / f"{unit.object}.d", work.folder)
                if (
                    work.way.name == "lean"
                    and (replaced := ways.extension_header(work.plan)) is not None
                ):
                    # It was not read, but one of the user's in front of it
                    # would count
                    read.append(replaced)
                assembled = self._assembled(work, unit)
                texts = [unit.text] if unit.text is not None else []
                read += assembled or []
                closure = self._record(
                    work, read, self._searched(work, unit), texts=texts, seen=seen,
                    linked=self._linked(work, unit),
                )  # fmt: skip
                if assembled is None:
                    self._check_for_assembler(unit, closure)
                self._check(maker)
                key = work.found[unit].key
                self._store.publish("unit", key, made, "", closure, {"makers": [maker]})
                work.outcomes[unit] = Outcome(closure, maker)
            except (ChangedDuringBuild, OSError) as reason:
                log.info(
                    "object %s of %s is not kept: %s", unit.object, work.request.module_name, reason
                )

    @staticmethod
    def _assembled(work: Work, unit: Unit) -> list[str] | None:
        """What the assembler read for a unit; None when that is not known."""
        if "-flto" in f"{work.plan.cflags} {work.plan.post_cflags} {work.plan.cuda_cflags}":
            return None
        try:
            named = assembler_reads.read(
                work.tree / f"{unit.object}{assembler_reads.SUFFIX}", work.folder
            )
        except OSError:
            return None
        gone = [
            path
            for path in named
            if not os.path.lexists(path)
            and not path.startswith(str(work.tree))
            and not assembler_reads.is_unit(os.path.relpath(path, work.folder), unit.source)
        ]
        return None if gone else [path for path in named if os.path.lexists(path)]

    @staticmethod
    def _check_for_assembler(unit: Unit, closure: Closure) -> None:
        """Check what an assembler may have read, of which no compiler tells.
        Raises ChangedDuringBuild, OSError."""
        found = (
            unit.source if unit.text is not None and assembler_reads.in_text(unit.text) else None
        )
        if (found := found or assembler_reads.first(closure.files)) is not None:
            raise ChangedDuringBuild(
                found, "may make the assembler read files, which are not tracked here"
            )

    def _check(self, maker: str) -> None:
        """Raises ChangedDuringBuild when what made an object has lost trust meanwhile."""
        if maker not in self._trust:
            raise ChangedDuringBuild(maker, "made a result that differs from stock's")

    @staticmethod
    def _searched(work: Work, unit: Unit) -> list[str]:
        """The folders in which a unit's headers are looked for, in their order."""
        own, cuda = list(filter(None, [requested.home(work.request)])), work.toolchain.cuda
        variables = requested.search_environment(work.request)
        if not unit.cuda or cuda is None:
            words = split(f"{work.plan.cflags} {work.plan.post_cflags}")
            return [*own, *lookups.header_search(words, work.toolchain.include_folders, variables)]
        first, later = cuda.include_folders
        words = (
            split(work.plan.cuda_cflags)
            + [f"-I{path}" for path in first]
            + [f"-isystem{path}" for path in later]
        )
        return [*own, *lookups.header_search(words, work.toolchain.include_folders, variables)]

    @staticmethod
    def _linked(work: Work, unit: Unit) -> list[str]:
        plan = work.plan
        flags = f"{plan.cflags} {plan.post_cflags}"
        words = split(f"{plan.cuda_cflags} {plan.cuda_post_cflags}" if unit.cuda else flags)
        return lookups.named_by_links(words, requested.search_environment(work.request))

    def _record(
        self, work: Work, paths: list[str], searched: list[str], *, roots: tuple[str, ...] = (),
        texts: list[str] | None = None, absent: list[str] | None = None,
        linked: Iterable[str] = (), seen: Seen | None = None,
    ) -> Closure:  # fmt: skip
        return self._closures.record(
            paths, toolchain_roots=[*work.toolchain.roots, *roots], include_dirs=searched,
            started=work.marker, cwd=str(work.folder), ignore=[str(work.tree), *self._own_folders],
            texts=texts or [], absent=absent or [], linked=linked, seen=seen,
        )  # fmt: skip

    def artifact(self, work: Work, output: str) -> tuple[Result, Path]:
        """Publish the objects, and the artifact under the request key; ``output`` is ninja's.
        Raises ChangedDuringBuild, OSError."""
        self.units(work)
        target = work.tree / work.plan.target
        outcomes = [work.outcome(unit) for unit in work.units]
        closures = [outcome.closure for outcome in outcomes]
        if any(closure is None for closure in closures):
            raise ChangedDuringBuild("an object", "could not be kept")
        for outcome in outcomes:
            self._check(outcome.maker)
        closures.append(self._link_closure(work, target))
        closure = Closure.union([closure for closure in closures if closure is not None])
        closure = merging.merged(closure, self._store.get_headers, self._store.put_headers)
        meta = {**_meta(work, output), "makers": sorted({outcome.maker for outcome in outcomes})}
        if work.request.call != "compile":
            meta[REQUEST] = requested.to_keep(work.request)
        return self._store.publish("artifact", work.key, target, target.name, closure, meta)

    def _link_closure(self, work: Work, target: Path) -> Closure | None:
        """What the linker read: libraries of the toolchain by stat, the user's own by content."""
        if not work.plan.links:
            return None
        if not work.taken.linker.says_what_it_read:
            if work.request.extra_ldflags:
                raise ChangedDuringBuild("the linker", "does not report which libraries it read")
            return None
        read = ninja.linked(target.with_name(target.name + ".link.d"), work.folder)
        objects = {str(work.folder / unit.object) for unit in work.units} | {
            str(work.tree / u.object) for u in work.units
        }
        variables = requested.search_environment(work.request)
        candidates = lookups.library_candidates(
            split(work.plan.ldflags), work.toolchain.library_folders, variables
        )
        libraries = [path for path in read if path not in objects]
        return self._record(work, libraries, [], roots=SYSTEM_ROOTS, absent=candidates)

    def hand_over(self, work: Work, output: str) -> tuple[Result, Path]:
        """Give the caller a result that no other request may find: under a key of its own."""
        nobody, target = keys.unpublished_key(work.key), work.tree / work.plan.target
        return self._store.publish(
            "artifact", nobody, target, target.name, Closure.union([]),
            {**_meta(work, output), "unkept": True},
        )  # fmt: skip


def _meta(work: Work, output: str) -> dict[str, Any]:
    """What answers with this artifact say of its build."""
    sources = dict(work.plan.sources)
    if scratch := work.plan.scratch.rstrip("/"):
        sources["build.ninja"] = work.plan.ninja.replace(scratch, BUILD_DIRECTORY)
    meta = {
        "commands": ninja.commands(output),
        "sources": sources,
        "warnings": work.plan.warnings,
        "way": _way(work),
    }
    return meta if work.plan.links else {**meta, "output": output}


def _way(work: Work) -> str:
    """How the artifact was built, in a line."""
    said = f"{work.way.name} way, "
    if any(attempt.text for attempt in work.taken.attempts.values()):
        said += "behind the text of the headers that it needs"
    else:
        said += "with a precompiled header" if work.accelerated else "without precompiled headers"
    if work.from_elsewhere:
        said += f"; {work.from_elsewhere} of {len(work.units)} objects are of another folder"
    if work.ways.why_pybind is not None:
        said += f"; functions bound by pybind11: {work.ways.why_pybind}"
    if work.way.name != "lean" and work.ways.why_whole is not None:
        said += f"; whole prelude: {work.ways.why_whole}"
    return said
