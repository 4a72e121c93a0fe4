"""Which profile a unit wants."""

from __future__ import annotations

from collections.abc import Collection

from warmcc import digest
from warmcc.daemon.cuda import dryrun
from warmcc.daemon.cuda.overlay import overlay
from warmcc.daemon.cuda.unit_text import eligibility, macros
from warmcc.daemon.cuda.warm.profile import CudaProfile, environment_of
from warmcc.daemon.cuda.warm.start import Starter
from warmcc.daemon.plan import requested
from warmcc.daemon.plan.stock import Plan
from warmcc.daemon.toolchain import Toolchain
from warmcc.daemon.toolchain.flags import split
from warmcc.daemon.toolchain.nvcc_flags import without_threads
from warmcc.request import Request

_NAME = "TORCH_EXTENSION_NAME"


async def wanted_by(
    starter: Starter,
    request: Request,
    toolchain: Toolchain,
    plan: Plan,
    text: str,
    mentioned: Collection[str],
) -> CudaProfile | str:
    """A new profile for a unit of a request, with nothing in it; or why there is none. Macros of
    the caller's are left out of its flags, except those that headers are known to have
    ``mentioned``. Raises OSError."""
    if (reason := eligibility.why_not(request, plan, text)) is not None:
        return reason
    toolkit = toolchain.cuda
    assert toolkit is not None
    words = split(f"{plan.cuda_cflags} {plan.cuda_post_cflags}")
    flags = [word for word in without_threads(words) if f"-D{_NAME}=" not in word]
    users = set(split(" ".join(request.extra_cuda_cflags)))
    left_out = [word for word in macros.left_out(flags, text, mentioned) if word in users]
    flags = macros.without_repeated([word for word in flags if word not in left_out])
    environment = environment_of(request, toolkit)
    try:
        steps = await starter.plan(toolkit, flags, environment)
    except dryrun.UnknownPlan as error:
        return f"nvcc's plan: {error}"
    torch, extras = eligibility.has_torch(text), eligibility.extras(text)
    headers = (*overlay.HOST, *extras) if torch else eligibility.toolkits(text)
    variables = requested.compile_environment(request, nvcc=True)
    key = digest.of_value([toolchain.digest, toolkit.digest, flags, headers, variables])
    programs = digest.of_value([toolchain.digest, toolkit.digest, variables])
    return CudaProfile(
        key, toolchain, flags, torch, headers, extras, steps, programs, environment, left_out,
        eligibility.users_folders(request),
    )  # fmt: skip
