"""The ways in which the sources of a request can be compiled, the fastest first.
All give a module that does the same.

lean    an inline source behind the lean prelude, its functions bound by units of their own
direct  the same behind the headers that stock puts in front
stock   the sources as stock has them

A way that fails for a reason that may not be the user's is followed by the next one, in the same
build.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from warmcc.daemon.pch import flag_reduction, leading_includes, lean
from warmcc.daemon.plan import binding, keys
from warmcc.daemon.plan.binding import module_name, neutral
from warmcc.daemon.plan.stock import Plan, PlannedUnit
from warmcc.daemon.toolchain import Toolchain, cuda, lookups
from warmcc.daemon.toolchain.flags import folders, include_folders, optimises, split
from warmcc.request import Request

Name = Literal["lean", "direct", "stock"]

_OURS = frozenset(("torch", "ATen", "c10", "caffe2", "pybind11"))
_HEADER_VARIABLES = {"CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"}
_EXTENSION = "#include <torch/extension.h>\n"


@dataclass(frozen=True, eq=False)
class Unit:
    """One source file on its way to one object, as planned; what becomes of it is in ``Work``.

    text     an inline source's, None for a file
    headers  the includes of a generated text for which a PCH may stand; ``exact`` when it must: the
             text lacks them
    cflags   in place of the plan's, in ways of warmcc's own
    generated  nothing of it is the user's
    cuda     nvcc compiles it (see warmcc.daemon.cuda)
    """

    source: str
    object: str
    text: str | None
    headers: tuple[str, ...]
    exact: bool = False
    cflags: str | None = None
    generated: bool = False
    cuda: bool = False


@dataclass
class Way:
    """One way, with the units that it compiles.
    All but stock's are of use only where the PCHs are there."""

    name: Name
    units: list[Unit] = field(default_factory=list)


@dataclass
class Ways:
    """The ways of one request, and why there are not more."""

    ways: list[Way]
    why_pybind: str | None = None
    why_whole: str | None = None

    @property
    def stock(self) -> Way:
        """The last one, which is always open."""
        return self.ways[-1]


def choose(
    request: Request, plan: Plan, toolchain: Toolchain, missing: lean.Missing,
    switches: frozenset[str], free: Collection[str],
) -> Ways:  # fmt: skip
    """The ways that are open to a request.
    ``switches`` are the accelerators that may be used, ``free`` words of the plan's flags that mean
    nothing to units of warmcc's. Which headers a text of the user's begins with is looked up later,
    in the files as they are when the build begins."""
    stock = Way("stock", [_planned(unit, request, plan) for unit in plan.units])
    found = Ways([stock])
    host = [unit for unit in stock.units if not unit.cuda]
    main = host[0] if len(host) == 1 else None
    if (
        main is None
        or main.text is None
        or toolchain.family != "gcc"
        or request.call != "load_inline"
    ):
        return found
    functions = _functions(request)
    chosen = _binding(request, functions, main.text, switches)
    text, binder, apart, declares = main.text, None, False, False
    if isinstance(chosen, binding.Unbindable):
        found.why_pybind = chosen.reason
    elif chosen is not None:
        users, binder = _users_part(request), chosen
        text = f"{users}\n{chosen.tail}"
        apart = any(unit.cuda for unit in stock.units) and _is_nameless(request, text, plan)
        text += "" if apart else chosen.entry
        declares = neutral.only_declares(users, folders=_has_folders(request))
    cflags = neutral.flags(plan.cflags, warns=True) if declares else plan.cflags
    ours = neutral.of_generated(module_name.without(cflags), cuda.home(request.environment), free)
    inline = partial(_inline, main, binder, cflags, ours, apart)
    found.why_whole = (
        _why_whole(request, text, plan, missing, declares=declares)
        if "lean" in switches
        else "switched off"
    )
    if (
        found.why_whole is None and leading_includes.leading(text)[:1] == leading_includes.EXTENSION
    ):  # stock's, or the source's own
        rewritten = lean.rewrite(text)
        if rewritten is not None:
            found.ways.insert(-1, inline("lean", rewritten, lean.headers(text)))
    if binder is not None:
        found.ways.insert(-1, inline("direct", text, (), is_lean="lean" in switches))
    for way in found.ways[:-1]:
        way.units[1:1] = [unit for unit in stock.units if unit.cuda]
    return found


def macros(request: Request, plan: Plan) -> dict[str, str]:
    """The words of a plan, with the names of their macros, that are ``free`` if no header mentions
    these; none for a request without units of warmcc's, or with headers of the caller's, which
    these units could read as well."""
    if request.functions is None or _has_folders(request):
        return {}
    return neutral.macros(split(plan.cflags))


def _inline(
    main: Unit, binder: binding.Binding | None, cflags: str, ours: str, apart: bool,
    name: Name, text: str, headers: tuple[str, ...], *, is_lean: bool = True,
) -> Way:  # fmt: skip
    """A way of an inline source.
    ``ours`` are the flags of generated units; ``apart``: what depends on the module's name has a
    unit of its own; ``is_lean``: the binding unit is behind the lean prelude."""
    own = module_name.without(cflags) if apart else cflags
    way = Way(name, [Unit(main.source, main.object, text, headers, name == "lean", own)])
    if binder is not None:
        way.units += _generated(binder, ours, is_lean=is_lean)
    if binder is not None and apart:
        way.units.append(
            Unit("module.cpp", "module.o", binder.entry, (), cflags=ours, generated=True)
        )
    return way


