"""Whether torch's headers say the same to a caller who has other folders of headers: then the
host's prelude that was made without these serves the caller, too.

A folder may hold copies of headers that the prelude has read, as the toolkit's headers from PyPI
are, and an image may name folders in variables. A prelude takes half a minute; the preprocessor
tells in two seconds whether its text would be another one.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import tempfile
from pathlib import Path

from warmcc import digest
from warmcc.daemon.closure.closure import Closures
from warmcc.daemon.closure.marker import Marker
from warmcc.daemon.cuda.warm import host_text
from warmcc.daemon.cuda.warm import level as levels
from warmcc.daemon.cuda.warm.host_pch import HostPrelude
from warmcc.daemon.cuda.warm.host_text import Recipe, Run, Said
from warmcc.daemon.system import bounds
from warmcc.daemon.system.background import Haste
from warmcc.daemon.system.runner import Runner
from warmcc.daemon.toolchain import lookups

log = logging.getLogger(__name__)

_KNOWN = 100  # answers in memory


class SameText:
    """Finds out and remembers, in a folder of its own in ``root``."""

    def __init__(self, root: Path, closures: Closures, runner: Runner, timeout: float) -> None:
        self._root = root
        self._closures = closures
        self._runner = runner
        self._timeout = timeout
        self._lock = asyncio.Lock()
        self._haste = Haste()  # of the question that has the lock
        self._known: dict[str, HostPrelude | None] = {}

    async def serving(
        self, base: HostPrelude, recipe: Recipe, folders: list[str], haste: Haste
    ) -> HostPrelude | None:
        """A prelude as a caller with these ``folders`` sees it whose own would have this recipe:
        with the files that the caller's includes find; None where these say something else, which
        is not asked again. Raises OSError, RuntimeError, ChangedDuringBuild."""
        key = digest.of_value([base.header.parent.name, base.said.digest, recipe.key])
        haste.reaches(self._haste)
        async with self._lock:  # several ask for the same
            self._haste = Haste()
            haste.reaches(self._haste)
            known = self._known.get(key)
            if key not in self._known or (known and not known.holds(self._closures)):
                known = await self._found(base, recipe, folders, self._haste)
                bounds.forget_oldest(self._known, _KNOWN)
                self._known[key] = known
                said = "the same" if known else "something else"
                log.info("headers say %s with %s", said, ", ".join(folders))
        return known and dataclasses.replace(known, making=base.making)

    async def _found(
        self, base: HostPrelude, recipe: Recipe, folders: list[str], haste: Haste
    ) -> HostPrelude | None:
        self._root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="same-", dir=self._root) as scratch:
            folder = Path(scratch)
            marker = Marker.take(folder)
            asked = _as_of_system(recipe, folders)
            environment = {**asked.environment, "TMPDIR": scratch}
            run = Run(self._runner, folder, environment, haste, self._timeout)
            await host_text.preprocess(asked, run)
            text = await asyncio.to_thread(host_text.preprocessed, recipe.plan, folder)
            said = await asyncio.to_thread(Said.by, text)
            if said.digest != base.said.digest:
                return None
            read = await asyncio.to_thread(host_text.read, folder)
            files = await asyncio.to_thread(levels.files, text)
            closure = await asyncio.to_thread(
                self._closures.record, read, toolchain_roots=recipe.roots,
                include_dirs=recipe.searched, started=marker, ignore=[str(self._root)],
            )  # fmt: skip
        return dataclasses.replace(
            base, files=base.files | files, closure=closure,
            read=frozenset(filter(os.path.isabs, read)),
            names=host_text.names(read, recipe.searched), others=base.said.named - said.named,
            as_made=base.closure,
        )  # fmt: skip


def _as_of_system(recipe: Recipe, folders: list[str]) -> Recipe:
    """With the caller's folders as those of the system, which the toolkit's are: the preprocessor
    breaks lines in other places elsewhere."""
    options, environment = lookups.as_system(
        list(recipe.plan.preprocess.options), folders, recipe.environment
    )
    step = dataclasses.replace(recipe.plan.preprocess, options=tuple(options))
    plan = dataclasses.replace(recipe.plan, preprocess=step)
    return dataclasses.replace(recipe, plan=plan, environment=environment)
