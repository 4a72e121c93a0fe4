"""The plugin that finishes PCHs: compiled with the user's g++ at first use, and tested.

``<cache>/plugins/<digest>/`` holds it, named by the compiler's and the source's content. A compiler
that takes no plugins, or with which the plugin does not do its work, gets ordinary precompiled
headers; ``reasons`` says why.

So does every compiler with flags that let it round by what is inlined into what: behind a finished
header g++ inlines some functions otherwise (docs/internals/decisions.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import shutil
import tempfile
from pathlib import Path

from warmcc import digest, paths
from warmcc.daemon import native
from warmcc.daemon.pch.pch import Finish
from warmcc.daemon.system.bounds import forget_oldest, mark_used, prune
from warmcc.daemon.system.runner import Runner
from warmcc.daemon.toolchain import Toolchain
from warmcc.daemon.toolchain.flags import optimises

log = logging.getLogger(__name__)

SOURCE = native.path("finish.cc")
LINE = "#pragma warmcc finish"
_SORT = "-fplugin-arg-finish-sort"
_SECONDS = 120.0
_KNOWN = 100  # answers in memory

# By these macros g++ says that it may fuse, regroup or keep more exact what stands in one function.
_ROUNDING = re.compile(
    r"#define (?:__FP_FAST_FMAF? |__FAST_MATH__ |__ASSOCIATIVE_MATH__ |__RECIPROCAL_MATH__ "
    r"|__FLT_EVAL_METHOD__ (?!0$))",
    re.M,
)
# Some versions have no macro for these.
_REGROUPING = {"-funsafe-math-optimizations", "-fassociative-math", "-freciprocal-math"}

# What lets g++ do so in some functions of a unit, whatever its flags are
_OF_FUNCTIONS = re.compile(
    r"(?:\bGCC\s+|\b__|::|\(|,|\s)(?:target(?:_clones)?(?:__)?\s*\(\s*\""
    r"|optimize(?:__)?\s*\([^)]*?(?:fast|unsafe-math|associative|reciprocal|fp-contract))"
)

# Functions of which those are declared inline that finish.cc expects to be.
_MEASURED = "".join(
    f"{'static' if number % 3 else ''} {'inline' if number.bit_count() % 2 else ''} void "
    f"measured{number}() {{}}\n"
    for number in range(64)
)

# Compiled with a finished PCH of the first, the second must find a template's body in it, and run.
# What has an effect stays: initialisers, constructors, what is marked as used. What nothing uses
# goes.
_PRELUDE = """\
#include <cstdio>
#include <vector>
template <class T> T twice(T x) { return x + x; }
template <class T> static T let_go_template(T x) { return x; }
inline int four() { return twice(2); }
inline int nobody() { return let_go_template(3); }
static int let_go_function() { return 5; }
static int needed() { return 6; }
static int initialised = needed();
static int ran = 0;
__attribute__((constructor)) static void kept_constructor() { ++ran; }
__attribute__((used)) static void kept_used() {}
"""
_UNIT = """\
static int mine() { return 7; }
int main() {
  std::vector<int> v{four()};
  return v[0] == 4 && initialised == 6 && ran == 1 ? 0 : 1;
}
"""


def sets_rounding(text: str) -> bool:
    r"""Whether a source may let g++ round by what is inlined into what, in functions of its own.

    >>> sets_rounding('#pragma GCC target("avx2,fma")\nfloat f();')
    True
    >>> sets_rounding('__attribute__((noinline, __target__ ("arch=haswell"))) float f();')
    True
    >>> sets_rounding('[[gnu::optimize("O3", "fast-math")]] float f();')
    True
    >>> sets_rounding('#pragma GCC optimize("O3,unroll-loops")\nfloat target(float x);')
    False
    """
    return _OF_FUNCTIONS.search(text) is not None


class Plugins:
    """The plugins of all compilers. Methods are called on the event loop."""

    def __init__(self, root: Path, runner: Runner) -> None:
        self._root = root
        self._runner = runner
        self._found: dict[str, Finish | None] = {}
        self._rounding: dict[str, bool] = {}  # by compiler and flags
        self._making = asyncio.Lock()  # each is made once, also where many ask at the same time
        self.reasons: dict[str, str] = {}

    async def finish(self, toolchain: Toolchain, flags: list[str]) -> Finish | None:
        """What makes this compiler finish a PCH; None when it cannot, for one of ``reasons``, and
        where with these flags a unit's results could differ from those behind an ordinary one."""
        if optimises(flags) and await self._rounds_by_inlining(toolchain, flags):
            log.info("a precompiled header is not finished, as its flags let g++ fuse or regroup "
                     "arithmetic: %s", " ".join(flags))  # fmt: skip
            return None
        async with self._making:
            known = self._found.get(toolchain.digest)
            if toolchain.digest in self._found and (known is None or known.plugin.exists()):
                return known
            try:
                self._found[toolchain.digest] = await self._make(toolchain)
            except (OSError, RuntimeError) as error:
                self._found[toolchain.digest] = None
                self.reasons[toolchain.version] = str(error)
                log.warning(
                    "precompiled headers of %s are not finished: %s", toolchain.version, error
                )
            return self._found[toolchain.digest]

    async def _rounds_by_inlining(self, toolchain: Toolchain, flags: list[str]) -> bool:
        if not _REGROUPING.isdisjoint(flags):
            return True
        key = digest.of_value([toolchain.digest, flags])
        if key in self._rounding:
            return self._rounding[key]
        words = [*flags, "-dM", "-E", "-x", "c++", os.devnull]
        try:
            said = await self._run(toolchain, words, Path("/"))
        except (OSError, RuntimeError) as error:
            log.warning("a precompiled header is not finished: %s", error)
            return True
        forget_oldest(self._rounding, _KNOWN)
        self._rounding[key] = _ROUNDING.search(said) is not None
        return self._rounding[key]

    async def _make(self, toolchain: Toolchain) -> Finish:
        """Compile and try the plugin, or find one that has been. Raises OSError, RuntimeError."""
        if toolchain.family != "gcc":
            raise RuntimeError("this compiler does not accept GCC plugins")
        texts = [digest.of_file(path) for path in (SOURCE, paths.GCC_PLUGIN)]
        place = self._root / digest.of_value([toolchain.digest, texts, _PRELUDE])
        made, record = place / "finish.so", place / "record"
        with contextlib.suppress(OSError, ValueError):
            sha256, sorts, *letting_go = record.read_text(encoding="utf-8").split("\n")
            if digest.of_file(made) == sha256:
                mark_used(place)
                return Finish([f"-fplugin={made}", *sorts.split()], LINE, letting_go)
        self._root.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(dir=self._root))
        try:
            await self._run(
                toolchain,
                ["-shared", "-fPIC", "-fno-rtti", "-O1", f"-iquote{paths.GCC_PLUGIN.parent}",
                 str(SOURCE), "-o", "finish.so"],
                draft,
            )  # fmt: skip
            sorting, letting_go = await self._options(toolchain, draft)
            (draft / "record").write_text(
                "\n".join([digest.of_file(draft / "finish.so"), " ".join(sorting), *letting_go])
            )
            for scratch in set(draft.iterdir()) - {draft / "finish.so", draft / "record"}:
                scratch.unlink()
            shutil.rmtree(place, ignore_errors=True)
            draft.rename(place)
            in_use = [found.plugin.parent for found in self._found.values() if found]
            await asyncio.to_thread(prune, self._root, "*", [place, *in_use])
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return Finish([f"-fplugin={made}", *sorting], LINE, letting_go)

    async def _options(self, toolchain: Toolchain, folder: Path) -> tuple[list[str], list[str]]:
        """The options for what the plugin can do with a compiler: sort what g++ writes, and drop
        unused code. Both are tried at once, and one by one where that fails. Raises RuntimeError
        when it cannot even finish a PCH."""
        with contextlib.suppress(RuntimeError):
            options = await self._measured(toolchain, folder)
            _check_sorted(await self._try(toolchain, folder, [f"{_SORT}=tell", *options]))
            _check_let_go(folder)
            return [_SORT], options
        await self._try(toolchain, folder, [])
        return await self._sorting(toolchain, folder), await self._letting_go(toolchain, folder)

    async def _sorting(self, toolchain: Toolchain, folder: Path) -> list[str]:
        try:
            _check_sorted(await self._try(toolchain, folder, [f"{_SORT}=tell"]))
        except RuntimeError as error:
            self._lacks(toolchain, f"g++ sorts precompiled headers itself: {error}")
            return []
        return [_SORT]

    async def _letting_go(self, toolchain: Toolchain, folder: Path) -> list[str]:
        try:
            options = await self._measured(toolchain, folder)
            await self._try(toolchain, folder, options)
            _check_let_go(folder)
        except RuntimeError as error:
            self._lacks(toolchain, f"unused code stays in precompiled headers: {error}")
            return []
        return options

    def _lacks(self, toolchain: Toolchain, reason: str) -> None:
        known = self.reasons.get(toolchain.version)
        self.reasons[toolchain.version] = reason if known is None else f"{known}; {reason}"
        log.warning("%s: %s", toolchain.version, reason)

    async def _measured(self, toolchain: Toolchain, folder: Path) -> list[str]:
        """The options that make the plugin drop unused code. Raises RuntimeError."""
        (folder / "measured.cpp").write_text(_MEASURED)
        words = [
            f"-fplugin={folder / 'finish.so'}", "-fplugin-arg-finish-measure", "-c", "measured.cpp",
        ]  # fmt: skip
        said = await self._run(toolchain, words, folder)
        found = re.findall(r"warmcc-(inline=\d+:\d+)$", said, re.M)
        if len(found) != 1:
            raise RuntimeError(f"a declaration says in {len(found)} places that it is inline")
        return [f"-fplugin-arg-finish-{found[0]}"]

    async def _try(self, toolchain: Toolchain, folder: Path, options: list[str]) -> str:
        """Finish a small PCH, use it without the plugin, and run what comes of it; gives what was
        printed while it was made."""
        (folder / "try.h").write_text(f"{_PRELUDE}{LINE}\n")
        (folder / "try.cpp").write_text(_UNIT)
        plugin = [f"-fplugin={folder / 'finish.so'}", *options]
        said = await self._run(
            toolchain, [*plugin, "-x", "c++-header", "try.h", "-o", "try.h.gch"], folder
        )
        use = [
            "-Winvalid-pch", "-Werror=invalid-pch", "-include", "try.h", "-c", "try.cpp", "-o",
            "try.o",
        ]  # fmt: skip
        await self._run(toolchain, use, folder)
        await self._run(toolchain, ["try.o", "-o", "try"], folder)
        await self._run(None, ["./try"], folder)
        return said

    async def _run(self, toolchain: Toolchain | None, words: list[str], folder: Path) -> str:
        argv = [*(toolchain.argv if toolchain else []), *words]
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "LC_ALL": "C.UTF-8",
            "TMPDIR": str(folder),
        }
        done = await self._runner.run(argv, cwd=folder, environment=environment, timeout=_SECONDS)
        if done.code != 0:
            raise RuntimeError(
                f"{' '.join(argv)}: {done.output.strip()[-500:] or f'exit status {done.code}'}"
            )
        return done.output


def _check_sorted(said: str) -> None:
    if "warmcc-sorted=" not in said:
        raise RuntimeError("its own sort cannot be replaced")


def _check_let_go(folder: Path) -> None:
    content = (folder / "try.o").read_bytes()
    if wrong := [name for name in (b"let_go_", b"nobody") if name in content]:
        raise RuntimeError(f"{wrong} is still there")
    kept = (b"kept_constructor", b"kept_used", b"mine")
    if wrong := [name for name in kept if name not in content]:
        raise RuntimeError(f"{wrong} is gone")
