"""Which host's prelude a profile gets: one that serves callers with other folders of headers, too,
where that is possible.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path

from warmcc.daemon.closure.closure import ChangedDuringBuild, Closures
from warmcc.daemon.cuda.overlay import overlay
from warmcc.daemon.cuda.step_cache import StepCache
from warmcc.daemon.cuda.warm import host_pch, host_text
from warmcc.daemon.cuda.warm.host_same import SameText
from warmcc.daemon.cuda.warm.profile import CudaProfile
from warmcc.daemon.pch.pch import Finisher
from warmcc.daemon.system.background import Haste
from warmcc.daemon.system.runner import Runner
from warmcc.daemon.toolchain import lookups


class HostChoice:
    """Gives profiles their host's preludes. ``profiles`` gives all that there are; it is set by
    whoever keeps them."""

    def __init__(
        self, root: Path, closures: Closures, runner: Runner, *, steps: StepCache,
        finisher: Finisher | None, timeout: float,
    ) -> None:  # fmt: skip
        self._finisher = finisher
        self.profiles: Callable[[], Iterable[CudaProfile]] = tuple
        self._hosts = host_pch.Hosts(
            root / "host", closures, runner, steps=steps, timeout=timeout, in_use=self._in_use
        )
        self._same = SameText(root / "host", closures, runner, timeout)

    def _in_use(self) -> set[Path]:
        return {one.host.header.parent for one in self.profiles() if one.host}

    def open(self) -> None:
        """Remove what an earlier daemon did not finish."""
        self._hosts.open()

    async def close(self) -> None:
        """End what is being made."""
        await self._hosts.close()

    async def find(self, profile: CudaProfile) -> bool:
        """Whether the text of a profile's host's prelude is there. A unit waits for the answer."""
        async with profile.host_lock:
            if profile.host is None:
                with contextlib.suppress(OSError, RuntimeError, ChangedDuringBuild):
                    await self.give(profile, kept=True)
        return profile.host is not None

    async def begin(self, profile: CudaProfile) -> None:
        """Have a profile's host's prelude begun; whoever needs it tells what went wrong."""
        with contextlib.suppress(OSError, RuntimeError, ChangedDuringBuild):
            await self.give(profile)

    async def give(self, profile: CudaProfile, *, kept: bool = False) -> None:
        """Give a profile its host's prelude once its text is there, or only one that is ``kept``:
        one that serves callers with other folders of headers, where its own headers are not found
        in one of these, or say the same. Raises what ``Hosts.get`` does."""
        asking = Haste(wanted=True) if kept else profile.haste  # of the question, not of a prelude
        if (shared := await self._with_same_text(profile, asking)) is not None:
            profile.host, profile.ignored = shared, []
            return
        plain = await self._recipe(profile, profile.folders, profile.environment)
        found = await self._hosts.get(plain, profile.haste, kept=True)
        if found is not None and not found.is_hidden_by(profile.folders):
            profile.host, profile.ignored = found, list(profile.folders)
            return
        names = self._hosts.names or await asyncio.to_thread(_files, self._own(profile))
        for last in (False, True):  # the first time with a guess at its names
            ignored = [one for one in profile.folders if not host_text.hides(one, names)]
            recipe = await self._recipe(profile, ignored, profile.environment)
            found = await self._hosts.get(recipe, profile.haste, kept=kept)
            if found is None:
                break
            if last or not found.is_hidden_by(ignored):
                profile.host, profile.ignored = found, ignored
                break
            names = found.names

    async def _with_same_text(
        self, profile: CudaProfile, asking: Haste
    ) -> host_pch.HostPrelude | None:
        """One that is there, and that was made without the folders of the caller's, as this one
        sees it; None also where folders do not matter to it."""
        variables = lookups.of_variables(profile.environment)
        if not profile.folders and not variables:
            return None
        plain = lookups.without_variables(profile.environment)
        recipe = await self._recipe(profile, profile.folders, plain)
        base = await self._hosts.get(recipe, profile.haste, kept=True)
        if base is None or not (variables or base.is_hidden_by(profile.folders)):
            return None
        theirs = set(map(os.path.realpath, self._own(profile)))
        folders = [
            one for one in (*profile.folders, *variables) if os.path.realpath(one) not in theirs
        ]
        own = await self._recipe(profile, [], profile.environment)
        # its own may still be made
        with contextlib.suppress(OSError, RuntimeError, ChangedDuringBuild):
            return await self._same.serving(base, own, folders, asking)
        return None

    async def _recipe(
        self, profile: CudaProfile, without: list[str], environment: dict[str, str]
    ) -> host_text.Recipe:
        """That of a profile's host's prelude ``without`` some folders."""
        toolchain, toolkit = profile.toolchain, profile.toolchain.cuda
        assert toolkit is not None
        places = [*toolchain.roots, *self._own(profile), *lookups.of_variables(environment)]
        plan = profile.plan.for_headers(without, places)
        finish = None
        if self._finisher is not None:
            finish = await self._finisher(toolchain, host_text.header_words(plan)[1:])
        words = list(plan.preprocess.options)
        headers, extras = (overlay.HOST, profile.extras) if profile.torch else ((), profile.headers)
        return host_text.Recipe(
            plan, f"{toolchain.digest}{toolkit.digest}", toolchain.roots,
            lookups.header_search(words, self._own(profile), environment), environment, finish,
            headers, extras,
        )  # fmt: skip

    @staticmethod
    def _own(profile: CudaProfile) -> list[str]:
        """The compilers' folders of headers."""
        toolchain, toolkit = profile.toolchain, profile.toolchain.cuda
        assert toolkit is not None
        return [*chain(*toolkit.include_folders), *toolchain.include_folders]


def _files(folders: list[str]) -> frozenset[str]:
    """The files in folders, by their names."""
    found: set[str] = set()
    for folder in folders:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            found.update(entry.name for entry in entries if entry.is_file() and "." in entry.name)
    return frozenset(found)
