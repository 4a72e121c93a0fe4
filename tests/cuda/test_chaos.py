"""CUDA builds in random order, while fork servers are killed, clients hang up and memory is short:
every answer is right, and nothing stays behind. Prints its counts. ``WARMCC_CHAOS=200`` sets how
many builds.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import struct
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest
import zmq

from tests.support.calls import Connection, request
from tests.support.cuda import CudaDaemon
from warmcc.protocol import Built, Failed

BUILDS = int(os.environ.get("WARMCC_CHAOS", "40"))
FREE = """
#include <cuda_runtime.h>
__global__ void fill(float* p) { p[threadIdx.x] *= NUMBER.0f; }
extern "C" int number() { return NUMBER; }
extern "C" void launch(float* p) { fill<<<1, 32>>>(p); }
"""
TORCH = """
#include <torch/types.h>
__global__ void fill(float* p) { p[threadIdx.x] *= NUMBER.0f; }
extern "C" int number() { return NUMBER; }
void launch(torch::Tensor x) { fill<<<1, 32>>>(x.data_ptr<float>()); }
"""
SHAPES = {
    "free": FREE,
    "free, broken": FREE.replace("threadIdx.x]", "nowhere]"),
    "torch": TORCH,
    "torch, broken": TORCH.replace("torch::Tensor x", "torch::Tensr x"),
}
WEIGHTS = [8, 2, 4, 1]


def is_right(path: str, number: int) -> bool:
    """Whether both sides have the number: the host's function, and an instruction of the kernel."""
    return (
        ctypes.CDLL(path).number() == number
        and struct.pack("<f", number) in Path(path).read_bytes()
    )


def servers(daemon: CudaDaemon) -> list[psutil.Process]:
    """Fork servers, their forks, and gcc's driver that waits for a preprocessor."""
    found = []
    for process in daemon.processes():
        with contextlib.suppress(psutil.Error):
            if "WARMCC_SOCKET" in process.environ():
                found.append(process)
    return found


class Chaos:
    """One run: builds one after the other, each with a fault before or during it, or none."""

    def __init__(
        self, daemon: CudaDaemon, seed: int, context: zmq.Context[zmq.Socket[bytes]]
    ) -> None:
        self.daemon = daemon
        self.random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self._context = context

    def build(self, number: int) -> None:
        shape = self.random.choices(list(SHAPES), WEIGHTS)[0]
        fault = self.random.choices(["none", "kill", "hang up", "kill later"], [5, 1, 2, 1])[0]
        self.counts[f"fault: {fault}"] += 1
        if fault == "kill":
            self.kill()
        source = SHAPES[shape].replace("NUMBER", f"{number}")
        wanted = request(name="chaos", module_name="chaos", cpp_sources=[""], cuda_sources=[source])
        client = Connection(self.daemon, self._context)
        client.ask(wanted)
        if fault in ("hang up", "kill later"):
            time.sleep(self.random.uniform(0, 1.5))
        if fault == "hang up":
            client.close()
            return
        if fault == "kill later":
            self.kill()
        answer = client.answer(240)
        client.close()
        if "broken" in shape:
            assert isinstance(answer, Failed), answer
            assert any(word in answer.message for word in ("nowhere", "Tensr")), answer.message
            assert any(one.file == "cuda_sources[0]" for one in answer.diagnostics)
        else:
            assert isinstance(answer, Built), answer
            assert is_right(answer.path, number)
        self.counts["right errors" if "broken" in shape else "right modules"] += 1

    def kill(self) -> None:
        """A random fork server, or one of its forks."""
        if found := servers(self.daemon):
            with contextlib.suppress(psutil.Error):
                self.random.choice(found).kill()
                self.counts["processes killed"] += 1


def nothing_is_left(daemon: CudaDaemon) -> None:
    """When all is quiet: no fork but the servers themselves and those that wait for the next unit,
    no staging tree, no socket and no folder of a server that is gone."""
    deadline = time.monotonic() + 60
    while True:
        daemon.wait_for_cuda()
        profiles = daemon.cuda()["profiles"]
        levels = [level for profile in profiles for level in profile["levels"]]
        found = {
            "processes": sum(process.name() != "gcc" for process in servers(daemon)),
            "sockets": len(list(daemon.runtime_dir.glob("f????????*"))),
            "folders": len(list((daemon.cache_dir / "cuda/servers").glob("*/*"))),
            "staging": len(list((daemon.cache_dir / "store/staging").iterdir())),
        }
        forks = 4 * sum(
            level["ahead"] for level in levels
        )  # for each front end one that waits, and one for that
        wanted = {
            "processes": 4 * len(levels) + forks, "sockets": 4 * len(levels),
            "folders": len(levels), "staging": 0,
        }  # fmt: skip
        if found == wanted:
            return
        assert time.monotonic() < deadline, (found, wanted, profiles, daemon.log()[-4000:])
        time.sleep(0.5)


@pytest.mark.timeout(3600)
def test_chaos(nvcc: str, context: zmq.Context[zmq.Socket[bytes]]) -> None:
    import torch  # noqa: F401  (its libraries must be there before the artifacts)

    seed = random.randrange(1 << 30)
    daemon = CudaDaemon(prewarm_cuda=True, sample_after=0)
    try:
        daemon.start()
        daemon.wait_for_cuda()
        chaos = Chaos(daemon, seed, context)
        first = 1_000_000 + seed % 1_000_000
        for number in range(first, first + BUILDS):
            chaos.build(number)
        nothing_is_left(daemon)
        print(
            f"\n{BUILDS} builds, seed {seed}: {dict(chaos.counts)}; levels {daemon.cuda()['used']}"
        )
        assert daemon.cuda()["used"].get("warm") or daemon.cuda()["used"].get("lean")
        daemon.stop()
    finally:
        daemon.discard()


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("setting", "size", "reason"),
    [
        ("cuda_fork_memory", 64 << 20, "cudafe++ of the warm prelude"),
        ("cuda_memory", 100 << 20, "cuda_memory"),
    ],
)
def test_without_memory_units_are_nvccs(
    nvcc: str, context: zmq.Context[zmq.Socket[bytes]], setting: str, size: int, reason: str
) -> None:
    import torch  # noqa: F401

    daemon = CudaDaemon(**{setting: size})
    try:
        daemon.start()
        for number in (1_234_567, 1_234_568):
            source = FREE.replace("NUMBER", f"{number}")
            wanted = request(
                name="short", module_name="short", cpp_sources=[""], cuda_sources=[source]
            )
            answer = Connection(daemon, context).build(wanted, 240)
            assert isinstance(answer, Built), answer
            assert is_right(answer.path, number)
            daemon.wait_for_cuda()
        assert daemon.cuda()["used"] == {"exact": 2}
        (profile,) = daemon.cuda()["profiles"]
        assert profile["state"] == "failed"
        assert reason in profile["reason"]
        daemon.stop()
    finally:
        daemon.discard()
