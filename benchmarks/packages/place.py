"""A package unpacked in a folder: what builds it there, loads it, edits it, and runs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

from benchmarks.harness import Unsound, device_code
from benchmarks.harness.cuda import CudaWorld
from benchmarks.packages.known import Package, archive

EXEC = [sys.executable, "-m", "warmcc.client.cli", "exec", "--"]
RUNS = Path(__file__).with_name("runs")
TOP = Path(__file__).parents[2]
MOST_SECONDS = 3600


class Place:
    """A package unpacked in a folder of its own, and what builds it there."""

    def __init__(self, package: Package, world: CudaWorld, side: str, name: str) -> None:
        self.package = package
        self.side = side
        self.world = world
        place = world.folder / f"{side}-{package.short}-{name}"
        self.folder = _unpacked(package, place)
        self.built = place / "extensions"
        self.environment = {
            **world.environment, **package.environment, "PYTHONPATH": _tools(package, world),
            "TORCH_EXTENSIONS_DIR": str(self.built),
        }  # fmt: skip
        if side == "stock":
            self.environment["TORCH_NO_COMPILER_WRAPPER"] = "1"
        else:
            self.environment["WARMCC_FALLBACK"] = "1"  # as packages meet it

    def build(self) -> float:
        """Seconds that a build takes. Raises Unsound."""
        started = time.perf_counter()
        front = EXEC if self.side == "warmcc" else []
        self._run([*front, sys.executable, *self.package.words])
        return time.perf_counter() - started

    def forget(self) -> None:
        """Take away what was built: as another user of the machine finds the package."""
        for folder in (self.built, *self.folder.glob(".*_cache")):
            shutil.rmtree(folder, ignore_errors=True)

    def edit(self) -> None:
        edited = self.folder / self.package.edited
        if self.package.replaced is not None:
            edited.write_text(edited.read_text().replace(*self.package.replaced))
            return
        with open(edited, "a") as file:
            file.write("\nstatic const int edited_by_hand [[maybe_unused]] = 1;\n")

    def load(self) -> None:
        self._run(self._python(self.package.loads))

    def computed(self) -> str:
        """What the package computes on this machine's GPU, as text. Raises Unsound."""
        found = self._run(self._python((RUNS / self.package.run).read_text()))
        lines = [line for line in found.splitlines() if line.startswith("computed ")]
        if not lines:
            raise Unsound(f"{self.package.name}, {self.side}: {self.package.run} printed nothing")
        return "\n".join(lines)

    def device_code(self) -> dict[str, dict[str, str]]:
        """Of each shared object that has some. ``-lineinfo`` has the names of files in it: they are
        those of no folder."""
        found: dict[str, dict[str, str]] = {}
        paths = sorted(self.folder.parent.rglob("*.so"))
        for path in (one for one in paths if "build/" not in str(one)):
            if code := _device_code(path):
                found[path.name] = {
                    kind: text.replace(str(self.folder.parent), "") for kind, text in code.items()
                }
        return found

    def _python(self, script: str) -> list[str]:
        """What runs a script with the package: where that builds at its import, and there looks for
        what is out of date, by what has built it."""
        front = EXEC if self.side == "warmcc" and self.package.builds_at_run_time else []
        return [*front, sys.executable, "-c", script]

    def _run(self, words: list[str]) -> str:
        done = subprocess.run(
            words, cwd=self.folder, env=self.environment, capture_output=True, text=True,
            timeout=MOST_SECONDS,
        )  # fmt: skip
        if done.returncode != 0:
            raise Unsound(
                f"{self.package.name}, {self.side}: {done.stdout[-2000:]}{done.stderr[-3000:]}"
            )
        return done.stdout


def _unpacked(package: Package, place: Path) -> Path:
    """The folder that its user works in."""
    if package.is_wheel:
        with zipfile.ZipFile(archive(package)) as wheel:
            for one in wheel.infolist():
                path = wheel.extract(one, place / "site")
                if one.external_attr >> 16 & 0o111:
                    os.chmod(path, 0o755)
        folder = place / "site"
    else:
        with tarfile.open(archive(package)) as packed:
            packed.extractall(place, filter="data")
        folder = place / package.name
    for name, text in package.files.items():
        (folder / name).write_text(text)
    return folder


def _device_code(path: Path) -> dict[str, str]:
    """Nothing where there is none."""
    try:
        return device_code.extract(path)
    except subprocess.CalledProcessError:
        return {}


def _tools(package: Package, world: CudaWorld) -> str:
    """Python's path: what the package imports besides torch, or its ``setup.py`` does, and this
    project for the scripts that run."""
    folder = world.folder / f"needs-of-{package.short}"
    if not folder.exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target"]
        subprocess.run([*pip, str(folder), *package.needs], check=True)
    return os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH"), str(TOP)]))
