"""``load`` of ten files, one of which was edited: nine of the standard library's headers, one with torch/extension.h.

The edited one is of the light kind, so that what is measured is how much is done again, not how fast a header is.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.harness import Outcome, Series, World, interleaved

TITLE = "edit one of ten sources"
REPEAT = 5
CODE = """
folder = sys.argv[1]
sources = [f"{folder}/part{i}.cpp" for i in range(9)] + [f"{folder}/binding.cpp"]
start = time.perf_counter()
module = cpp.load("ten_parts", sources)
seconds = time.perf_counter() - start
assert module.total() == int(sys.argv[2]), module.total()
report(seconds)
"""
PART = "#include <regex>\n#include <map>\n#include <string>\nint part{i}() {{ return {value}; }}\n"


def write(folder: Path, edited: int) -> int:
    """Write the ten files with ``edited`` in the fourth; gives the total that the module must tell."""
    folder.mkdir(exist_ok=True)
    values = [edited if i == 3 else i for i in range(9)]
    for i, value in enumerate(values):
        path, text = folder / f"part{i}.cpp", PART.format(i=i, value=value)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    declared = "".join(f"int part{i}();\n" for i in range(9))
    total = " + ".join(f"part{i}()" for i in range(9))
    binding = folder / "binding.cpp"
    if not binding.exists():
        binding.write_text(
            f"#include <torch/extension.h>\n{declared}int total() {{ return {total}; }}\n"
            'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("total", &total); }\n'
        )
    return sum(values)


def measure(repeat: int) -> Outcome:
    with World(WARMCC_PREWARM="") as world:
        world.start(wait=False)

        def run(side: str, number: int) -> float:
            folder = world.folder / f"sources-{side}"
            return world.run(side, CODE, str(folder), str(write(folder, 100 + number)))

        for side in ("warmcc", "stock"):
            run(side, -1)
        series = interleaved(
            repeat,
            (Series("warmcc", "warmcc"), lambda n: run("warmcc", n)),
            (Series("stock", "stock"), lambda n: run("stock", n)),
        )
        return Outcome("edit_one_of_ten", TITLE, series, ("warmcc", "stock"))
