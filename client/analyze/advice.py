"""What would make stock's build of it faster, by what was measured."""

from __future__ import annotations

import os

from warmcc.client.analyze.building import AFTER, BEFORE, IMPORTING
from warmcc.client.analyze.report import Analysis, Unit
from warmcc.request import Request

_LARGE = ("torch/extension.h", "torch/torch.h", "torch/all.h", "ATen/ATen.h", "torch/types.h")
_MUCH = 0.15  # of stock's time, from where on a part is worth a line
_PROGRAMS = ("cicc", "cudafe++", "ptxas")


def advice(request: Request, found: Analysis) -> list[str]:
    """Sentences, what saves most first."""
    wall = found.build.wall
    rows = [row for unit in found.units for row in _of_unit(request, unit)]
    rows += _of_cuda(found)
    python = found.build.phase(IMPORTING)
    if python > _MUCH * wall:
        rows.append(
            (python, f"import torch takes {python:.1f} s of it: `warmcc run` has it imported")
        )
    before = found.build.phase(BEFORE) + found.build.phase(AFTER)
    if before > _MUCH * wall:
        rows.append((before, f"torch's own Python takes {before:.1f} s around ninja"))
    link = sum(
        one.seconds
        for one in found.build.steps
        if all(one.output != unit.output for unit in found.units)
    )
    if link > _MUCH * wall:
        rows.append((link, f"the link takes {link:.1f} s: with mold or lld it takes less"))
    rows.append(
        (0.0, "with warmcc.load_inline in place of torch's, the headers are parsed once for all")
    )
    return [text for _, text in sorted(rows, key=lambda row: -row[0])]


def _of_unit(request: Request, unit: Unit) -> list[tuple[float, str]]:
    rows = []
    by_owner = unit.by_owner()
    count, _, reading, parsing = by_owner.get("torch", (0, 0, 0.0, 0.0))
    large = next((one for name in _LARGE for one in unit.headers if one.name == name), None)
    took = reading + parsing
    if large is not None and (took > _MUCH * unit.step or unit.cuda):
        seconds = "" if unit.cuda else f"{took:.1f} s for "
        how = f"`warmcc slim {unit.source}` finds the few that it needs"
        if request.call == "load_inline":
            how = (
                "`warmcc slim FILE --functions …` finds the few that it needs, for a call with"
                " no_implicit_headers=True"
            )
        text = f"{unit.source} reads <{large.name}>: {seconds}{count} headers of torch; {how}"
        rows.append((max(took, unit.step / 2), text))
    generated = unit.phases.get("phase opt and generate", 0.0)
    if generated > 2 * _MUCH * unit.compile and unit.compile:
        level = next((word for word in request.extra_cflags if word.startswith("-O")), "")
        flags = f" ({level})" if level else ""
        rows.append(
            (generated, f"{unit.source}: {generated:.1f} s of it make code{flags}: a lower -O while"
             " you edit, or hot code in a file of its own")
        )  # fmt: skip
    if unit.templates and (dear := unit.templates[0]).seconds > _MUCH * unit.step:
        by = f", which {dear.asked} asks for" if dear.asked else ""
        rows.append(
            (dear.seconds, f"{unit.source}: {dear.name[:80]} takes {dear.seconds:.1f} s{by}")
        )
    return rows


def _of_cuda(found: Analysis) -> list[tuple[float, str]]:
    units = [unit for unit in found.units if unit.cuda]
    if not units:
        return []
    rows = []
    programs = {
        name: sum(one.end - one.start for one in found.build.processes if one.name == name)
        for name in _PROGRAMS
    }
    targets = _targets(found)
    if len(targets) > 1:
        rows.append(
            (
                programs["cicc"] * (1 - 1 / len(targets)),
                f"nvcc compiles for {len(targets)} architectures ({', '.join(targets)}): set"
                " TORCH_CUDA_ARCH_LIST to the one of your GPU",
            )
        )
    rows += [
        (
            programs["cudafe++"] + programs["cicc"],
            f"{unit.source} includes torch/extension.h, which nvcc reads once for the host and once"
            f" for each architecture (cudafe++ {programs['cudafe++']:.1f} s, cicc"
            f" {programs['cicc']:.1f} s): keep kernels in a .cu without it, and the binding in a"
            " .cpp",
        )
        for unit in units
        if any(one.name == "torch/extension.h" for one in unit.headers)
    ]
    return rows


def _targets(found: Analysis) -> list[str]:
    """The architectures for which ptxas ran."""
    names = []
    for one in found.build.processes:
        if os.path.basename(one.name) == "ptxas":
            names += [word[6:] for word in one.words if word.startswith("-arch=")]
            names += [
                after
                for word, after in zip(one.words, one.words[1:], strict=False)
                if word in ("-arch", "--gpu-name")
            ]
    return sorted(set(names))
