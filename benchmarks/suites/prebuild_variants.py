"""20 variants of the attention kernel in ``examples/fa_variants``, a Latin hypercube of 2,592: each
by a call of stock's ``load`` in one process, and all by one ``warmcc.prebuild`` with a warm daemon
that knows none of them. Also the import of the package and of one of its variants, after torch.

``WARMCC_BENCH_VARIANTS=5`` has stock build five of them; its time is then scaled to all, and the
result says so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import Call, Caller, Unsound, interleaved, new_number, say, seconds
from benchmarks.harness.cuda import CudaWorld
from benchmarks.harness.results import Outcome, Target, pair
from warmcc.client.prebuild import plan, spec

TITLE = "20 variants of a CUDA kernel"
REPEAT = 1
RATIO, IMPORT_SECONDS = 8.0, 0.050
SPEC = Path(__file__).parents[2] / "examples" / "fa_variants" / "spec.toml"
_IMPORT = """
import sys, time
import torch
sys.path.insert(0, sys.argv[1])
started = time.perf_counter()
import fa_variants
from fa_variants import run_config_0
print(time.perf_counter() - started)
early = {"warmcc", "msgspec"} & set(sys.modules)
if early: sys.exit(f"the package has imported {early}")
"""
# What load_inline puts in front of a source for nvcc, and around a declaration
_FRONT = "#include <torch/types.h>\n#include <cuda.h>\n#include <cuda_runtime.h>\n"
_MODULE = '\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("{name}", &{name}); }}\n'


def new_spec(folder: Path) -> Path:
    """The example's spec with a source that no daemon has seen."""
    folder.mkdir()
    number = new_number()
    text = (SPEC.parent / "attention.cu").read_text()
    changes = {  # in the kernel, and in the host's code
        "constexpr float NEVER = -1e30f;": f"constexpr float NEVER = -{number}e27f;",
        " must be a contiguous tensor": f" ({number}) must be a contiguous tensor",
    }
    for old, new in changes.items():
        if old not in text:
            raise Unsound(f"the kernel's text has changed: it has no {old!r}")
        text = text.replace(old, new)
    (folder / "attention.cu").write_text(text)
    (folder / "spec.toml").write_text(SPEC.read_text())
    return folder / "spec.toml"


def jobs(path: Path) -> list[plan.Job]:
    read = spec.read(path)
    made = plan.plan(
        read.name, read.variants, read.template, entry=read.entry, version=read.version
    )
    return made.jobs


def stock_call(job: plan.Job, folder: Path) -> Call:
    """The files of a variant, and the call of ``load`` that builds them."""
    folder.mkdir(parents=True)
    (cuda,) = job.arguments["cuda_sources"]
    entry = job.arguments["functions"][0]
    (folder / "kernel.cu").write_text(_FRONT + cuda)
    declaration = f"#include <torch/extension.h>\n{job.arguments['cpp_sources']}"
    (folder / "binding.cpp").write_text(declaration + _MODULE.format(name=entry))
    sources = [str(folder / name) for name in ("binding.cpp", "kernel.cu")]
    return Call("load", job.module, {"sources": sources}, f"callable(module.{entry})")


def stock(world: CudaWorld, chosen: list[plan.Job], total: int) -> float:
    """Seconds for all variants, one call after the other, scaled from those that are chosen."""
    with Caller(world, "stock") as caller:
        took = 0.0
        for job in chosen:
            call = stock_call(job, world.folder / "sources" / f"{job.module}-{new_number()}")
            took += caller.make("stock", call)
            say(f"    stock: {job.key}")
    return took * total / len(chosen)


def warm(world: CudaWorld, path: Path, output: Path) -> float:
    """Seconds of ``warmcc prebuild`` as a command. Raises Unsound."""
    words = ["prebuild", str(path), "--output", str(output), "--json"]
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "warmcc.client.cli", *words], env=world.environment,
        cwd=world.folder, capture_output=True, text=True,
    )  # fmt: skip
    took = time.perf_counter() - started
    if done.returncode != 0:
        raise Unsound(f"warmcc prebuild failed:\n{done.stderr[-3000:]}")
    made: dict[str, Any] = json.loads(done.stdout)
    if made["compiled"] != len(made["variants"]):
        raise Unsound(f"not every variant was compiled: {made['how']}")
    return took


def import_seconds(world: CudaWorld, folder: Path) -> float:
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT, str(folder)], env=world.environment, cwd=world.folder,
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode != 0:
        raise Unsound(done.stderr)
    return float(done.stdout.split()[-1])


def measure(repeat: int) -> Outcome:
    total = len(jobs(SPEC))
    some = min(total, int(os.environ.get("WARMCC_BENCH_VARIANTS") or total))
    with CudaWorld() as world:
        world.wait_for_pch()
        world.wait_for_cuda()
        before, output = world.cuda_levels(), world.folder / "built"

        def ours() -> float:
            return warm(world, new_spec(world.folder / f"spec-{new_number()}"), output)

        def theirs() -> float:
            return stock(world, jobs(new_spec(world.folder / f"spec-{new_number()}"))[:some], total)

        taken = interleaved(repeat, {"stock": theirs, "warmcc": ours})
        levels = {name: n - before.get(name, 0) for name, n in world.cuda_levels().items()}
        imports = [import_seconds(world, output) for _ in range(5)][1:]
    found = pair("", taken["stock"], taken["warmcc"])
    imported = sorted(imports)[len(imports) // 2]
    scaled = "" if some == total else f", scaled from {some} of stock's {total}"
    targets = [
        Target(f"{found.ratio:.1f} times, at least {RATIO:g}{scaled}", found.ratio >= RATIO),
        Target(
            f"the package imports in {seconds(imported)}, under {seconds(IMPORT_SECONDS)}",
            imported < IMPORT_SECONDS,
        ),
    ]
    facts = {"levels": levels, "variants": total, "built by stock": some, "import": imported}
    return Outcome(found, targets=targets, facts=facts)
