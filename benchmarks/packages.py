"""``python -m benchmarks.packages``: packages from PyPI that no line was changed in, built by their
own ``setup.py`` or at run time: by stock torch, and under ``warmcc exec``.

The daemon is warm for its default flags and knows none of the packages. Each side builds a package
from nothing; then the package is unpacked a second time, in another folder, and built there (for
stock this is the first build again, and not repeated); then one source gets another line. Shared
objects of both sides have to have the same device code, and to load. Data goes to standard output,
talk to standard error.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness import Unsound, device_code, machine, say
from benchmarks.harness.cuda import CudaWorld
from benchmarks.road import foreign
from warmcc.client.cli.display.output import table

EXEC = [sys.executable, "-m", "warmcc.client.cli", "exec", "--"]
FILES = "https://files.pythonhosted.org/packages"
MOST_SECONDS = 3600
SECOND, EDIT = "second", "edit"
_BUILD = ["setup.py", "build_ext", "--inplace"]


@dataclass(frozen=True)
class Package:
    """``place`` is its archive's below ``FILES``; ``words`` are python's, run in its folder;
    ``edited``: the source that gets another line; ``loads``: what to run once it is built."""

    name: str
    place: str
    sha256: str
    words: list[str]
    edited: str
    loads: str
    environment: dict[str, str] = field(default_factory=dict)


CAUSAL_CONV1D = Package(
    "causal_conv1d-1.7.0",
    "f4/d1/eba27735f31bd5527d39a3c7f693e6ded7b844cab275db719a15ad37b6cd",
    "3202758494eaa7b597ce1c282dfa188889506bfcb92cad3c407d26736bfcd32b",
    _BUILD, "csrc/causal_conv1d_update.cu", "import torch, causal_conv1d_cuda",
    {"CAUSAL_CONV1D_FORCE_BUILD": "TRUE"},
)  # fmt: skip
TORCH_SCATTER = Package(
    "torch_scatter-2.1.2",
    "f5/ab/2a44ecac0f891dd0d765fc59ac8d277c6283a31907626560e72685df2ed6",
    "69b3aa435f2424ac6a1bfb6ff702da6eb73b33ca0db38fb26989c74159258e47",
    _BUILD, "csrc/cuda/segment_coo_cuda.cu",
    "import torch; torch.ops.load_library('torch_scatter/_scatter_cuda.so')",
    {"FORCE_ONLY_CUDA": "1"},
)  # fmt: skip
TORCH_SPLINE_CONV = Package(
    "torch_spline_conv-1.2.2",
    "a0/50/5f80c47bf09b561ded0981b088ab0064424843696aa35b3b83afde421e56",
    "ed45a81da29f774665dbdd4709d7e534cdf16d2e7006dbd06957f35bd09661b2",
    _BUILD, "csrc/cuda/weighting_cuda.cu",
    "import torch; [torch.ops.load_library(f'torch_spline_conv/_{name}_cuda.so')"
    " for name in ('basis', 'weighting', 'version')]",
    {"FORCE_ONLY_CUDA": "1"},
)  # fmt: skip
NERFACC = Package(
    "nerfacc-0.5.3",
    "8a/c3/36c5bf9a77580b4cb2ecac8d41037cc6b5051f91a6c4eaa8d189c50dcbf3",
    "01850cbbd71b6aeab059cbfb695755f8b6604f3fdfe48c44925b4b97c0c324db",
    ["-c", "import nerfacc.cuda._backend as built; assert built._C is not None"],
    "nerfacc/cuda/csrc/grid.cu", "import nerfacc.cuda._backend",
)  # fmt: skip
PACKAGES = {
    one.name.split("-")[0]: one
    for one in (CAUSAL_CONV1D, TORCH_SCATTER, TORCH_SPLINE_CONV, NERFACC)
}


def archive(package: Package) -> Path:
    """Its archive, downloaded if need be. Raises foreign.Missing."""
    kept = foreign.cache() / f"{package.name}.tar.gz"
    if not kept.is_file():
        kept.parent.mkdir(parents=True, exist_ok=True)
        try:
            with urllib.request.urlopen(f"{FILES}/{package.place}/{kept.name}", timeout=60) as got:
                kept.write_bytes(got.read())
        except OSError as error:
            raise foreign.Missing(f"{package.name} could not be downloaded: {error}") from error
    if hashlib.sha256(kept.read_bytes()).hexdigest() != package.sha256:
        raise foreign.Missing(f"{kept} is not what it was when this was written; remove it")
    return kept


class Place:
    """A package unpacked in a folder of its own, and what builds it there."""

    def __init__(self, package: Package, world: CudaWorld, side: str, name: str) -> None:
        self.package = package
        self.side = side
        self.world = world
        place = world.folder / f"{side}-{name}"
        with tarfile.open(archive(package)) as packed:
            packed.extractall(place, filter="data")
        self.folder = place / package.name
        self.environment = {
            **world.environment, **package.environment, "PYTHONPATH": _tools(world),
            "TORCH_EXTENSIONS_DIR": str(place / "extensions"),
        }  # fmt: skip
        if side == "stock":
            self.environment["TORCH_NO_COMPILER_WRAPPER"] = "1"
        else:
            self.environment["WARMCC_FALLBACK"] = "1"  # as packages meet it

    def build(self) -> float:
        """Seconds that a build takes. Raises Unsound."""
        front = EXEC if self.side == "warmcc" else []
        started = time.perf_counter()
        self._run([*front, sys.executable, *self.package.words])
        return time.perf_counter() - started

    def edit(self) -> None:
        with open(self.folder / self.package.edited, "a") as file:
            file.write("\nstatic const int edited_by_hand [[maybe_unused]] = 1;\n")

    def load(self) -> None:
        self._run([sys.executable, "-c", self.package.loads])

    def device_code(self) -> dict[str, dict[str, str]]:
        """Of each shared object that has some."""
        found: dict[str, dict[str, str]] = {}
        paths = sorted(self.folder.parent.rglob("*.so"))
        for path in (one for one in paths if "build/" not in str(one)):
            if code := _device_code(path):
                found[path.name] = code
        return found

    def _run(self, words: list[str]) -> None:
        done = subprocess.run(
            words, cwd=self.folder, env=self.environment, capture_output=True, text=True,
            timeout=MOST_SECONDS,
        )  # fmt: skip
        if done.returncode != 0:
            raise Unsound(
                f"{self.package.name}, {self.side}: {done.stdout[-2000:]}{done.stderr[-3000:]}"
            )


def _device_code(path: Path) -> dict[str, str]:
    """Nothing where there is none."""
    try:
        return device_code.extract(path)
    except subprocess.CalledProcessError:
        return {}


def _tools(world: CudaWorld) -> str:
    """A folder with what old ``setup.py`` files import besides torch."""
    folder = world.folder / "tools"
    if not folder.exists() and importlib.util.find_spec("wheel") is None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
        subprocess.run([*pip, str(folder), "wheel==0.45.1"], check=True)
    return os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))


def measure(package: Package, world: CudaWorld) -> dict[str, object]:
    """Seconds of each side and moment, and what differs."""
    stock = Place(package, world, "stock", "first")
    ours = Place(package, world, "warmcc", "first")
    taken: dict[str, dict[str, float]] = {"first": {}, SECOND: {}, EDIT: {}}
    for side in (stock, ours):
        taken["first"][side.side] = side.build()
        say(f"  {package.name} first, {side.side}: {taken['first'][side.side]:.1f} s")
        side.load()
    theirs, mine = stock.device_code(), ours.device_code()
    differ = sorted(name for name in theirs if theirs[name] != mine.get(name))
    again = Place(package, world, "warmcc", SECOND)
    taken[SECOND] = {"stock": taken["first"]["stock"], "warmcc": again.build()}
    say(f"  {package.name} second, warmcc: {taken[SECOND]['warmcc']:.1f} s")
    for side in (stock, ours):
        side.edit()
        taken[EDIT][side.side] = side.build()
        say(f"  {package.name} edit, {side.side}: {taken[EDIT][side.side]:.1f} s")
        side.load()
    for place in (stock, ours, again):
        shutil.rmtree(place.folder.parent, ignore_errors=True)
    return {"package": package.name, "seconds": taken, "device_code_differs": differ}


def rows(found: list[dict[str, object]]) -> list[tuple[str, ...]]:
    shown: list[tuple[str, ...]] = [("package", "build", "stock", "warmcc", "ratio")]
    for one in found:
        seconds = one["seconds"]
        assert isinstance(seconds, dict)
        for moment, sides in seconds.items():
            stock, ours = sides["stock"], sides["warmcc"]
            shown.append(
                (str(one["package"]), moment, f"{stock:.1f} s", f"{ours:.1f} s",
                 f"{ours / stock:.2f}")
            )  # fmt: skip
    return shown


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.packages", description=__doc__)
    parser.add_argument("--packages", default=",".join(PACKAGES), metavar="NAMES")
    parser.add_argument("--json", metavar="FILE", help="keep the figures here")
    parser.add_argument("--cold", action="store_true", help="begin as soon as the daemon answers")
    arguments = parser.parse_args()
    chosen = arguments.packages.split(",")
    if unknown := [name for name in chosen if name not in PACKAGES]:
        parser.error(f"there is no package {unknown[0]}; known: {', '.join(PACKAGES)}")
    found = []
    world = CudaWorld()
    del world.environment["WARMCC_PREWARM_IDLE"]  # as users have it
    with world:
        if not arguments.cold:
            world.wait_for_pch()
            world.wait_for_cuda()
        for name in chosen:
            before = world.cuda_levels()
            found.append(measure(PACKAGES[name], world))
            after = world.cuda_levels()
            found[-1]["levels"] = {k: n - before.get(k, 0) for k, n in after.items()}
    table(rows(found))
    for one in found:
        if one["device_code_differs"]:
            print(f"{one['package']}: other device code in {one['device_code_differs']}")
    if arguments.json:
        kept = {"machine": machine.facts(), "packages": found}
        Path(arguments.json).write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    return any(bool(one["device_code_differs"]) for one in found)


if __name__ == "__main__":
    sys.exit(main())
