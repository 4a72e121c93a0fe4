"""``load`` of ten files after an edit to one of them, in a new process that has torch imported:
from the call to the module.

Nine files include only ``<vector>`` and ``<Python.h>``, the tenth is the binding and includes
``torch/extension.h``. The edited file is one of the nine: what is measured is how little is done
again, not how fast headers are read.
"""

from __future__ import annotations

import itertools
from pathlib import Path

from benchmarks.harness import Call, Caller, Side, World, interleaved
from benchmarks.harness.results import Outcome, pair

TITLE = "edit: one of ten source files"
REPEAT = 5
EDITED = 4
PART = """\
#include <Python.h>
#include <vector>
int part{number}() {{
  std::vector<int> values = {{{value}, 1, 1}};
  int sum = 0;
  for (int value : values) sum += value;
  return sum - 2;
}}
"""
BINDING = """\
#include <torch/extension.h>
{declarations}
at::Tensor f(at::Tensor x) {{ return x * ({sum}); }}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("f", &f); }}
"""


def write(folder: Path, value: int) -> Call:
    """Write the files whose text changes when ``value`` is in the edited one; gives the call that
    loads all ten.
    """
    folder.mkdir(exist_ok=True)
    values = [value if number == EDITED else number for number in range(9)]
    texts = {
        f"part{number}.cpp": PART.format(number=number, value=each)
        for number, each in enumerate(values)
    }
    texts["binding.cpp"] = BINDING.format(
        declarations="\n".join(f"int part{number}();" for number in range(9)),
        sum=" + ".join(f"part{number}()" for number in range(9)),
    )
    for name, text in texts.items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    arguments = {"sources": [str(folder / name) for name in texts]}
    return Call("load", "ten_files", arguments, f"module.f(torch.ones(1)).item() == {sum(values)}")


def measure(repeat: int) -> Outcome:
    # The edited file does not start with torch's headers; without PCH none is built in the
    # background meanwhile.
    with World(pch="0") as world:
        values = itertools.count(100)

        def sample(side: Side) -> float:
            call = write(
                world.folder / f"files-{side}", next(values)
            )  # each side its own, so that both see each edit
            with Caller(world, side) as caller:
                return caller.make(side, call)

        for side in ("stock", "warmcc"):
            sample(side)
        before, objects = world.counters(), world.stock_objects()
        taken = interleaved(
            repeat, {"stock": lambda: sample("stock"), "warmcc": lambda: sample("warmcc")}
        )
        facts = world.expect(before, compiles=repeat, units_reused=9 * repeat, hits=0)
        world.stock_compiles(objects, 1)  # one object, however often it was compiled
    return Outcome(pair("", taken["stock"], taken["warmcc"]), facts=facts)
