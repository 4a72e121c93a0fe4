"""Three sources of real size (``benchmarks/sources``: a fused optimizer step, a custom autograd
function, a tokenizer with std containers), default headers and ``functions=``, each with a constant
that nobody has seen; in a new process that has torch imported: from the call to the module.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import Call, Caller, Side, World, interleaved, new_number
from benchmarks.harness.results import Outcome, Pair, Target, pair

TITLE = "cold: a fused optimizer step"
REPEAT = 3
LIMIT_RATIO = 5.0
SOURCES = Path(__file__).parents[1] / "sources"


@dataclass(frozen=True)
class Source:
    """A source file, what it binds, and an expression that its module has to make true."""

    file: str
    title: str
    functions: list[str]
    check: str

    def call(self) -> Call:
        number = new_number()
        text = f"{(SOURCES / self.file).read_text()}\nint marker() {{ return {number}; }}\n"
        arguments = {"cpp_sources": text, "functions": [*self.functions, "marker"]}
        name = f"{self.file.partition('.')[0]}_{number}"
        return Call(
            "load_inline", name, arguments, f"module.marker() == {number} and ({self.check})"
        )


ADAMW = """(lambda p, q: (
  q.__setattr__("grad", p[1]),
  torch.optim.AdamW([q], lr=0.1, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.01).step(),
  module.fused_adamw([p[0]], [p[1]], [p[2]], [p[3]], [], 1, 0.1, 0.9, 0.99, 1e-8, 0.01, 0.0, 1.0,
                     False, False),
  torch.allclose(p[0], q, atol=1e-6))[-1])(
  [torch.linspace(-1, 1, 9), torch.linspace(3, -2, 9), torch.zeros(9), torch.zeros(9)],
  torch.nn.Parameter(torch.linspace(-1, 1, 9)))"""
SWIGLU = """(lambda x: torch.autograd.gradcheck(lambda y: module.swiglu(y, 1.5, 0.7), (x,)))(
  torch.linspace(-1, 1, 8, dtype=torch.double).reshape(2, 4).requires_grad_())"""
TOKENIZER = """(lambda text: (
  lambda merges: module.decode(module.encode([text], merges, -1)[0], merges) == text
  and len(merges) == 10
)(module.train(text, 10)))("the cat and the hat sat on the mat with the rat")"""

ALL = [
    Source("fused_adamw.cpp", TITLE, ["fused_adamw"], ADAMW),
    Source(
        "swiglu_autograd.cpp", "a custom autograd function", ["swiglu", "quantized_swiglu"], SWIGLU
    ),
    Source(
        "tokenizer.cpp", "a tokenizer with std containers", ["train", "encode", "decode"], TOKENIZER
    ),
]


def measure(repeat: int) -> Outcome:
    pairs: list[Pair] = []
    with World() as world:

        def sample(side: Side, source: Source) -> float:
            with Caller(world, side) as caller:
                return caller.make(side, source.call())

        world.wait_for_pch()
        objects = world.stock_objects()
        for source in ALL:
            taken = interleaved(
                repeat,
                {
                    side: lambda side=side, source=source: sample(side, source)
                    for side in ("stock", "warmcc")
                },
            )
            pairs.append(pair(source.title if pairs else "", taken["stock"], taken["warmcc"]))
        world.stock_compiles(objects, repeat * len(ALL))
        used = world.status()["accelerators"]["ways"]["used"]
    targets = [
        Target(f"{source.title.removeprefix('cold: ')}: {one.ratio:.1f} times, "
               f"at least {LIMIT_RATIO:g}",
               one.ratio >= LIMIT_RATIO)
        for source, one in zip(ALL, pairs, strict=True)
    ]  # fmt: skip
    return Outcome(pairs[0], pairs[1:], targets, {"ways": used})
