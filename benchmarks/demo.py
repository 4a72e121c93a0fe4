"""``make demo``: the main job on real input. Builds an extension with stock torch and with warmcc, step by step."""

from __future__ import annotations

import random
import sys
import time

from benchmarks.__main__ import seconds
from benchmarks.harness import World, say

SOURCE = """
// A fused bias + GELU, as a kernel author would try it on the CPU first.
at::Tensor bias_gelu(const at::Tensor& x, const at::Tensor& bias) {
  TORCH_CHECK(x.size(-1) == bias.numel(), "bias has ", bias.numel(), " elements");
  auto y = x.contiguous() + bias;
  return y * 0.5 * (1 + at::erf(y * M_SQRT1_2)) * SCALE;
}
"""
CODE = """
source, name = sys.argv[1], sys.argv[2]
start = time.perf_counter()
module = cpp.load_inline(name, source, functions=["bias_gelu"])
elapsed = time.perf_counter() - start
x, bias = torch.linspace(-3, 3, 64).reshape(8, 8), torch.linspace(0, 1, 8)
expected = torch.nn.functional.gelu(x + bias) * float(sys.argv[3])
torch.testing.assert_close(module.bias_gelu(x, bias), expected)
report(elapsed)
"""


def main() -> int:
    name = f"demo_{random.randrange(10**6)}"
    steps = [("first build", "1.0"), ("nothing changed, new process", "1.0"), ("edited", "2.0")]
    table: dict[str, dict[str, float]] = {step: {} for step, _ in steps}
    began = time.monotonic()
    with World() as world:
        say("Starting a warmcc daemon of its own for this demo; it precompiles torch's headers once per machine …")
        world.start()
        ready = time.monotonic() - began
        for side in ("warmcc", "stock"):
            for step, scale in steps:
                say(f"{side}: {step} …")
                table[step][side] = world.run(side, CODE, SOURCE.replace("SCALE", scale), name, scale)
        compiles = world.status()["compiles"]
    print(f"\n{'':<30} {'warmcc':>10} {'stock torch':>12}")
    for step, _ in steps:
        ours, theirs = table[step]["warmcc"], table[step]["stock"]
        print(f"{step:<30} {seconds(ours):>10} {seconds(theirs):>12}  {theirs / ours:6.1f}×")
    print(
        f"\nAll results equal torch.nn.functional.gelu. warmcc compiled {compiles} times; its daemon was warm after {ready:.0f} s."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
