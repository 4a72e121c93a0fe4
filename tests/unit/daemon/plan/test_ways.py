"""The units of a request's ways, with a real toolchain."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.calls import interpreter, request
from warmcc.daemon.pch.lean import Missing
from warmcc.daemon.plan import requested, ways
from warmcc.daemon.plan.stock import Plan, PlannedUnit
from warmcc.daemon.toolchain.identity import Toolchains

SOURCE = "at::Tensor f(at::Tensor x);"
MAIN = f"""\
#include <torch/extension.h>
{SOURCE}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{
m.def("f", torch::wrap_pybind_function(f), "f");
}}"""


@pytest.mark.parametrize("flags", ["", "-O3", "-O2 -g -march=native", "-O1 -DFREE=2"])
def test_the_casters_that_are_made_first_are_those_of_calls(flags: str, tmp_path: Path) -> None:
    """With any flags of optimisation, any name, and macros that no header mentions."""
    keys = set()
    for name, given in (("first", ""), ("other", flags)):
        asked = request(
            cpp_sources=[SOURCE], functions=["f"], name=name, module_name=name,
            extra_cflags=given.split(), no_implicit_headers=False,
        )  # fmt: skip
        toolchain = asyncio.run(
            Toolchains().identify(requested.build_environment(asked), "c++", interpreter())
        )
        headers = f"-isystem {toolchain.torch_dir}/include"
        plan = Plan(
            ninja="", sources={"main.cpp": MAIN}, warnings=[], scratch="",
            cflags=f"-DTORCH_EXTENSION_NAME={name} {headers} -fPIC -std=c++20 {given}".strip(),
            target=f"{name}.so", units=[PlannedUnit("main.cpp", "main.o")],
        )  # fmt: skip
        switches = frozenset(("binding", "lean"))
        chosen = ways.choose(
            asked, plan, toolchain, Missing(tmp_path / "missing"), switches, {"-DFREE=2"}
        )
        assert chosen.ways[0].name == "lean", (chosen.why_pybind, chosen.why_whole)
        alone, made = ways.casters_alone(asked, plan, {"-DFREE=2"})
        units = [unit for one in chosen.ways for unit in one.units if unit.object == alone.target]
        assert len(units) == len(chosen.ways) - 1, "all ways but stock's have them"
        units += made.stock.units
        keys |= {ways.identify(unit, asked, plan, toolchain) for unit in units}
    assert len(keys) == 1


@pytest.mark.parametrize(
    ("given", "folders", "variables"),
    [("-DX", ["/mine"], {}), ("-DX -I/mine", [], {}), ("-DX", [], {"CPATH": "/mine"}),
     ("-DX -include /mine.h", [], {}), ("-DX", [], {})],
)  # fmt: skip
def test_macros_count_where_units_of_warmccs_may_read_headers_of_the_callers(
    given: str, folders: list[str], variables: dict[str, str]
) -> None:
    asked = request(
        cpp_sources=[SOURCE], functions=["f"], extra_cflags=given.split(),
        extra_include_paths=folders,
    )  # fmt: skip
    asked.environment.update(variables)
    plan = Plan(
        ninja="", sources={}, warnings=[], scratch="", cflags=f"-DTORCH_EXTENSION_NAME=n {given}",
        target="n.so", units=[],
    )  # fmt: skip
    only_macro = given == "-DX" and not folders and not variables
    assert ways.macros(asked, plan) == ({"-DX": "X"} if only_macro else {})
