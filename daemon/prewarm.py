"""Warm up before anybody asks: for each configured set of flags the precompiled headers that calls of stock's need, and
the generated units that all extensions share, by building an extension of one function.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import logging
import os
import sys
from typing import Any

from warmcc.config import Config
from warmcc.daemon import keys
from warmcc.daemon.builder import Builder
from warmcc.daemon.cuda.profiles import CudaProfiles
from warmcc.daemon.executor import Executor
from warmcc.daemon.profiles import lean, prelude
from warmcc.daemon.profiles.fleet import Profiles
from warmcc.daemon.scheduler import Flight, Permits
from warmcc.daemon.toolchain import Toolchain, cuda
from warmcc.daemon.toolchain.flags import optimises
from warmcc.daemon.zygote.plan import Plan
from warmcc.daemon.zygote.pool import ZygotePool
from warmcc.protocol import Built
from warmcc.request import KEYED_ENVIRONMENT, PASSED_ENVIRONMENT, Interpreter, Request

log = logging.getLogger(__name__)

_NAME = "warmcc_prewarm"
_CUDA_SOURCE = "__global__ void nothing() {}\n"
_WITHOUT_TORCH = ("", "#include <cuda_runtime.h>\n")  # what units of no torch begin with
_SOURCE = f"at::Tensor {_NAME}(at::Tensor x) {{ return x; }}\n"


class Prewarmer:
    """Warms up once, in the background. ``left`` counts the sets of flags that are not warm yet."""

    def __init__(
        self, config: Config, zygotes: ZygotePool, builder: Builder, executor: Executor, profiles: Profiles,
        permits: Permits, cuda: CudaProfiles,
    ) -> None:  # fmt: skip
        self._config = config
        self._zygotes = zygotes
        self._builder = builder
        self._executor = executor
        self._profiles = profiles
        self._permits = permits
        self._cuda = cuda
        self.left = len(config.prewarm) + config.prewarm_cuda

    async def run(self) -> None:
        """Warm up for the Python that this daemon runs on, if it has torch."""
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.origin is None:
            self.left = 0
            return
        interpreter = Interpreter(
            sys.executable, importlib.machinery.EXTENSION_SUFFIXES[0], os.path.dirname(spec.origin)
        )
        for flags in self._config.prewarm:
            try:
                await self._warm(self._request(flags, interpreter))
            except Exception as error:
                log.warning("prewarming %r failed: %s", flags, error)
            self.left -= 1
        if self._config.prewarm_cuda:
            try:
                await self._warm_cuda(interpreter)
            except Exception as error:
                log.warning("prewarming CUDA failed: %s", error)
            self.left -= 1

    async def _warm_cuda(self, interpreter: Interpreter) -> None:
        """Have the profile made that a call without flags needs, and an extension built with it."""
        if not self._config.cuda_warm or cuda.nvcc(dict(os.environ)) is None:
            return
        request = self._request("", interpreter, cuda_sources=[_CUDA_SOURCE])
        plan = await self._zygotes.plan(request)
        if not isinstance(plan, Plan) or plan.unsupported is not None:
            log.info("CUDA is not made warm: torch cannot build for it here")
            return
        toolchain = await self._builder.identify(request)
        for text in (plan.sources.get("cuda.cu", ""), *_WITHOUT_TORCH):
            await self._cuda.find(request, toolchain, plan, text)
        await self._cuda.built()
        await self._build(request, toolchain)

    @staticmethod
    def _request(flags: str, interpreter: Interpreter, **more: Any) -> Request:
        known = (*KEYED_ENVIRONMENT, *PASSED_ENVIRONMENT)
        environment = {name: os.environ[name] for name in known if name in os.environ}
        return Request(
            call="load_inline", name=_NAME, module_name=_NAME, interpreter=interpreter, environment=environment,
            extra_cflags=flags.split(), cpp_sources=[_SOURCE], functions=[_NAME], **more,
        )  # fmt: skip

    async def _warm(self, request: Request) -> None:
        plan = await self._zygotes.plan(request)
        toolchain = await self._builder.identify(request)
        if not isinstance(plan, Plan) or plan.unsupported is not None:
            return
        wanted = self._executor.wanted(request, toolchain, plan)
        if wanted is None:
            return
        lean_ones = lean.TITLES if self._config.lean and not optimises(wanted.flags) else {}
        for headers in (*lean_ones, prelude.EXTENSION):
            self._profiles.prewarm(wanted, headers)
        await self._profiles.built()
        if self._config.binding:
            await self._build(request, toolchain)

    async def _build(self, request: Request, toolchain: Toolchain) -> None:
        """Build it, for the units that all extensions share."""
        await self._permits.quiet()
        flight = Flight(keys.request_key(request, toolchain), _NAME)
        answer = await self._builder.build(request, toolchain, flight)
        if not isinstance(answer, Built):
            log.warning("prewarming with %s failed: %s", request.extra_cflags, answer)
