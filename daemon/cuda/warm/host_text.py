"""The text of a host's prelude: what cudafe++ writes of torch's real headers.

It is the same for every unit. The preprocessor takes seconds; cudafe++ takes most of the time, so
what it wrote is kept by what it read: flags that change nothing there share it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from warmcc import digest
from warmcc.daemon.cuda import dryrun
from warmcc.daemon.cuda.step_cache import StepCache
from warmcc.daemon.cuda.warm import level as levels
from warmcc.daemon.pch import flag_reduction
from warmcc.daemon.pch.pch import Finish
from warmcc.daemon.system.background import Haste
from warmcc.daemon.system.runner import Runner
from warmcc.daemon.toolchain import lookups, ninja

_RECIPES = 3  # raised when preludes of one recipe are made otherwise
EXTRAS = '# 1 "warmcc.extras"\n'  # where they begin
LISTED = "host.d"  # what the preprocessor read
STEP = "cudafe++ of the host's prelude"
_PATH = re.compile(r'"(/[^"\n]*)"')
_MARKER = re.compile(r'^# (\d+)(?: ("[^\n]*?")([ 1-4]*))?$', re.M)
_KERNEL = re.compile(r"\{(?:::([\w:]+)::)?__wrapper__device_stub_\w+<[^\n]*return;\}")


@dataclass(frozen=True)
class Recipe:
    """What a prelude is made of: ``headers`` and then ``extras``, whose templates are not finished,
    as a unit may specialise them, and what nvcc writes of a kernel's template does. ``toolchain``
    is a digest, ``roots`` and ``searched`` are folders: of the toolchain, and for headers."""

    plan: dryrun.NvccPlan
    toolchain: str
    roots: list[str]
    searched: list[str]
    environment: dict[str, str]
    finish: Finish | None
    headers: tuple[str, ...]
    extras: tuple[str, ...]

    @property
    def key(self) -> str:
        plan = self.plan
        commands = [plan.preprocess.words, plan.cudafe.words, header_words(plan)]
        variables = lookups.of_variables(self.environment)
        made_of = [self.toolchain, commands, self.headers, self.extras]
        return digest.of_value([_RECIPES, *made_of, *filter(None, [variables])])


@dataclass(frozen=True)
class Run:
    """Runs commands in a folder, in the background unless there is haste. Raises RuntimeError."""

    runner: Runner
    folder: Path
    environment: dict[str, str]
    haste: Haste
    timeout: float

    async def __call__(self, words: list[str]) -> None:
        with self.runner.background.step(self.haste.urgency) as step:
            self.haste.runs(step)
            done = await self.runner.run(
                words, cwd=self.folder, environment=self.environment, timeout=self.timeout,
                aside=not self.haste.wanted, step=step,
            )  # fmt: skip
        if done.code != 0:
            raise RuntimeError(f"{words[0]}: {done.output[-2000:]}")


async def preprocess(recipe: Recipe, run: Run) -> None:
    """Have the preprocessor read the headers. Raises OSError, RuntimeError."""
    plan = recipe.plan
    parts = [
        levels.includes(recipe.headers), EXTRAS, "typedef int warmcc_extras;\n",
        levels.includes(recipe.extras),
    ]  # fmt: skip
    (run.folder / levels.MAIN).write_text("".join(parts) + levels.BEGINNING, encoding="utf-8")
    reading = ["-MD", "-MF", LISTED, levels.MAIN, "-o", plan.preprocess.output]
    await run([*plan.preprocess.options, *reading])


def preprocessed(plan: dryrun.NvccPlan, folder: Path) -> str:
    """The text that it wrote. Raises OSError."""
    path = folder / plan.preprocess.output
    return path.read_text(encoding="utf-8", errors="surrogateescape")


@dataclass(frozen=True)
class Said:
    """What headers say, whatever their files are called: the ``digest`` of preprocessed text
    without markers and names of files, and those that it has in strings (``__FILE__``)."""

    digest: str
    named: frozenset[str] = frozenset()

    @classmethod
    def by(cls, text: str) -> Said:
        r"""What a preprocessed text says.

        >>> one = Said.by('# 1 "warmcc.cu"\n\n# 1 "/a/x.h" 1\nf("/a/x.h");\n# 3 "warmcc.cu" 2\n')
        >>> other = Said.by('# 1 "/b/x.h" 1\nf("/b/x.h");\n# 2 "warmcc.cu" 2\n')
        >>> one.digest == other.digest, sorted(one.named), sorted(other.named)
        (True, ['/a/x.h'], ['/b/x.h'])
        >>> one.digest == Said.by('# 1 "/b/x.h" 1\nf("/c/x.h");\n').digest
        False
        """
        files = levels.files(text)
        named: set[str] = set()

        def of_file(match: re.Match[str]) -> str:
            if match[1] not in files:
                return match[0]
            named.add(match[1])
            return f'"{os.path.basename(match[1])}"'

        lines = (line for line in text.split("\n") if line and not line.startswith("# "))
        kept = [_PATH.sub(of_file, line) if '"/' in line else line for line in lines]
        said = digest.of_bytes("\n".join(kept).encode(errors="surrogateescape"))
        return cls(said, frozenset(named))

    def write(self, path: Path) -> None:
        """Keep it in a file. Raises OSError."""
        lines = [self.digest, *sorted(self.named)]
        path.write_text("\n".join(lines), encoding="utf-8", errors="surrogateescape")

    @classmethod
    def read(cls, path: Path) -> Said:
        """What was kept. Raises OSError."""
        first, *named = path.read_text(encoding="utf-8", errors="surrogateescape").split("\n")
        return cls(first, frozenset(named))


async def make(recipe: Recipe, run: Run, steps: StepCache) -> tuple[str, Said]:
    """What cudafe++ makes of the headers, and what these say. Raises OSError, RuntimeError."""
    folder, plan = run.folder, recipe.plan
    await preprocess(recipe, run)
    text = await asyncio.to_thread(preprocessed, plan, folder)
    said = await asyncio.to_thread(Said.by, text)
    (folder / dryrun.MODULE_ID).write_text(dryrun.NO_MODULE_ID, encoding="utf-8")
    read = [folder / plan.preprocess.output, folder / dryrun.MODULE_ID]
    key = await asyncio.to_thread(steps.key, plan.cudafe.words, read, recipe.toolchain, STEP)
    made = folder / plan.cudafe.text
    if not await asyncio.to_thread(steps.find, key, folder, STEP):
        await run(plan.cudafe.words)
        new = {key: {made.name: await asyncio.to_thread(made.read_bytes)}}
        with contextlib.suppress(OSError):  # on a full disk nothing is kept
            await asyncio.to_thread(steps.keep, new, folder, f"CUDA host {recipe.toolchain[:16]}")
    written = made.read_text(encoding="utf-8", errors="surrogateescape")
    head, found, _ = written.partition(f'# 1 "{levels.BEGIN}"\n')
    if not found:
        raise RuntimeError("cudafe++ does not write where a unit begins")
    return head, said


def finished(text: str, line: str) -> str:
    r"""The text with the line at which its templates are finished. The templates of kernels are
    defined behind it: a unit specialises what each instance of one calls, which g++ refuses once
    the instance is made. Where one cannot be declared alone (default arguments), all stay.

    >>> kernel = "template<class T> static void k() {::n::__wrapper__device_stub_k<T>();return;}"
    >>> text = f'\n# 5 "a.cuh" 1 3\nnamespace n {{\n{kernel}\n}}\n{EXTRAS}'
    >>> print(finished(text, "#finish")[1:], end="")
    # 5 "a.cuh" 1 3
    namespace n {
    template<class T> static void k() ;
    }
    #finish
    # 5 "a.cuh" 3
    namespace n {
    template<class T> static void k() {::n::__wrapper__device_stub_k<T>();return;}
    }
    # 1 "warmcc.extras"
    >>> finished(text.replace("class T", "class T = int"), "#finish").count("k() {")
    1
    """
    head, extras, rest = text.partition(EXTRAS)
    kept, later, at = [], [], 0
    for body in _KERNEL.finditer(head):
        begin = head.rfind("\ntemplate<", at, body.start()) + 1
        declared = head[begin : body.start()]
        if not begin or re.search("[{};=]", _MARKER.sub("", declared)):
            return head + line + "\n" + extras + rest
        spaces = body[1].split("::") if body[1] else []
        opened = "".join(f"namespace {name} {{\n" for name in spaces)
        closed = "}\n" * len(spaces)
        later.append(f"{_place(head, begin)}{opened}{declared}{body[0]}\n{closed}")
        kept += [head[at : body.start()], ";"]
        at = body.end()
    return "".join([*kept, head[at:], line, "\n", *later, extras, rest])


def _place(text: str, end: int) -> str:
    """A marker for the line that begins at ``end``, in its file."""
    number, at = "", end
    while (at := text.rfind("\n# ", 0, at)) >= 0:
        marker = _MARKER.match(text, at + 1)
        if marker is not None:
            number = number or marker[1]
            if marker[2]:
                return f"# {number} {marker[2]}{' 3' if '3' in marker[3] else ''}\n"
    return ""


def read(folder: Path) -> list[str]:
    """The files that the preprocessor read, but for those of the folder itself."""
    listed = ninja.dependencies(folder / LISTED, folder)
    return [path for path in listed if not path.startswith(str(folder))]


def hides(folder: str, names: frozenset[str]) -> bool:
    """Whether a folder holds a header of one of these names."""
    if not flag_reduction.any_matters([folder], frozenset(name.split("/", 1)[0] for name in names)):
        return False
    return any(os.path.exists(os.path.join(folder, name)) for name in names)


def names(paths: list[str], searched: list[str]) -> frozenset[str]:
    """The names by which files may be included, with the folders that are searched.

    >>> sorted(names(["/t/include/ATen/ops/add.h"], ["/t/include", "/t/include/ATen"]))
    ['ATen/ops/add.h', 'ops/add.h']
    """
    folders = tuple(f"{folder.rstrip('/')}/" for folder in searched)
    return frozenset(
        path[len(folder) :] for folder in folders for path in paths if path.startswith(folder)
    )


def header_words(plan: dryrun.NvccPlan) -> list[str]:
    """The words with which nvcc has the host's code compiled, without the file. They say for which
    devices: until CUDA 12, a header asks for ``__CUDA_ARCH__``."""
    words = [word for word in plan.host.options if word != "-c"]
    at = words.index("-x")
    return words[:at] + words[at + 2 :]
