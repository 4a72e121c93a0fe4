"""``warmcc run --inductor``: torch.compile in a fork that has Inductor imported, and the daemon."""

from __future__ import annotations

import subprocess

import pytest

from tests.support.daemons import Daemon
from tests.support.zygotes import Zygotes

CODE = """import sys, torch, warmcc
print("torch._inductor" in sys.modules, warmcc.inductor.is_enabled())
x = torch.linspace(-1, 1, 4096)
f = torch.compile(lambda x: torch.relu(x * NUMBER) + 1.0)
print(torch.allclose(f(x), torch.relu(x * NUMBER) + 1.0), torch.cuda.is_initialized())
warmcc.inductor.disable()
import torch._inductor.cpp_builder as builder
print(builder.run_compile_cmd.__code__.co_filename == builder.__file__)
"""


@pytest.mark.slow
def test_a_program_compiles_by_the_daemon(fresh: Zygotes, daemon: Daemon) -> None:
    """And it can be disabled there."""
    fresh.environment |= daemon.environment
    fresh.environment["TORCHINDUCTOR_CACHE_DIR"] = str(fresh.folder / "cache")
    fresh.runtime = daemon.runtime_dir
    fresh.start("--inductor")
    before = daemon.status()["requests"]
    done = subprocess.run(  # with all trials of vector instructions
        fresh.command("--inductor", "-c", CODE.replace("NUMBER", "11")), cwd=fresh.where,
        env=fresh.environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout == "True True\nTrue False\nTrue\n", done.stderr
    assert "warmcc" not in done.stderr
    after = daemon.status()["requests"]
    assert after["misses"] > before["misses"] and after["fallbacks"] == before["fallbacks"]
    assert list(fresh.folder.glob("cache/*/*.main.so"))
