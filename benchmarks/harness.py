"""What every scenario needs: a daemon of its own, processes to measure in, and samples that are interleaved."""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

FRESH = "int unused_{n} = {n};\nat::Tensor f(at::Tensor x) {{ return x * 2 + {n}; }}\n"


def say(text: str) -> None:
    """Talk goes to standard error; data to standard output."""
    print(text, file=sys.stderr, flush=True)


@dataclass
class Series:
    """Samples of one thing, in seconds. ``side`` is warmcc or stock."""

    name: str
    side: str
    samples: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.samples)


@dataclass
class Outcome:
    """What a scenario found: its series, and which two of them make its ratio (stock's median by warmcc's)."""

    scenario: str
    title: str
    series: list[Series]
    ratio_of: tuple[str, str] | None = None

    @property
    def ratio(self) -> float | None:
        if self.ratio_of is None:
            return None
        by_name = {series.name: series for series in self.series}
        return by_name[self.ratio_of[1]].median / by_name[self.ratio_of[0]].median

    def plain(self) -> dict[str, Any]:
        medians = {series.name: series.median for series in self.series}
        return {**asdict(self), "medians": medians, "ratio": self.ratio}


def interleaved(repeat: int, *measured: tuple[Series, Callable[[int], float]]) -> list[Series]:
    """Take ``repeat`` samples of each, in turns, so that a noisy minute hits all alike."""
    for number in range(repeat):
        for series, measure in measured:
            series.samples.append(measure(number))
            say(f"  {number + 1}/{repeat} {series.name}: {series.samples[-1]:.4g} s")
    return [series for series, _ in measured]


class World:
    """A daemon of its own in temporary folders, and the environments of both sides. Use as a context manager."""

    def __init__(self, **settings: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="wcc-", dir="/tmp"))
        plain = {key: value for key, value in os.environ.items() if not key.startswith(("WARMCC_", "TORCH_EXTENSIONS"))}
        folders = {f"WARMCC_{name}_DIR": str(self.folder / name.lower()) for name in ("RUNTIME", "CACHE", "STATE")}
        # A cold stock baseline: newer torch would put ccache in front by itself.
        self.stock_environment = {
            **plain,
            "TORCH_NO_COMPILER_WRAPPER": "1",
            "TORCH_EXTENSIONS_DIR": str(self.folder / "stock"),
            "CCACHE_DISABLE": "1",
        }
        self.environment = {
            **plain,
            **folders,
            "WARMCC_CONFIG": str(self.folder / "none.toml"),
            "WARMCC_FALLBACK": "0",
            "WARMCC_CCACHE": "0",
            **settings,
        }

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.cli("stop")
        shutil.rmtree(self.folder, ignore_errors=True)

    def cli(self, *words: str) -> str:
        command = [sys.executable, "-m", "warmcc.client.cli", *words]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        return done.stdout

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.cli("status", "--json"))
        return found

    def start(self, *, wait: bool = True) -> None:
        """Start the daemon, and wait until its pre-warmed precompiled header is ready."""
        self.cli("start")
        deadline = time.monotonic() + 600
        while wait and not any(profile["state"] == "ready" for profile in self.status()["profiles"]):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the precompiled header is not ready: {self.status()['profiles']}")
            time.sleep(0.5)

    def child(self, side: str, code: str, *arguments: str) -> Child:
        environment = self.environment if side == "warmcc" else self.stock_environment
        return Child(_PREAMBLE[side] + code, list(arguments), environment, self.folder)

    def run(self, side: str, code: str, *arguments: str) -> float:
        """Run code in a new process; gives the seconds that it reports by ``report(seconds)``."""
        return self.child(side, code, *arguments).seconds()


_PREAMBLE = {
    "warmcc": "import torch, time, sys\nimport warmcc as cpp\nreport = lambda s: print('SECONDS', s, flush=True)\n",
    "stock": "import torch, time, sys\nimport torch.utils.cpp_extension as cpp\n"
    "report = lambda s: print('SECONDS', s, flush=True)\n",
}


class Child:
    """A process in which something is measured."""

    def __init__(self, code: str, arguments: list[str], environment: dict[str, str], folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments], env=environment, cwd=folder, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def go(self) -> None:
        """Let a child that waits in ``input()`` go on."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def seconds(self) -> float:
        output, errors = self._process.communicate()
        found = [line for line in output.splitlines() if line.startswith("SECONDS ")]
        if self._process.returncode != 0 or not found:
            raise RuntimeError(f"a measured process failed:\n{output[-2000:]}\n{errors[-4000:]}")
        return float(found[-1].split()[1])


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    import torch

    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    compiler = subprocess.run(["g++", "--version"], stdout=subprocess.PIPE, text=True, check=False).stdout
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "compiler": compiler.splitlines()[0] if compiler else "",
    }
