"""Warm up before the first request, for each configured set of flags.
It makes the precompiled headers that stock's calls need, and the generated units that all
extensions share, by building an extension of one function. Later, when the daemon is idle, it makes
the precompiled headers of flags that are common in public code.

What is warm serves requests of one environment only (its Python, its compiler, its CC, LIBRARY_PATH
and so on). At the start the daemon's own is the best guess; a daemon that was started at boot
guesses wrong, and learns from the first requests that it has to compile.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.machinery
import importlib.util
import logging
import os
import sys
from collections import Counter
from typing import Literal

import msgspec

from warmcc import digest, status
from warmcc.config import Config
from warmcc.daemon.build.builder import Builder
from warmcc.daemon.build.executor import Executor
from warmcc.daemon.build.flight import Flight
from warmcc.daemon.cuda.warm.profiles import CudaProfiles
from warmcc.daemon.pch import leading_includes, lean
from warmcc.daemon.pch.profiles import Profiles
from warmcc.daemon.plan import keys, requested
from warmcc.daemon.plan.stock import Plan
from warmcc.daemon.plan.zygotes import ZygotePool
from warmcc.daemon.system.background import Background
from warmcc.daemon.toolchain import Toolchain, cuda
from warmcc.daemon.toolchain.flags import optimises
from warmcc.protocol import Built
from warmcc.request import KEYED_ENVIRONMENT, PASSED_ENVIRONMENT, Interpreter, Request

log = logging.getLogger(__name__)

_NAME = "warmcc_prewarm"
_CUDA_SOURCE = "__global__ void nothing() {}\n"
_COUNTED = 1000  # environments whose requests are counted
_LEARNED = 4  # targets that requests may add: each takes minutes of a processor
# Without anything new to warm up for, before what may be asked for some day has its turn
_IDLE_SECONDS = 10.0
_WITHOUT_TORCH = ("", "#include <cuda_runtime.h>\n")  # what units of no torch begin with
_SOURCE = f"at::Tensor {_NAME}(at::Tensor x) {{ return x; }}\n"


@dataclasses.dataclass
class Target:
    """Something to warm up for, and how far it is."""

    language: Literal["C++", "CUDA"]
    interpreter: Interpreter
    environment: dict[str, str]
    learned: bool
    state: str = "waiting"
    compiler: str = ""
    serves: str = ""  # the key of the requests that it serves, once their toolchain is known

    def request(self, flags: str = "") -> Request:
        """A request as it will come from there."""
        return Request(
            call="load_inline", name=_NAME, module_name=_NAME, interpreter=self.interpreter,
            environment=self.environment, extra_cflags=flags.split(), cpp_sources=[_SOURCE],
            functions=[_NAME], cuda_sources=[_CUDA_SOURCE] if self.language == "CUDA" else [],
            extra_cuda_cflags=flags.split() if self.language == "CUDA" else [],
        )  # fmt: skip

    def key(self, toolchain: Toolchain) -> str:
        """What tells it apart: all that the units which extensions share are kept under.
        Workers with a GPU each are one target."""
        cpp = [
            self.interpreter,
            toolchain.digest,
            requested.compile_environment(self.request(), nvcc=False),
        ]
        if self.language == "C++" or toolchain.cuda is None:
            return digest.of_value([self.language, *cpp])
        variables = requested.compile_environment(self.request(), nvcc=True)
        architectures = self.environment.get("TORCH_CUDA_ARCH_LIST")
        return digest.of_value(
            [self.language, *cpp, toolchain.cuda.digest, variables, architectures]
        )

    def unlike(self, other: Target) -> str:
        """Why what is warm here does not serve the requests of ``other``."""
        if self.interpreter.executable != other.interpreter.executable:
            return f"its callers use another Python: {other.interpreter.executable}"
        if self.interpreter != other.interpreter:
            return f"its callers use another torch: {other.interpreter.torch_dir}"
        ours, theirs = (
            requested.keyed_environment(self.request()),
            requested.keyed_environment(other.request()),
        )
        if names := sorted(
            name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)
        ):
            return f"their environment has another {names[0]}: {theirs.get(names[0], 'none')}"
        if self.compiler != other.compiler:
            return f"they have another compiler, {other.compiler}"
        return "a compiler or torch was changed since"


class Prewarmer:
    """Warms up in the background. ``left`` counts the sets of flags that are not warm yet."""

    def __init__(
        self, config: Config, zygotes: ZygotePool, builder: Builder, executor: Executor,
        profiles: Profiles, background: Background, cuda: CudaProfiles,
    ) -> None:  # fmt: skip
        self._config = config
        self._zygotes = zygotes
        self._builder = builder
        self._executor = executor
        self._profiles = profiles
        self._background = background
        self._cuda = cuda
        self._waiting: asyncio.Queue[Target] = asyncio.Queue()
        self._later: list[tuple[Target, str]] = []
        self._known: set[str] = set()
        self._asked: Counter[str] = Counter()
        self._last: dict[str, Target] = {}  # what the last request of each language needed
        self.targets: list[Target] = []
        self.left = 0
        for target in self._own():
            self._add(target)

    def _own(self) -> list[Target]:
        """The Python and the environment that this daemon runs on, if it has torch."""
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.origin is None:
            return []
        interpreter = Interpreter(
            sys.executable, importlib.machinery.EXTENSION_SUFFIXES[0], os.path.dirname(spec.origin)
        )
        known = (*KEYED_ENVIRONMENT, *PASSED_ENVIRONMENT)
        environment = {name: os.environ[name] for name in known if name in os.environ}
        return [
            Target("C++", interpreter, environment, False),
            Target("CUDA", interpreter, environment, False),
        ]

    def saw(self, request: Request, toolchain: Toolchain) -> None:
        """After a request that had to be built, warm up for the next one from its environment."""
        if request.name == _NAME:
            return
        interpreter = msgspec.structs.replace(request.interpreter, torch_loaded=None)
        targets = [Target("C++", interpreter, request.environment, True)]
        if requested.with_cuda(request):
            targets.append(Target("CUDA", interpreter, request.environment, True))
        for target in targets:
            key = target.serves = target.key(toolchain)
            target.compiler = toolchain.version
            self._last[target.language] = target
            if key in self._asked or len(self._asked) < _COUNTED:
                self._asked[key] += 1
            if key not in self._known and sum(known.learned for known in self.targets) < _LEARNED:
                self._known.add(key)
                self._add(target)

    def _add(self, target: Target) -> None:
        if sets := self._flag_sets(target):
            self.left += len(sets)
            self.targets.append(target)
            self._waiting.put_nowait(target)

    def _flag_sets(self, target: Target) -> list[str]:
        if target.language == "C++":
            return self._config.prewarm
        wanted = self._config.prewarm_cuda and self._config.cuda_warm
        return [""] if wanted and cuda.nvcc(target.environment) is not None else []

    async def run(self) -> None:
        """Warm up for one target after another; ends when it is cancelled."""
        while True:
            try:
                target = await asyncio.wait_for(
                    self._waiting.get(), _IDLE_SECONDS if self._later else None
                )
            except asyncio.TimeoutError:
                await self._warm_ahead(*self._later.pop(0))
                continue
            target.state = "warming up"
            for flags in self._flag_sets(target):
                try:
                    await self._warm(target, flags)
                except Exception as error:
                    target.state = f"failed: {error}"
                    log.warning("prewarming %s with %r failed: %s", target.language, flags, error)
                self.left -= 1
            if target.state == "warming up":
                target.state = "warm"
                self._later += ((target, flags) for flags in self._config.prewarm_idle)
                # The first flags come most
                self._later.sort(key=lambda one: self._config.prewarm_idle.index(one[1]))

    async def _warm_ahead(self, target: Target, flags: str) -> None:
        """Make the PCH, or the host's CUDA prelude, that a first call with these flags needs."""
        await self._background.quiet()
        try:
            request = target.request(flags)
            toolchain = await self._builder.identify(request)
            plan = await self._zygotes.plan(request)
            if not isinstance(plan, Plan) or plan.unsupported is not None:
                return
            if target.language == "CUDA":
                await self._cuda.make_host(
                    request, toolchain, plan, plan.sources.get("cuda.cu", "")
                )
            elif (wanted := self._executor.wanted(request, toolchain, plan)) is not None:
                self._profiles.prewarm(wanted, leading_includes.EXTENSION)
                await self._profiles.built()
        except Exception as error:
            log.warning("prewarming %s with %r failed: %s", target.language, flags, error)

    async def _warm(self, target: Target, flags: str) -> None:
        request = target.request(flags)
        toolchain = await self._builder.identify(request)
        target.compiler = toolchain.version
        target.serves = target.key(toolchain)
        self._known.add(target.serves)
        plan = await self._zygotes.plan(request)
        if not isinstance(plan, Plan) or plan.unsupported is not None:
            log.info("%s is not made warm: torch cannot build for it here", target.language)
        elif target.language == "CUDA":
            await self._warm_cuda(request, toolchain, plan)
        else:
            await self._warm_cpp(request, toolchain, plan)

    async def _warm_cuda(self, request: Request, toolchain: Toolchain, plan: Plan) -> None:
        """Have the profile made that a call without flags needs, and an extension built with it."""
        for text in (plan.sources.get("cuda.cu", ""), *_WITHOUT_TORCH):
            await self._cuda.find(request, toolchain, plan, text)
        await self._cuda.built()
        await self._build(request, toolchain)

    async def _warm_cpp(self, request: Request, toolchain: Toolchain, plan: Plan) -> None:
        wanted = self._executor.wanted(request, toolchain, plan)
        if wanted is None:
            return
        lean_ones = lean.TITLES if self._config.lean and not optimises(wanted.flags) else {}
        for headers in (*lean_ones, leading_includes.EXTENSION):
            self._profiles.prewarm(wanted, headers)
        await self._profiles.built()
        if self._config.binding:
            await self._build(request, toolchain)

    async def _build(self, request: Request, toolchain: Toolchain) -> None:
        """Build it, for the units that all extensions share."""
        await self._background.quiet()
        flight = Flight(keys.request_key(request, toolchain), _NAME)
        answer = await self._builder.build(request, toolchain, flight)
        if not isinstance(answer, Built):
            log.warning("prewarming with %s failed: %s", request.extra_cflags, answer)

    def report(self) -> list[status.Target]:
        """One row for each target, for ``warmcc status``."""
        return [
            status.Target(
                one.language, one.interpreter.executable, one.compiler,
                requested.keyed_environment(one.request()), one.learned, one.state,
                self._asked[one.serves], self._why_not(one),
            )
            for one in self.targets
        ]  # fmt: skip

    def _why_not(self, target: Target) -> str:
        """Why no request had a use for what is warm, when there were requests; else nothing."""
        last = self._last.get(target.language)
        if target.state != "warm" or self._asked[target.serves] or last is None:
            return ""
        return target.unlike(last)
