"""What the units of a plan want of a precompiled header."""

from __future__ import annotations

from warmcc.daemon.pch.matching import Wanted
from warmcc.daemon.plan import requested
from warmcc.daemon.plan.stock import Plan
from warmcc.daemon.toolchain import Toolchain, cuda
from warmcc.daemon.toolchain.flags import absolute, any_relative, split
from warmcc.request import Request


def wanted(
    request: Request, toolchain: Toolchain, plan: Plan, cflags: str | None = None
) -> Wanted | None:
    """What the units of a plan want of a profile; None when none may serve them.
    ``cflags`` in place of the plan's."""
    flags = f"{plan.cflags if cflags is None else cflags} {plan.post_cflags}".strip()
    folder = requested.workdir(request) or ""
    words = absolute(split(flags), folder)
    if toolchain.family != "gcc" or any_relative(words):
        return None
    if any(word.startswith(("-include", "-imacros")) for word in (*toolchain.argv[1:], *words)):
        return None  # what stands in front of all headers must stay there
    users = absolute(split(" ".join(request.extra_cflags)), folder)
    home = cuda.home(request.environment)
    toolkit = "" if home is None else f"{home}/include"
    if toolkit:
        users.append(f"-isystem{toolkit}")
    variables = requested.compile_environment(request, nvcc=False, flags=flags)
    return Wanted(
        toolchain, words, users, variables, requested.build_environment(request), toolkit,
        # A setup.py compiles others next
        misses=2 if request.call == "compile" and request.sources else 1,
    )  # fmt: skip
