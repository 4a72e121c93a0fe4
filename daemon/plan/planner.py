"""From a request to a plan: identify the toolchain, ask stock torch, and check its answer."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from warmcc.daemon.pch.lean import Missing
from warmcc.daemon.plan import one_object, requested, sandboxed, ways
from warmcc.daemon.plan.policy import Policy, refusal
from warmcc.daemon.plan.stock import Plan
from warmcc.daemon.plan.ways import Ways
from warmcc.daemon.plan.zygotes import StockError, ZygotePool
from warmcc.daemon.system.counters import Counters
from warmcc.daemon.system.sandbox import Sandbox
from warmcc.daemon.system.trails import Paths
from warmcc.daemon.toolchain import MissingCompiler, Toolchain, Toolchains, resolve, shell
from warmcc.protocol import Declined, Failed
from warmcc.request import Request

# Errors of this machine's, which stock torch may have as well.
_MACHINES = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM)


Mentioned = Callable[[Toolchain, set[str]], Awaitable[set[str]]]


class Trial(NamedTuple):
    """A request of warmcc's own with its plan; None when stock cannot build it."""

    request: Request
    toolchain: Toolchain
    plan: Plan | None


class Planner:
    """Plans builds. One per daemon.
    ``root`` is named where the disk is full; ``switches`` are the accelerators in use;
    ``mentioned`` tells which of some names a header of a toolchain has in its text."""

    def __init__(
        self, root: Path, toolchains: Toolchains, zygotes: ZygotePool, counters: Counters,
        missing: Missing, switches: frozenset[str], policy: Policy | None, sandbox: Sandbox | None,
        mentioned: Mentioned,
    ) -> None:  # fmt: skip
        self._root = root
        self._toolchains = toolchains
        self._zygotes = zygotes
        self._counters = counters
        self._missing = missing
        self._switches = switches
        self._policy = policy
        self._sandbox = sandbox
        self._mentioned = mentioned

    @property
    def may_read_headers(self) -> bool:
        """Whether this process may read the headers that a request's sources include."""
        return self._sandbox is None

    def _check(self, request: Request) -> None:
        """Raises sandboxed.Unreadable."""
        if (
            self._sandbox is not None
            and (reason := sandboxed.refused(self._sandbox, request)) is not None
        ):
            raise sandboxed.Unreadable(reason)

    async def import_torch(self, request: Request) -> None:
        """Have torch imported for the plan of a request. Raises sandboxed.Unreadable."""
        self._check(request)
        await self._zygotes.begin(request.interpreter)

    async def identify(self, request: Request) -> Toolchain:
        """The toolchain of a request. Raises toolchain.MissingCompiler, sandboxed.Unreadable."""
        self._check(request)
        return await self._toolchains.identify(
            requested.build_environment(request), request.environment.get("CXX", "c++"),
            request.interpreter, with_cuda=requested.with_cuda(request),
        )  # fmt: skip

    def paths(self, request: Request, toolchain: Toolchain) -> Paths | None:
        """The paths that a hit depends on beside its closure; None when it depends on more."""
        if self._sandbox is not None or self._policy is not None:
            return None
        return self._toolchains.paths(
            toolchain, requested.build_environment(request), request.environment.get("CXX", "c++")
        )

    async def trial(self, request: Request) -> Trial:
        """Plan a request of warmcc's own. Raises as ``identify``, and zygotes.ZygoteFailed."""
        toolchain = await self.identify(request)
        plan = await self._zygotes.plan(request)
        if isinstance(plan, StockError) or plan.unsupported is not None:
            return Trial(request, toolchain, None)
        return Trial(request, toolchain, plan)

    async def plan(self, request: Request, toolchain: Toolchain) -> Plan | Failed | Declined:
        """Stock's plan for a request, checked; or the answer to it. Raises zygotes.ZygoteFailed."""
        if request.call == "compile":
            return self._allowed(one_object.plan(request, toolchain))
        plan = await self._zygotes.plan(request)
        if isinstance(plan, StockError):
            if plan.errno in _MACHINES:
                where = f"while planning in {self._root}"
                return Declined(0, f"{plan.message} {where}", expected=False)
            return Failed(0, plan.type, plan.message, errno=plan.errno, filename=plan.filename)
        if plan.unsupported is not None:
            return Declined(0, plan.unsupported, expected=True)
        if (reason := _foreign(plan, request, toolchain)) is not None:
            return Declined(0, reason, expected=False)
        return self._allowed(plan)

    def _allowed(self, plan: Plan) -> Plan | Failed:
        if self._policy is not None and (refused := self._policy.why_not(plan)) is not None:
            self._counters.refused[refused] += 1
            return refusal(refused)
        return plan

    async def choose(self, request: Request, plan: Plan, toolchain: Toolchain) -> Ways:
        """The ways to build a plan, the fastest first."""
        free = await self._unmentioned(request, plan, toolchain)
        chosen = ways.choose(request, plan, toolchain, self._missing, self._switches, free)
        if chosen.why_pybind is not None:
            self._counters.pybind_reasons[chosen.why_pybind] += 1
        if chosen.why_whole is not None:
            self._counters.whole_reasons[chosen.why_whole] += 1
        return chosen

    async def _unmentioned(
        self, request: Request, plan: Plan, toolchain: Toolchain
    ) -> frozenset[str]:
        """Words of a plan that mean nothing to the headers of the units that warmcc writes."""
        plain = "binding" in self._switches and len(toolchain.argv) == 1  # no options with its name
        macros = ways.macros(request, plan) if plain else {}
        mentioned = await self._mentioned(toolchain, set(macros.values()))
        return frozenset(word for word, name in macros.items() if name not in mentioned)

    async def casters(self, trial: Trial) -> tuple[Plan, Ways]:
        """The plan of nothing but the casters, and its way."""
        assert trial.plan is not None
        free = await self._unmentioned(trial.request, trial.plan, trial.toolchain)
        return ways.casters_alone(trial.request, trial.plan, free)


def _foreign(plan: Plan, request: Request, toolchain: Toolchain) -> str | None:
    """Where a plan differs from the request and its toolchain; None when it does not."""
    if plan.target not in (f"{request.module_name}.so", request.module_name):
        return f"torch's plan makes {plan.target!r} for {request.module_name!r}"
    nvcc = toolchain.cuda.nvcc if toolchain.cuda is not None else None
    if plan.nvcc != nvcc and (nvcc is not None or any(unit.cuda for unit in plan.units)):
        return f"torch would call {plan.nvcc or 'no nvcc'}instead of {nvcc}"
    path = requested.build_environment(request)["PATH"]
    try:
        found = resolve(shell.decoded(plan.cxx), path)
    except MissingCompiler as error:
        return str(error)
    return (
        f"torch would call {plan.cxx}instead of {toolchain.argv[0]}"
        if found != toolchain.argv
        else None
    )
