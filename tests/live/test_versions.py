"""Versions of a live extension: how long they stay, and that edits leave nothing behind."""

from __future__ import annotations

import gc
import os
import random
from pathlib import Path

import pytest

import warmcc
from tests.support.daemons import Daemon
from tests.support.edits import save_by_rename, write
from warmcc.client.live.reload.versions import NotReloadable

EDITS = int(os.environ.get("WARMCC_EDITS", "10"))

FUNCTIONS = ["number", "f"]


@pytest.mark.slow
def test_old_versions_go_when_nobody_has_anything_of_them(client: Daemon, source: Path) -> None:
    import torch

    write(source, 1)
    ext = warmcc.reloading("released", source, FUNCTIONS)
    held = ext.module.f
    for number in range(2, 6):
        write(source, number)
        assert ext.number() == number
    states = [version.state for version in ext.history]
    assert states == ["loaded", "released", "released", "loaded", "loaded"]
    assert held(torch.ones(1)).item() == 1.0
    assert ext.history[0].module is None or ext.history[0].module.f is held
    del held
    assert ext.history[0].state == "released"


@pytest.mark.slow
def test_what_may_outlive_its_version_keeps_it(client: Daemon, source: Path) -> None:
    """A node of the autograd graph has virtual functions in the extension."""
    import torch

    text = """#include <torch/extension.h>
    struct Scale : torch::autograd::Function<Scale> {
      static torch::Tensor forward(torch::autograd::AutogradContext*, torch::Tensor x) {
        return x * NUMBER; }
      static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                     torch::autograd::variable_list g) {
        return {g[0] * NUMBER}; }
    };
    torch::Tensor scale(torch::Tensor x) { return Scale::apply(x); }"""
    source.write_text(text.replace("NUMBER", "2"))
    ext = warmcc.reloading("autograd", source, "scale", keep=0)
    x = torch.ones(1, requires_grad=True)
    y = ext.scale(x)
    source.write_text(text.replace("NUMBER", "3"))
    assert ext.scale(x).item() == 3.0
    assert ext.history[0].state.startswith("kept: ")
    y.sum().backward()
    assert x.grad is not None and x.grad.item() == 2.0


@pytest.mark.slow
def test_operators_are_not_registered_twice(client: Daemon, source: Path) -> None:
    text = """#include <ATen/ATen.h>
    #include <torch/library.h>
    at::Tensor scale(const at::Tensor& x) { return x * NUMBER; }
    TORCH_LIBRARY(live_operators, m) { m.def("scale", &scale); }"""
    import torch

    source.write_text(text.replace("NUMBER", "2"))
    ext = warmcc.reloading("operators", source, is_python_module=False)
    assert torch.ops.live_operators.scale(torch.ones(1)).item() == 2.0
    source.write_text(text.replace("NUMBER", "3"))
    assert ext.wait()
    assert isinstance(ext.error, NotReloadable) and "new process" in str(ext.error)
    assert torch.ops.live_operators.scale(torch.ones(1)).item() == 2.0


@pytest.mark.slow
def test_edits_leave_nothing_behind(client: Daemon, source: Path) -> None:
    """``WARMCC_EDITS=500`` for as many; each result right, memory and open files flat."""
    import torch

    def held() -> tuple[int, int, int]:
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        maps = Path("/proc/self/maps").read_text().count("many")
        return pages * os.sysconf("SC_PAGE_SIZE") // 1000, len(os.listdir("/proc/self/fd")), maps

    write(source, 0)
    with warmcc.watch("many", source, FUNCTIONS) as ext:
        early = held()
        for number in range(1, EDITS + 1):
            write(source, number)
            assert ext.wait(60)
            assert (ext.number(), ext.f(torch.ones(1)).item()) == (number, float(number))
            if number == EDITS // 2:
                early = held()
        late = held()
    assert ext.version == EDITS + 1
    print(
        f"{EDITS} edits: {early[0]} kB, {early[1]} files, {early[2]} mappings; later "
        f"{late[0]} kB, {late[1]}, {late[2]}"
    )
    assert late[1:] == early[1:]
    assert late[0] - early[0] < 3000 + 30 * EDITS  # kB


@pytest.mark.slow
def test_a_fuzz_of_saves_shows_no_third_result(client: Daemon, source: Path) -> None:
    """Valid and broken saves at random times: what a call gives is never older than what was in use
    before the save.
    """
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    write(source, 0)
    good = 0
    with warmcc.watch("fuzzed", source, FUNCTIONS, on_event=lambda event: None) as ext:
        oldest = seen = 0
        for number in range(1, EDITS + 1):
            kind = chance.choice(["write", "rename", "truncate", "broken", "touch"])
            if kind == "broken":
                source.write_text(f"int number() {{ return {number} nonsense; }}")
            elif kind == "rename":
                save_by_rename(
                    source, f"int number() {{ return {number}; }}\nint f() {{ return 1; }}\n"
                )
            elif kind == "touch":
                source.touch()
            else:
                if kind == "truncate":
                    source.write_text("")
                    chance.random() < 0.5 and source.touch()
                write(source, number)
            if kind in ("write", "rename", "truncate"):
                good = number
            settled = chance.random() < 0.5 and ext.wait(60)
            for _ in range(20):
                now = ext.number()
                assert oldest <= now <= good and now >= seen, (kind, oldest, now, good)
                seen = now
            if settled:
                assert ext.error is not None or ext.number() == good
                oldest = ext.number()
        write(source, EDITS + 1)
        assert ext.wait(60)
        assert ext.number() == EDITS + 1