def _is_nameless(request: Request, text: str, plan: Plan) -> bool:
    flags = f"{plan.cflags} {plan.post_cflags}"
    return module_name.is_nameless(text, flags, folders=_has_folders(request))


def _has_folders(request: Request) -> bool:
    """Whether headers are looked for in folders of the user's."""
    users = [*request.extra_include_paths, *folders(split(" ".join(request.extra_cflags)))]
    return bool(users) or not _HEADER_VARIABLES.isdisjoint(request.environment)


def _generated(binder: binding.Binding, cflags: str, *, is_lean: bool) -> list[Unit]:
    """The generated units of a way.
    Without the module's name in their flags they serve every extension. Of an inline function of
    torch's that several units have, the linker takes the first: the casters' is optimised, that of
    the binding unit is not."""
    headers = lean.TORCH if is_lean else leading_includes.EXTENSION
    text = binder.unit if is_lean else _EXTENSION + binder.unit
    return [
        _casters(cflags),
        Unit("binding.cpp", "binding.o", text, headers, is_lean, cflags, generated=True),
    ]


def _casters(cflags: str) -> Unit:
    """The unit that all extensions share, which needs no PCH."""
    cflags = f"{cflags} {neutral.OPTIMISED}"
    text = binding.casters()
    return Unit("casters.cpp", "casters.o", text, (), cflags=cflags, generated=True)


def casters_alone(request: Request, plan: Plan, free: Collection[str]) -> tuple[Plan, Ways]:
    """A plan for nothing but the casters of a request, to be made before anything else is.
    ``free`` as for ``choose``."""
    cflags = module_name.without(plan.cflags)
    unit = _casters(neutral.of_generated(cflags, cuda.home(request.environment), free))
    alone = replace(
        plan, sources={}, target=unit.object, units=[PlannedUnit(unit.source, unit.object)]
    )
    return alone, Ways([Way("direct", [unit])])


def _binding(
    request: Request, functions: dict[str, str] | None, text: str, switches: frozenset[str]
) -> binding.Binding | binding.Unbindable | None:
    """How functions are bound without pybind11 in the user's unit; None when none are bound."""
    if functions is None:
        return None
    if "binding" not in switches:
        return binding.Unbindable("switched off")
    if text != "\n".join([_users_part(request), *_stocks_binding(request, functions)]):
        return binding.Unbindable("this torch writes main.cpp in an unknown way")
    return binding.choose(
        request.cpp_sources,
        functions,
        request.module_name,
        error_handling=request.with_pytorch_error_handling,
    )


def _why_whole(
    request: Request, user: str, plan: Plan, missing: lean.Missing, *, declares: bool
) -> str | None:
    torch = os.path.realpath(request.interpreter.torch_dir) + os.sep
    if not os.path.realpath(extension_header(plan) or os.sep).startswith(torch):
        return "torch/extension.h is not torch's"
    if flag_reduction.any_matters(lookups.of_variables(request.environment), _OURS):
        return "a variable adds a folder of headers that may stand in front of torch's"
    if not declares and optimises(split(f"{plan.cflags} {plan.post_cflags}")):
        return "g++ optimises by all that is in a unit"
    if (reason := lean.why_not(user)) is not None:
        return reason
    name = missing.mentioned_in(user)
    return f"{name} was not found behind the lean prelude" if name is not None else None


def extension_header(plan: Plan) -> str | None:
    """The ``torch/extension.h`` that stock's compile would find; a lean prelude replaces it."""
    places = (
        os.path.join(folder, leading_includes.EXTENSION[0])
        for folder in include_folders(plan.cflags)
    )
    return next(filter(os.path.isfile, places), None)


def _functions(request: Request) -> dict[str, str] | None:
    """The functions to bind and their documentation, as stock reads them; None for none."""
    given = request.functions
    if given is None:
        return None
    if isinstance(given, dict):
        return given
    return {name: name for name in ([given] if isinstance(given, str) else given)}


def _users_part(request: Request) -> str:
    """What stock puts in front of the binding that it generates."""
    parts = [] if request.no_implicit_headers else ["#include <torch/extension.h>"]
    return "\n".join([*parts, *request.cpp_sources])


def _stocks_binding(request: Request, functions: dict[str, str]) -> list[str]:
    wrap = "torch::wrap_pybind_function({})" if request.with_pytorch_error_handling else "{}"
    lines = [f'm.def("{name}", {wrap.format(name)}, "{doc}");' for name, doc in functions.items()]
    return ["PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {", *lines, "}"]


def _planned(planned: PlannedUnit, request: Request, plan: Plan) -> Unit:
    """A unit as stock plans it."""
    name = os.path.basename(planned.source)
    text = None if request.sources else plan.sources.get(name)
    return Unit(
        planned.source if text is None else name, planned.object, text, (), cuda=planned.cuda
    )


def identify(unit: Unit, request: Request, plan: Plan, toolchain: Toolchain) -> str:
    """The key under which the store keeps the unit's object."""
    if unit.cuda:
        return keys.unit_key(
            plan.cuda_cflags, plan.cuda_post_cflags, unit.source, unit.text, request, toolchain
        )
    cflags = plan.cflags if unit.cflags is None else unit.cflags
    return keys.unit_key(cflags, plan.post_cflags, unit.source, unit.text, request, toolchain)
