"""``warmcc analyze``: everything that is measured of one request, in one temporary folder."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from warmcc.client.analyze import clock, headers
from warmcc.client.analyze.advice import advice
from warmcc.client.analyze.building import build
from warmcc.client.analyze.report import Analysis, Build, Counted, Unit
from warmcc.client.stock import replay
from warmcc.client.stock.replay import Command, Plan
from warmcc.request import Request

Say = Callable[[str], None]


def analyze(request: Request, say: Say) -> Analysis:
    """Measure a request. Stock builds it once; each unit is preprocessed and compiled once more.
    Raises RequestError (also where stock cannot build it), OSError."""
    with tempfile.TemporaryDirectory(prefix="warmcc-analyze-") as folder:
        places = {name: Path(folder) / name for name in ("profile", "build", "headers")}
        for place in places.values():
            place.mkdir()
        say("counting what Python does")
        profiled = replay.called(request, places["profile"], "profile")
        say("stock torch builds it")
        measured = build(request, places["build"])
        plan = replay.read(places["build"], replay.environment(request), profiled)
        units = [
            _unit(request, plan, command, measured, places["headers"], say)
            for command in plan.units
        ]
    found = Analysis(
        request.name, plan.torch, plan.units[0].compiler if plan.units else "", measured, units,
        _counted(profiled["import"]), _counted(profiled["call"]),
    )  # fmt: skip
    found.advice = advice(request, found)
    return found


def _counted(found: dict[str, Any]) -> Counted:
    return msgspec.convert({**found["counts"], "functions": found["functions"]}, Counted)


def _unit(
    request: Request, plan: Plan, command: Command, measured: Build, folder: Path, say: Say
) -> Unit:
    name = os.path.basename(command.source)
    say(f"{name}: reading its headers")
    own = [Path(command.source).parent, *map(Path, request.extra_include_paths)]
    moved = replace(command, folder=folder)
    not_measured = []
    try:
        read = headers.read(moved, plan.environment, plan.include, own)
    except RuntimeError as error:
        read = headers.Read([], [], 0.0)
        not_measured.append(f"headers: {error}")
    step = measured.step(command.output)
    unit = Unit(
        name, command.output, command.is_cuda, step, read.seconds, read.headers, read.tree,
        not_measured=not_measured,
    )  # fmt: skip
    if command.is_cuda:
        not_measured.append(
            "parsing by header and templates: nvcc's front ends do not say; the processes do"
        )
        return unit
    say(f"{name}: compiling it under a clock")
    clocked = clock.measure(moved, plan.environment)
    unit.compile, unit.phases, unit.templates = clocked.seconds, clocked.phases, clocked.templates
    if clocked.why_not:
        not_measured.append(f"parsing by header and templates: {clocked.why_not}")
    for one in unit.headers if clocked.files else ():
        one.parsing = clocked.files.get(one.path, 0.0)
    return unit
