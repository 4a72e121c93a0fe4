"""``python -m benchmarks.corpus``: build every CUDA unit of the corpus with stock torch and with
warmcc, at its lean and at its warm level. The PTX and the machine code must be the same; where
there is a GPU all run: the same numbers, and the same time in the kernels.

Stock builds ``--jobs`` units at a time while the daemon warms up; its times are therefore not
compared here (the scenarios do that). Exit code 1 when a unit differs or does not build.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.harness import device_code, say
from benchmarks.harness.cuda import CudaWorld

UNITS = sorted((Path(__file__).parents[1] / "tests/cuda/units").glob("*.cu"))
# What is appended to a unit to have it built at a level: a condition on a macro of torch's is not
# for the lean one.
LEVELS = {"lean": "", "warm": "\n#ifdef TORCH_API\n#endif\n"}

_BUILD = """
import json, sys, time
import torch
from importlib import import_module
side, name, path, folder, ending = sys.argv[1:6]
names = {"stock": "torch.utils.cpp_extension", "warmcc": "warmcc"}
load_inline = getattr(import_module(names[side]), "load_inline")
arguments = {"build_directory": folder} if side == "stock" else {}
started = time.perf_counter()
module = load_inline(
    name, "torch::Tensor run(torch::Tensor x);", cuda_sources=open(path).read() + ending,
    functions=["run"], **arguments
)
print(json.dumps({"seconds": time.perf_counter() - started, "file": module.__file__}))
"""
_RUN = """
import importlib.util, json, statistics, sys
import torch

