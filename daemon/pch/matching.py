"""Which profile a unit may use: the flags and folders that matter to its headers, and the key."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass

from warmcc import digest
from warmcc.daemon.pch import flag_reduction, inductor_headers
from warmcc.daemon.pch.pch import Profile
from warmcc.daemon.system.bounds import forget_oldest
from warmcc.daemon.toolchain import Toolchain, lookups
from warmcc.daemon.toolchain.flags import folders, optimises

_RECORDS = 3  # raised when PCHs are made otherwise, or a record says more of one than those before
# Macros that the headers of every toolchain are known to mention
_ALWAYS = frozenset(
    (
        "NDEBUG", "AT_PARALLEL_OPENMP", "_GLIBCXX_ASSERTIONS", "_GLIBCXX_DEBUG", "_FORTIFY_SOURCE",
        "TORCH_API_INCLUDE_EXTENSION_H", "TORCH_STABLE_ONLY", "TORCH_TARGET_VERSION", "USE_CUDA",
        "USE_DISTRIBUTED", "USE_ROCM", "Py_LIMITED_API",
        *inductor_headers.MENTIONED,
    )
)  # fmt: skip
_TOOLCHAINS = 32  # whose macros are remembered
# Headers of torch's that include CUDA's
_FOR_CUDA = re.compile(r"(?:torch/csrc|ATen|c10)/(?:\w+/)*(?:cuda|cudnn)/")


@dataclass(frozen=True)
class Wanted:
    """What a unit is compiled with.
    ``users`` are those of its flags that the caller gave; ``keyed`` the variables that are part
    of a profile's identity, ``environment`` all that g++ gets. ``misses``: for how many units it
    speaks where there is no PCH yet."""

    toolchain: Toolchain
    flags: list[str]
    users: list[str]
    keyed: dict[str, str]
    environment: dict[str, str]
    toolkit: str = ""
    misses: int = 1

    @property
    def optimises(self) -> bool:
        return optimises(self.flags)


class Matcher:
    """Matches units with profiles; ``ready`` gives the profile of a key, if its PCH may be used,
    and ``failed`` says whether it could not be built."""

    def __init__(
        self, ready: Callable[[str], Profile | None], failed: Callable[[str], bool]
    ) -> None:
        self._ready = ready
        self._failed = failed
        self._mentioned: dict[str, set[str]] = {}

    def identify(self, wanted: Wanted, headers: tuple[str, ...]) -> tuple[str, list[str]]:
        """The key of the profile of these headers, and its flags."""
        flags = self.flags(wanted, headers)
        return key(wanted, flags, headers), flags

    def flags(self, wanted: Wanted, headers: tuple[str, ...]) -> list[str]:
        """The flags of the profile of these headers.
        The caller's folders count where they hold one of the headers, or what one of them
        includes, as far as that is known."""
        reduced = self._reduced(wanted)
        return (
            reduced.with_folders
            if self._matter(wanted, headers, reduced, reduced.folders)
            else reduced.flags
        )

    def _reduced(self, wanted: Wanted) -> flag_reduction.Reduced:
        owned = {folder for folder in folders(wanted.flags) if _owned(wanted, folder)}
        places = owned.union(
            wanted.toolchain.roots, wanted.toolchain.include_folders,
            lookups.of_variables(wanted.environment),
        )  # fmt: skip
        mentions = self._mentions(wanted.toolchain)
        return flag_reduction.reduce(wanted.flags, wanted.users, mentions, owned, places)

    def _matter(
        self, wanted: Wanted, headers: tuple[str, ...], reduced: flag_reduction.Reduced,
        folders: list[str],
    ) -> bool:  # fmt: skip
        """Whether a folder holds something that these headers could mean, as far as is known.
        Without the folders they may have missed one, and not compiled."""
        alone = key(wanted, reduced.flags, headers)
        if folders and self._failed(alone):
            return True
        if wanted.toolkit in folders and any(map(_FOR_CUDA.match, headers)):
            return True
        names = frozenset(name.partition("/")[0] for name in headers)
        if (base := self._ready(alone)) is not None:
            names |= base.names
        return flag_reduction.any_matters(folders, names)

    def why_not_past(
        self, wanted: Wanted, headers: tuple[str, ...], macros: frozenset[str] | None
    ) -> str:
        """Why these headers may not move before a unit's other code; empty when they may."""
        mentions = self._mentions(wanted.toolchain)
        if macros is None or (mentioned := macros & mentions):
            return (
                ""
                if macros is None
                else f"a header mentions {min(mentioned)}, which is defined in front of it"
            )
        reduced = self._reduced(wanted)
        searched = lookups.of_variables(wanted.environment)
        searched = [folder for folder in searched if not _owned(wanted, folder)]
        matter = self._matter(wanted, headers, reduced, [*reduced.folders, *searched])
        return "a folder of the user's own may hold headers of the prelude" if matter else ""

    def mentioned(self, wanted: Wanted, macro: str) -> None:
        """Note that a header of a PCH mentions this macro, which makes its own profile now."""
        self._mentions(wanted.toolchain).add(macro)

    def _mentions(self, toolchain: Toolchain) -> set[str]:
        if toolchain.digest not in self._mentioned:
            forget_oldest(self._mentioned, _TOOLCHAINS)
        return self._mentioned.setdefault(toolchain.digest, set(_ALWAYS))


def _owned(wanted: Wanted, folder: str) -> bool:
    """Whether a folder is torch's or a compiler's, which a setup.py or CMake names like the
    user's. Not CUDA's: few of torch's headers for C++ look into it."""
    return folder != wanted.toolkit and wanted.toolchain.owns(os.path.realpath(folder))


def key(wanted: Wanted, flags: list[str], headers: tuple[str, ...]) -> str:
    """The key of a profile."""
    return digest.of_value([_RECORDS, wanted.toolchain.digest, flags, headers, wanted.keyed])
