"""Which calls come. Shares are of a hundred.

The lists of flags, the share of torch/extension.h and that of rare features are those of public
calls of ``load_inline``; how often each kernel, mistake, repeat and edit comes is assumed. A draw
is known by its seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from benchmarks.harness.cuda import library_headers
from benchmarks.loop import kernels
from benchmarks.loop.kernels import ACTIVATIONS, KERNELS, WRONG, WRONG_BINDING, Kernel

T = TypeVar("T")

NEW, EDIT, REPEAT = KINDS = ("new", "edit", "repeat")
REPEATS, EDITS, MISTAKES = 0.2, 0.2, 0.3  # of all calls

# ``extra_cflags`` and ``extra_cuda_cflags``, as they are written.
FLAGS: Mapping[tuple[tuple[str, ...], tuple[str, ...]], float] = {
    ((), ()): 38.0,
    (("",), ("",)): 34.8,
    (("-O3",), ()): 9.0,
    ((), ("-O3", "--use_fast_math")): 4.4,
    (("-O3",), ("-O3", "--use_fast_math")): 3.7,
    (("-O3",), ("-O3",)): 2.0,
    (("-O2",), ()): 1.5,
    ((), ("-O3",)): 1.3,
    (("-O3", "-std=c++17"), ("-O3", "-std=c++17")): 1.2,
    ((), ("-O3", "-use_fast_math")): 0.5,
    ((), ("-lineinfo",)): 0.6,
    ((), ("-Xptxas", "-v")): 0.6,
    ((), ("-arch=sm_90a",)): 0.6,
    ((), ("-O3", "--expt-relaxed-constexpr")): 0.6,
    (("-O3",), ("-O3", "--maxrregcount=64")): 0.4,
    (("-O3", "-march=native"), ("-O3",)): 0.4,
    (("-O3", "-fopenmp"), ("-O2", "-DTILE=32")): 0.4,
}
# Headers that a source begins with, beside the kernel's own.
HEADERS: Mapping[tuple[str, ...], float] = {
    ("<torch/extension.h>", "<cuda_runtime.h>"): 62.0,
    ("<torch/extension.h>",): 21.0,
    ("<torch/extension.h>", "<cuda.h>", "<cuda_runtime.h>"): 5.0,
    ("<torch/extension.h>", "<c10/cuda/CUDAGuard.h>"): 5.0,
    ("<torch/extension.h>", "<ATen/cuda/CUDAContext.h>"): 1.0,
    ("<torch/extension.h>", "<c10/cuda/CUDAStream.h>"): 0.6,
    ("<ATen/ATen.h>", "<cuda_runtime.h>"): 1.0,
    (): 4.4,
}


@dataclass(frozen=True)
class Drawn:
    """One call of ``load_inline``. ``number`` is its place in the draw, ``kind`` one of KINDS;
    ``wrong`` names its mistake, "" where there is none; ``of`` is the call that it edits or
    repeats."""

    number: int
    kind: str
    kernel: str
    wrong: str
    arguments: Mapping[str, Any]
    check: str
    of: int | None = None


@dataclass(frozen=True)
class _Design:
    kernel: Kernel
    headers: tuple[str, ...]
    flags: tuple[tuple[str, ...], tuple[str, ...]]
    values: Mapping[str, object]


def calls(count: int, seed: int) -> list[Drawn]:
    """``count`` calls; the first ones of a longer draw with this seed are the same."""
    return [drawn for drawn, _ in zip(_endless(random.Random(seed)), range(count), strict=False)]


def _endless(chance: random.Random) -> Iterator[Drawn]:
    made: list[tuple[Drawn, _Design]] = []  # what may be repeated or edited: it compiles
    number = 0
    while True:
        kind = _picked(chance, {REPEAT: REPEATS, EDIT: EDITS, NEW: 1 - REPEATS - EDITS})
        wrong = chance.random() < MISTAKES / (1 - REPEATS)
        before = chance.choice(made[-20:]) if made else None
        mistake = _picked(chance, WRONG)
        design = _new(chance, number)
        if before is not None and kind == REPEAT:
            yield Drawn(**{**vars(before[0]), "number": number, "kind": REPEAT,
                           "of": before[0].number})  # fmt: skip
        else:
            of = None
            if before is not None and kind == EDIT:
                values = {**before[1].values, "edit": number + 2}
                design = _Design(before[1].kernel, before[1].headers, before[1].flags, values)
                of = before[0].number
            drawn = _call(number, design, mistake if wrong else "", of)
            if not wrong:
                made.append((drawn, design))
            yield drawn
        number += 1


def _new(chance: random.Random, number: int) -> _Design:
    values = {
        "n": 1000 + number,
        "edit": number + 2,
        "threads": chance.choice([128, 256, 256, 256, 512]),
        "tile": chance.choice([16, 16, 32]),
        "activation": chance.choice(ACTIVATIONS),
    }
    kernel = _picked(chance, {one: one.share for one in KERNELS})
    return _Design(kernel, _picked(chance, HEADERS), _picked(chance, FLAGS), values)


def _call(number: int, design: _Design, wrong: str, of: int | None) -> Drawn:
    kernel, name = design.kernel, f"f_{design.values['n']}"
    if kernel.binds and wrong == WRONG_BINDING:
        wrong = "member"  # it has no declarations
    headers = design.headers
    if kernel.binds and "<torch/extension.h>" not in headers:
        headers = ("<torch/extension.h>", *headers)
    cuda, declared = kernels.source(kernel, headers, wrong, design.values)
    cflags, cuda_cflags = design.flags
    arguments: dict[str, Any] = {
        "name": f"kernel_{design.values['n']}",
        "cpp_sources": [] if kernel.binds else [declared],
        "cuda_sources": [cuda],
        **({} if kernel.binds else {"functions": [name]}),
        **({"extra_cflags": list(cflags)} if cflags else {}),
        **({"extra_cuda_cflags": list(cuda_cflags)} if cuda_cflags else {}),
        **({"extra_include_paths": library_headers()} if _wants_libraries(cuda) else {}),
    }
    kind = NEW if of is None else EDIT
    return Drawn(number, kind, kernel.name, wrong, arguments, f"hasattr(module, '{name}')", of)


def _wants_libraries(text: str) -> bool:
    return "CUDAContext.h" in text or "cublas" in text


def _picked(chance: random.Random, shares: Mapping[T, float]) -> T:
    return chance.choices(list(shares), list(shares.values()))[0]
