"""``make demo``: the main job on real input. Builds an extension with stock torch and with warmcc,
step by step.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import cast

from benchmarks.harness import Call, Caller, Side, World, say, seconds
from benchmarks.harness.table import ratio

SOURCE = """
// A fused bias + GELU, as a kernel author would try it on the CPU first.
at::Tensor bias_gelu(const at::Tensor& x, const at::Tensor& bias) {
  TORCH_CHECK(x.size(-1) == bias.numel(), "bias has ", bias.numel(), " elements");
  auto y = x.contiguous() + bias;
  return y * 0.5 * (1 + at::erf(y * M_SQRT1_2)) * SCALE;
}
"""
CHECK = """(
  lambda x, bias: torch.allclose(
    module.bias_gelu(x, bias), torch.nn.functional.gelu(x + bias) * SCALE, atol=1e-6)
)(torch.linspace(-3, 3, 64).reshape(8, 8), torch.linspace(0, 1, 8))"""
# With the scale, and how often: what takes milliseconds takes another time each time.
STEPS = {
    "first build": ("1.0", 1),
    "nothing changed, new process": ("1.0", 5),
    "edited": ("2.0", 1),
}
SIDES = ("warmcc", "stock")


def build(world: World, side: Side, scale: str) -> float:
    """Build the extension in a new process, call it, and compare; gives the seconds of the
    build.
    """
    arguments = {"cpp_sources": SOURCE.replace("SCALE", scale), "functions": ["bias_gelu"]}
    call = Call("load_inline", "demo", arguments, CHECK.replace("SCALE", scale))
    with Caller(world, side) as caller:
        return caller.make(side, call)


def main() -> int:
    table: dict[str, dict[str, float]] = {step: {} for step in STEPS}
    say(
        "Starting a warmcc daemon of its own for this demo; it precompiles torch's "
        "headers once per machine …"
    )
    began = time.monotonic()
    with World() as world:
        world.wait_for_pch()
        ready = time.monotonic() - began
        for side in SIDES:
            for step, (scale, times) in STEPS.items():
                say(f"{side}: {step} …")
                taken = [build(world, cast(Side, side), scale) for _ in range(times)]
                table[step][side] = statistics.median(taken)
        compiles = world.counters()["compiles"]
    print(f"\n{'':<30} {'warmcc':>10} {'stock torch':>12} {'ratio':>7}")
    for step, row in table.items():
        shown = ratio(row["stock"] / row["warmcc"])
        print(f"{step:<30} {seconds(row['warmcc']):>10} {seconds(row['stock']):>12} {shown:>7}")
    print("\nAll results equal torch.nn.functional.gelu.", end=" ")
    print(f"warmcc compiled {compiles} times; its daemon was warm after {ready:.0f} s.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
