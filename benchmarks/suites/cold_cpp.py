"""A C++ toy that nobody has built before (default headers, ``functions=``), in a new process that
has torch imported: from the call to the module.

Every sample has a source of its own, so that no cache can know it. warmcc is measured when it has
warmed up; its very first request of all, without precompiled headers and while they are being
built, is measured too. In the same turns: stock behind ccache (which has not seen the source
either), and tvm-ffi's ``load_inline`` with a toy of its own, which includes no header of torch.
After these, because it leaves a precompiled header in torch's folder that g++ would find in every
other build: stock with ``use_pch=True``.
"""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from statistics import median

from benchmarks.harness import (
    Call,
    Caller,
    Side,
    Unsound,
    World,
    interleaved,
    new_number,
    new_toy,
    say,
    seconds,
)
from benchmarks.harness.results import Outcome, Target, pair

TITLE = "cold: a C++ source never seen before"
REPEAT = 5
COLD_SECONDS = 1.2
COLD_RATIO = 20.0
TVM_FFI_TOY = """
void f(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {{
  for (int64_t i = 0; i < x.size(0); ++i) {{
    static_cast<float*>(y.data_ptr())[i] = static_cast<float*>(x.data_ptr())[i] * {number};
  }}
}}
"""


def tvm_ffi_toy() -> Call:
    number = new_number()
    check = f"(lambda y: (module.f(torch.ones(1), y), y.item())[1])(torch.zeros(1)) == {number}"
    arguments = {"cpp_sources": TVM_FFI_TOY.format(number=number), "functions": "f"}
    return Call("load_inline", f"tvm_ffi_{number}", arguments, check)


def with_its_pch(world: World, repeat: int) -> list[float]:
    """Samples of stock with ``use_pch=True``, after the call that builds the header; removes the
    header at the end.
    """
    import torch

    built = Path(torch.__file__).parent / "include" / "torch" / "extension.h.gch"
    if built.exists():
        raise Unsound(f"{built} would be found by every build of stock's; remove it")
    try:
        samples = []
        for _ in range(repeat + 1):
            call = new_toy()
            call.arguments["use_pch"] = True
            with Caller(world, "stock") as caller:
                samples.append(caller.make("stock", call))
            say(f"  stock with use_pch: {seconds(samples[-1])}")
        return samples[1:]
    finally:
        for left in (built, built.with_name("extension.h.sign")):
            left.unlink(missing_ok=True)


def measure(repeat: int) -> Outcome:
    with World() as world:

        def sample(side: Side, call: Call | None = None, **environment: str | None) -> float:
            with Caller(world, side, environment=environment) as caller:
                return caller.make(side, call or new_toy())

        first = sample("warmcc")
        say(f"  first request of all, no precompiled header yet: {seconds(first)}")
        waited = world.wait_for_pch()
        say(f"  waited {seconds(waited)} for the daemon to warm up")
        before, objects = world.counters(), world.stock_objects()
        sides = {"stock": lambda: sample("stock"), "warmcc": lambda: sample("warmcc")}
        if shutil.which("ccache"):
            cache = {
                "CXX": "ccache c++",
                "CCACHE_DISABLE": None,
                "CCACHE_DIR": str(world.folder / "ccache"),
            }
            sides["stock behind ccache"] = lambda: sample("stock", **cache)
        if importlib.util.find_spec("tvm_ffi"):
            sides["tvm-ffi"] = lambda: sample("tvm_ffi", tvm_ffi_toy())
        taken = interleaved(repeat, sides)
        facts = world.expect(
            before, compiles=repeat, units_reused=2 * repeat, pch_used=repeat, hits=0
        )
        world.stock_compiles(objects, repeat * sum(side.startswith("stock") for side in sides))
        taken["stock with use_pch=True"] = with_its_pch(world, repeat)
    headline = pair("", taken.pop("stock"), taken.pop("warmcc"))
    others = [
        pair(f"beside {side}", times, headline.warmcc.samples) for side, times in taken.items()
    ]
    ours, ratio = headline.warmcc.median, headline.ratio
    targets = [
        Target(f"{seconds(ours)}, at most {seconds(COLD_SECONDS)}", ours <= COLD_SECONDS),
        Target(
            f"stock takes {ratio:.1f} times as long, at least {COLD_RATIO:g}", ratio >= COLD_RATIO
        ),
    ]
    if "tvm-ffi" in taken:
        other = median(taken["tvm-ffi"])
        targets.append(Target(f"faster than tvm-ffi, which takes {seconds(other)}", ours < other))
    others.append(pair("very first request, before warming up", headline.stock.samples, [first]))
    return Outcome(headline, others, targets, facts)
