"""What the lean preludes make of a user's functions is what stock makes of them, instruction by
instruction.
"""

from __future__ import annotations

import os
import platform
import subprocess
import time
from pathlib import Path

import pytest
import zmq

from tests.support import ROOT
from tests.support.calls import Connection, request
from tests.support.daemons import Daemon
from tests.support.host_code import code_of
from warmcc import assembly
from warmcc.daemon.pch import leading_includes, lean, pch
from warmcc.protocol import Built

CXX = os.environ.get("CXX", "c++")
SOURCES = ROOT / "benchmarks" / "sources"
MORE = """
at::Tensor views(at::Tensor x) {
  return x.transpose(0, 1).contiguous().view({-1}).slice(0, 1, 5).index({at::indexing::None});
}
at::Tensor mixed(const at::Tensor& x, c10::Scalar s) {
  return at::where(x > s, x.sin().mul_(2), x.to(at::kDouble).to(x.dtype()));
}
std::vector<at::Tensor> parts(at::TensorList all) { return at::cat(all).split(3); }
c10::IValue boxed(at::Tensor x) { c10::List<at::Tensor> list({x}); return c10::IValue(list); }
struct Doubler : torch::CustomClassHolder { int64_t n = 2; int64_t twice() { return 2 * n; } };
TORCH_LIBRARY(machine_code_test, m) { m.def("mixed(Tensor x, Scalar s) -> Tensor", &mixed); }
"""


@pytest.fixture
def prelude(warm: Daemon) -> tuple[Path, list[str]]:
    """The lean prelude of the default flags, and these flags."""
    for folder, record in profiles(warm):
        if tuple(record.headers) == lean.TORCH:
            return folder / "prelude.h", record.flags
    raise AssertionError("the warm daemon has no lean prelude")


def profiles(daemon: Daemon) -> list[tuple[Path, pch.Record]]:
    folders = list((daemon.cache_dir / "profiles").iterdir())
    found = [(folder, pch.read_record(folder)) for folder in folders]
    return [(folder, record) for folder, record in found if record is not None]


@pytest.mark.slow
def test_a_corpus_compiles_to_the_same_instructions(
    prelude: tuple[Path, list[str]], tmp_path: Path
) -> None:
    header, flags = prelude
    corpus = "\n".join([*(path.read_text() for path in sorted(SOURCES.glob("*.cpp"))), MORE])
    whole = f"#include <torch/extension.h>\n{corpus}"
    rewritten = lean.rewrite(whole)
    assert rewritten is not None
    assert lean.why_not(whole) is None
    texts = {}
    parts = tmp_path / "parts.h"
    parts.write_text(leading_includes.text(lean.parts(rewritten, lean.TORCH)))
    for name, text, more in (
        ("stock", whole, []),
        ("lean", rewritten, ["-Winvalid-pch", "-include", str(header)]),
        ("text", rewritten, ["-include", str(parts)]),
    ):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "main.cpp").write_text(text)
        subprocess.run([CXX, *flags, *more, "-S", "main.cpp"], cwd=folder, check=True, timeout=200)
        texts[name] = (folder / "main.s").read_text()
    for name in ("lean", "text"):
        assert len(assembly.users(texts[name], corpus)) > 40
        assert assembly.differing(texts[name], texts["stock"], corpus) == []


@pytest.mark.slow
@pytest.mark.alone
def test_the_idle_daemon_checks_a_sample(
    warm: Daemon, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    source = f"at::Tensor sampled(at::Tensor x) {{ return x * {time.time_ns() % 10**9}; }}"
    before = warm.status()["accelerators"]["samples"]
    answer = Connection(warm, context).build(
        request(cpp_sources=[source], functions=["sampled"],
                no_implicit_headers=False, name="sampled", module_name="sampled")
    )  # fmt: skip
    assert isinstance(answer, Built)
    deadline = time.monotonic() + 120
    while (found := warm.status()["accelerators"]["samples"]) == before:
        assert time.monotonic() < deadline, warm.log()
        time.sleep(0.5)
    assert found.get("lean same", 0) == before.get("lean same", 0) + 1, warm.log()
    assert warm.status()["accelerators"]["withdrawn"] == {}


@pytest.mark.slow
@pytest.mark.alone
def test_what_may_be_fused_is_fused_as_by_stock(
    warm: Daemon, context: zmq.Context[zmq.Socket[bytes]], tmp_path: Path
) -> None:
    """Also in what comes from headers: behind a finished one, g++ inlines otherwise."""
    source = (SOURCES / "slim" / "layer_norm.cpp").read_text()
    flags = ["-O3", *(["-mfma"] if platform.machine() == "x86_64" else [])]
    answer = Connection(warm, context).build(
        request(cpp_sources=[source], extra_cflags=flags, name="fused", module_name="fused")
    )
    assert isinstance(answer, Built)
    deadline = time.monotonic() + 300
    while not (made := [one for one in profiles(warm) if set(flags) <= set(one[1].flags)]):
        assert time.monotonic() < deadline, warm.log()
        time.sleep(0.5)
    (folder, record), *_ = made
    assert record.headers == ["torch/extension.h"]
    assert not record.finished
    (tmp_path / "main.cpp").write_text(f"#include <torch/extension.h>\n{source}")
    objects = []
    for more in ([], ["-Winvalid-pch", "-Werror", "-include", str(folder / "prelude.h")]):
        words = [*record.flags, "-DTORCH_EXTENSION_NAME=fused", *more]
        argv = [CXX, *words, "-c", "main.cpp", "-o", "main.o"]
        subprocess.run(argv, cwd=tmp_path, check=True, timeout=200)
        objects.append(code_of(tmp_path / "main.o"))
    assert len(objects[0]) > 100
    assert objects[0] == objects[1]
