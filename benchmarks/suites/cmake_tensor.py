"""``examples/cmake_tensor`` (four C++ files on torch and, where nvcc is, one of CUDA; ``Release``),
from ``cmake --build`` to the library: by the compiler, and with ``warmcc`` as CMake's launcher, by
a daemon that has built two other states of the same files before.

Each sample has files that nobody has built before, in a folder of its own. Then one file is edited
and built again. Each library has to be loaded.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

from benchmarks.harness import Side, Unsound, World, interleaved
from benchmarks.harness.cuda import name_an_architecture
from benchmarks.harness.results import Outcome, Target, pair
from warmcc.daemon.toolchain import ninja

TITLE = "a CMake project on torch, from scratch"
REPEAT = 3
PROJECT = Path(__file__).parents[2] / "examples" / "cmake_tensor"
EDITED = "src/summary.cpp"
SCRIPTS = Path(sysconfig.get_path("scripts"))
LAUNCHER = SCRIPTS / "warmcc"
CHECK = (
    "import sys, torch; torch.ops.load_library(sys.argv[1]); "
    "print(torch.ops.cmake_tensor.summary(torch.tensor([1.0, 2.0, 6.0])))"
)
SCRATCH_RATIO, EDIT_RATIO = 3.0, 10.0
_number = itertools.count(1)


def cmake() -> str | None:
    """This environment's CMake, or the system's, which may be too old for the toolkit."""
    return shutil.which("cmake", path=f"{SCRIPTS}:{os.environ.get('PATH', '')}")


def run(words: list[str], world: World) -> float:
    """Run a command, and give the seconds that it took. Raises Unsound."""
    started = time.perf_counter()
    done = subprocess.run(
        words, cwd=world.folder, env=world.environment, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise Unsound(f"{' '.join(words)}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return time.perf_counter() - started


def touched(folder: Path, names: list[str]) -> None:
    """Give files a text that nobody has compiled."""
    for name in names:
        with open(folder / name, "a") as file:
            number = next(_number)
            file.write(f"namespace {{ [[maybe_unused]] const int turn_{number} = {number}; }}\n")


def configured(world: World, side: Side) -> Path:
    """A copy of the project, configured, with new texts."""
    folder = world.folder / f"{side}-{next(_number)}"
    shutil.copytree(PROJECT, folder)
    touched(folder, [str(path.relative_to(folder)) for path in folder.glob("src/*.c*")])
    configure(world, side, folder)
    return folder


def configure(world: World, side: Side, folder: Path) -> None:
    """Run CMake for a copy of the project, with the compilers of a side. Raises Unsound."""
    import torch

    kinds = ("CXX", "CUDA") if side == "warmcc" else ()
    launcher = [f"-DCMAKE_{kind}_COMPILER_LAUNCHER={LAUNCHER}" for kind in kinds]
    run(
        [
            str(cmake()), "-S", str(folder), "-B", str(folder / "build"), "-G", "Ninja",
            "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}",
            f"-DCMAKE_MAKE_PROGRAM={ninja.executable()}", *launcher, *cuda(),
        ],
        world,
    )  # fmt: skip


def cuda() -> list[str]:
    """Where CMake finds the toolkit; ``libnvrtc``, which torch asks for, is torch's own where the
    toolkit has none."""
    import torch

    home = Path(os.environ.get("CUDA_HOME") or "/usr/local/cuda")
    if torch.version.cuda is None or not (home / "bin" / "nvcc").exists():
        return []
    found = [f"-DCUDA_TOOLKIT_ROOT_DIR={home}", f"-DCMAKE_CUDA_COMPILER={home}/bin/nvcc"]
    if not any(home.glob("**/libnvrtc.so")):
        own = Path(torch.__file__).parents[1].glob("nvidia/*/lib/libnvrtc.so*")
        found += [f"-DCUDA_nvrtc_LIBRARY={path}" for path in sorted(own)[:1]]
    return [*found, "-DWITH_CUDA=ON"]


def sample(world: World, side: Side) -> tuple[float, float]:
    """Seconds from scratch, and after an edit of one file."""
    folder = configured(world, side)
    build = [str(cmake()), "--build", str(folder / "build"), "--target", "tensor_ops"]
    scratch = run(build, world)
    touched(folder, [EDITED])
    edit = run(build, world)
    run([sys.executable, "-c", CHECK, str(folder / "build" / "libtensor_ops.so")], world)
    return scratch, edit


def measure(repeat: int) -> Outcome:
    if cmake() is None:
        raise Unsound("cmake is missing: apt-get install cmake, or pip install cmake")
    if not LAUNCHER.exists():
        raise Unsound(f"{LAUNCHER} is missing: pip install --editable .")
    with World() as world:
        name_an_architecture(world)
        first = sample(world, "warmcc")[0]
        world.wait_idle()
        sample(world, "warmcc")  # a header for which nothing was made at first sight is warm now
        world.wait_idle()
        before = world.status()["requests"]["misses"]
        taken = interleaved(
            repeat,
            {"stock": lambda: sample(world, "stock"), "warmcc": lambda: sample(world, "warmcc")},
        )
        built = world.status()["requests"]["misses"] - before
        files = len(list(PROJECT.glob("src/*.cpp"))) + bool(cuda()) + 1
        if built != files * repeat:
            raise Unsound(f"the daemon compiled {built} files, not {files * repeat}")
    scratch, edit = (
        pair(text, *([times[at] for times in taken[side]] for side in ("stock", "warmcc")))
        for at, text in enumerate(("", "an edit of one file"))
    )
    first_build = pair("the first build of all", scratch.stock.samples, [first])
    targets = [
        Target(f"from scratch {scratch.ratio:.1f} times, at least {SCRATCH_RATIO:g}",
               scratch.ratio >= SCRATCH_RATIO),
        Target(f"an edit {edit.ratio:.1f} times, at least {EDIT_RATIO:g}",
               edit.ratio >= EDIT_RATIO),
    ]  # fmt: skip
    return Outcome(scratch, [edit, first_build], targets, {"files compiled": built})
