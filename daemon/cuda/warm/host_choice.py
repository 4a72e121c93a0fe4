"""Which host's prelude a profile gets: one that serves callers with other folders of headers, too,
where that is possible.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Iterable
from itertools import chain
from pathlib import Path

from warmcc.daemon.closure.closure import ChangedDuringBuild, Closures
from warmcc.daemon.cuda.overlay import overlay
from warmcc.daemon.cuda.step_cache import StepCache
from warmcc.daemon.cuda.warm import host_pch, host_text
from warmcc.daemon.cuda.warm.profile import CudaProfile
from warmcc.daemon.pch.pch import Finish
from warmcc.daemon.system.runner import Runner
from warmcc.daemon.toolchain import Toolchain, lookups

Finisher = Callable[[Toolchain], Awaitable[Finish | None]]


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

    def _in_use(self) -> set[Path]:
        return {one.host.header.parent for one in self.profiles() if one.host}

    def open(self) -> None:
        """Remove what an earlier daemon did not finish."""
        self._hosts.open()

    async def close(self) -> None:
        """End what is being made."""
        await self._hosts.close()

    async def find(self, profile: CudaProfile) -> bool:
        """Whether the text of a profile's host's prelude is there."""
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
        one that serves callers with other folders of headers, unless its own headers could be found
        in one of these. Raises what ``Hosts.get`` does."""
        names = self._hosts.names or await asyncio.to_thread(_files, self._own(profile))
        for last in (False, True):  # the first time with a guess at its names
            ignored = [one for one in profile.folders if not host_text.hides(one, names)]
            found = await self._host(profile, ignored, kept=kept)
            if found is None:
                break
            if last or not found.is_hidden_by(ignored):
                profile.host, profile.ignored = found, ignored
                break
            names = found.names

    async def _host(
        self, profile: CudaProfile, without: list[str], *, kept: bool
    ) -> host_pch.HostPrelude | None:
        """The host's prelude of a profile ``without`` some folders."""
        toolchain, toolkit = profile.toolchain, profile.toolchain.cuda
        assert toolkit is not None
        finish = await self._finisher(toolchain) if self._finisher is not None else None
        own = self._own(profile)
        plan = profile.plan.for_headers(without)
        searched = lookups.header_search(list(plan.preprocess.options), own, profile.environment)
        headers, extras = (overlay.HOST, profile.extras) if profile.torch else ((), profile.headers)
        recipe = host_text.Recipe(
            plan, f"{toolchain.digest}{toolkit.digest}", toolchain.roots, searched,
            profile.environment, finish, headers, extras,
        )  # fmt: skip
        return await self._hosts.get(recipe, profile.haste, kept=kept)

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