def load(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

def kernel_times(module, x):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(50):
            module.run(x)
        torch.cuda.synchronize()
    times = {}
    for event in profile.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            times.setdefault(event.name, []).append(event.device_time)
    return {name: statistics.median(values) for name, values in times.items()}

name, stock, warm, warm_name = sys.argv[1:5]
stock, warm = load(stock, "stock_" + name), load(warm, warm_name)
x = torch.randn(1 << 16, generator=torch.Generator().manual_seed(1)).cuda()
ours, theirs = warm.run(x), stock.run(x)
close = torch.allclose(ours, theirs, rtol=1e-5, atol=1e-6, equal_nan=True)
same = ours.dtype == theirs.dtype and close
for module in (stock, warm):
    kernel_times(module, x)
times = {"stock": kernel_times(stock, x), "warmcc": kernel_times(warm, x)}
print(json.dumps({"same": bool(same), "kernels": times}))
"""


def call(code: str, words: list[str], environment: dict[str, str]) -> dict[str, Any]:
    """Run a script in a process of its own; what it says last is JSON. Raises RuntimeError."""
    done = subprocess.run(
        [sys.executable, "-c", code, *words], env=environment, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise RuntimeError((done.stdout + done.stderr)[-3000:])
    found: dict[str, Any] = json.loads(done.stdout.strip().split("\n")[-1])
    return found


def attempt(code: str, words: list[str], environment: dict[str, str]) -> dict[str, Any]:
    try:
        return call(code, words, environment)
    except RuntimeError as error:
        return {"error": str(error)}


def measure(chosen: list[Path], levels: list[str], jobs: int) -> list[dict[str, Any]]:
    world = CudaWorld(cuda_memory="32GiB")  # the machine's own memory is the limit
    if "+PTX" not in (architectures := world.environment.get("TORCH_CUDA_ARCH_LIST", "9.0")):
        world.environment["TORCH_CUDA_ARCH_LIST"] = (
            f"{architectures}+PTX"  # the PTX too is in the module
        )
    with world, ThreadPoolExecutor(jobs) as pool:
        plain = {**world.environment, "TORCH_NO_COMPILER_WRAPPER": "1", "MAX_JOBS": "2"}

        def stock(path: Path) -> dict[str, Any]:
            folder = world.folder / "stock" / path.stem
            folder.mkdir(parents=True)
            return attempt(
                _BUILD, ["stock", f"stock_{path.stem}", str(path), str(folder), ""], plain
            )

        pending = {path: pool.submit(stock, path) for path in chosen}
        theirs = {path: future.result() for path, future in pending.items()}
        say("stock has built all; waiting for the daemon to warm up")
        world.wait_for_pch()
        world.wait_for_cuda()
        with ThreadPoolExecutor(1) as running:  # one at a time has the GPU, while the next is built
            rows = []
            for level, path in itertools.product(levels, chosen):
                built = build(world, path, level)
                rows.append(running.submit(compare, built, path, theirs[path], world.environment))
            return [row.result() for row in rows]


def build(world: CudaWorld, path: Path, wanted: str) -> dict[str, Any]:
    """Build a unit with warmcc, twice when it was not warm the first time."""
    for again in ("", "// again\n"):
        before = world.cuda_levels()
        words = ["warmcc", f"corpus_{wanted}_{path.stem}", str(path), "", LEVELS[wanted] + again]
        ours = attempt(_BUILD, words, world.environment)
        levels = [
            level for level, count in world.cuda_levels().items() if count != before.get(level, 0)
        ]
        if levels == [wanted] or world.is_warm():
            break
        world.wait_for_cuda()
    return {**ours, "name": words[1], "wanted": wanted, "level": levels[0] if levels else "none"}


def compare(
    ours: dict[str, Any], path: Path, theirs: dict[str, Any], environment: dict[str, str]
) -> dict[str, Any]:
    """Compare what warmcc built with stock's: the device code, and where there is a GPU the numbers
    and the times.
    """
    row: dict[str, Any] = {"unit": path.stem, "wanted": ours["wanted"], "level": ours["level"]}
    if error := ours.get("error") or theirs.get("error"):
        return row | {"error": error[-800:]}
    row |= {"seconds": round(ours["seconds"], 2), "stock": round(theirs["seconds"], 2)}
    row["device code differs"] = device_code.differing(
        *(device_code.extract(Path(x["file"])) for x in (ours, theirs))
    )
    if os.path.exists("/proc/driver/nvidia") or os.path.exists("/dev/nvidia0"):
        row |= attempt(_RUN, [path.stem, theirs["file"], ours["file"], ours["name"]], environment)
        if "kernels" in row:
            row["kernel_ratio"] = kernel_ratio(row["kernels"])
    say(
        f"  {path.stem}: "
        f"{json.dumps({k: v for k, v in row.items() if k not in ('unit', 'kernels')})}"
    )
    return row


def kernel_ratio(kernels: dict[str, dict[str, float]]) -> float:
    """The time in all kernels together, without copies, warmcc's by stock's."""
    total = {
        side: sum(took for name, took in times.items() if not name.startswith(("Memcpy", "Memset")))
        for side, times in kernels.items()
    }
    return round(total["warmcc"] / total["stock"], 3) if total["stock"] else 1.0


def is_wrong(row: dict[str, Any]) -> bool:
    return "error" in row or bool(row["device code differs"]) or row.get("same") is False


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.corpus", description=__doc__)
    parser.add_argument("unit", nargs="*", help="names of units (default: all)")
    parser.add_argument("--level", choices=list(LEVELS), help="build at this one only")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="units that stock builds at a time"
    )
    parser.add_argument("--json", type=Path, help="where to put the raw figures")
    arguments = parser.parse_args()
    chosen = [path for path in UNITS if not arguments.unit or path.stem in arguments.unit]
    levels = [arguments.level] if arguments.level else list(LEVELS)
    rows = measure(chosen, levels, arguments.jobs)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
    wrong = [row["unit"] for row in rows if is_wrong(row)]
    for level in levels:
        asked = [row for row in rows if row["wanted"] == level]
        print(f"{len(asked)} units, {sum(row['level'] == level for row in asked)} of them {level}")
    print(f"wrong: {', '.join(wrong) or 'none'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
