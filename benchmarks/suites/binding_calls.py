"""What one call of a function costs that does nothing, in one process: bound by stock's
``load_inline`` (pybind11), and by warmcc. One row for each signature; the function is the same.
Then the same with ``-O3``, behind which g++ optimises stock's binding, too; warmcc's is one for all
flags.
"""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks.harness import Unsound, World, say, seconds
from benchmarks.harness.results import Outcome, Pair, Target, pair

TITLE = "a call through the binding, a tensor in and out"
REPEAT = 200
FLAGS = {"": [], ", -O3": ["-O3"]}  # what the names of rows end with
NOISE = 1.03  # by which two equal series differ on a quiet machine

# Name, function of C++, arguments in Python
SIGNATURES = [
    ("tensor", "at::Tensor f0(at::Tensor x) { return x; }", "x"),
    ("nothing", "void f1() {}", ""),
    ("tensors", "void f2(at::Tensor x, const at::Tensor& y, at::Tensor z) {}", "x, x, x"),
    ("numbers", "double f3(int64_t n, double k, bool b) { return k; }", "3, 0.5, True"),
    ("a list of numbers", "int64_t f4(std::vector<int64_t> s) { return s[0]; }", "[1, 2, 3]"),
    ("a list of tensors", "void f5(std::vector<at::Tensor> l) {}", "[x, x]"),
    ("a string", "std::string f6(std::string s) { return s; }", "'linear'"),
    ("nothing or a tensor", "bool f7(std::optional<at::Tensor> x) { return !x; }", "None"),
    ("two tensors out", "std::tuple<at::Tensor, at::Tensor> f8(at::Tensor x) { return {x, x}; }",
     "x"),
    ("a new tensor out", "at::Tensor f9(at::Tensor x) { return x.detach(); }", "x"),
    ("eight arguments",
     "void f10(at::Tensor a, at::Tensor b, at::Tensor c, at::Tensor d, int64_t e, int64_t f,"
     " double g, bool h) {}", "x, x, x, x, 1, 2, 0.5, False"),
]  # fmt: skip

_CHILD = """
import json, sys
import torch
import torch.utils.cpp_extension
import warmcc
from warmcc.client.measuring.calls import clock

given = json.loads(sys.stdin.read())
sources = "\\n".join(source for _, source, _ in given["signatures"])
names = [f"f{number}" for number in range(len(given["signatures"]))]
x = torch.rand(8)
rows = []
for behind, flags in given["flags"].items():
    call = {"functions": names, "extra_cflags": flags}
    name = f"binding_calls{len(rows)}"
    modules = {
        "stock": torch.utils.cpp_extension.load_inline(
            name, sources, build_directory=given["folders"][behind], **call),
        "warmcc": warmcc.load_inline(name, sources, **call),
    }
    for number, (name, _, arguments) in enumerate(given["signatures"]):
        values = eval(f"({arguments},)" if arguments else "()", {"x": x})
        for side, module in modules.items():
            row = f"{side}:{name}{behind}"
            rows.append(clock.Row(row, "", getattr(module, f"f{number}"), values))
    with open(modules["warmcc"].__file__, "rb") as file:
        if b"warmcc_init" not in file.read():
            sys.exit("warmcc has left the functions to pybind11")
clock.sample(rows, given["samples"])
if failed := [row.failure for row in rows if row.failure]:
    sys.exit(failed[0])
print(json.dumps({row.name: row.samples for row in rows}))
"""


def measure(repeat: int) -> Outcome:
    with World(prewarm=";-O3") as world:
        world.wait_for_pch()
        say("  building both (stock takes up to a minute)")
        done = subprocess.run(
            [sys.executable, "-c", _CHILD], env=world.environment, cwd=world.folder, text=True,
            capture_output=True, check=False,
            input=json.dumps({
                "signatures": SIGNATURES, "samples": repeat, "flags": FLAGS,
                "folders": {
                    behind: str(world.build_folder("stock", f"binding_calls{number}"))
                    for number, behind in enumerate(FLAGS)
                },
            }),
        )  # fmt: skip
        if done.returncode != 0:
            raise Unsound(done.stderr[-3000:])
    taken = json.loads(done.stdout.splitlines()[-1])
    names = [f"{name}{behind}" for behind in FLAGS for name, _, _ in SIGNATURES]
    pairs = [
        pair(name if number else "", taken[f"stock:{name}"], taken[f"warmcc:{name}"])
        for number, name in enumerate(names)
    ]
    return Outcome(pairs[0], pairs[1:], [_target(one) for one in pairs[: len(SIGNATURES)]])


def _target(one: Pair) -> Target:
    name = one.label or SIGNATURES[0][0]
    ours, theirs = one.warmcc.median, one.stock.median
    text = f"{name}: {seconds(ours)}, stock {seconds(theirs)}; not slower"
    return Target(text, ours <= theirs * NOISE)
