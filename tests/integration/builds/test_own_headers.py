"""Sources that include torch through headers of their own: built behind the precompiled header that
is there anyway, and to the same code.
"""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from tests.support.calls import Connection, load, load_request, module_source, request
from tests.support.daemons import Daemon, running
from warmcc.protocol import Built

FLAGS = ["-O3", "-march=native", "-fopenmp", "-std=c++20"]
FILES = {
    "optimizer.cpp": """\
// {comment}
#include "optimizer.h"
#include <map>
#include <memory>

static std::map<int, std::shared_ptr<State>> states;

void State::step(float* weights, const float* gradients, float* moments, size_t size) {{
#pragma omp parallel for
  for (size_t i = 0; i < size; i += WIDTH)
    update(weights + i, gradients + i, moments + i, rate, std::min(size - i, WIDTH));
}}

void create(int id, float rate) {{ states[id] = std::make_shared<State>(rate); }}

void step(int id, at::Tensor weights, at::Tensor gradients, at::Tensor moments) {{
  assert(states.count(id));
  states[id]->step(weights.data_ptr<float>(), gradients.data_ptr<float>(),
                   moments.data_ptr<float>(), weights.numel());
}}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{
  m.def("create", &create, "makes one");
  m.def("step", &step, "one step");
}}
""",
    "optimizer.h": """\
// The shape of optimisers that are published.
#pragma once

#define NOMINMAX  // for another platform

#include <stdio.h>
#include "simd.h"
#include <torch/extension.h>
#include <cassert>

constexpr size_t WIDTH = 64;
struct State {
  explicit State(float rate) : rate(rate) {}
  void step(float* weights, const float* gradients, float* moments, size_t size);
  float rate;
};
#ifdef __AVX2__
#define ABSENT 0
#endif
inline void update(float* w, const float* g, float* m, float rate, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    m[i] = 0.9f * m[i] + 0.1f * g[i];
    w[i] -= rate * m[i] / (std::sqrt(std::abs(m[i])) + 1e-8f);
  }
}
""",
    "simd.h": "#ifndef OPTIMIZER_SIMD_H\n#define OPTIMIZER_SIMD_H\n#include <immintrin.h>\n"
    "#include <omp.h>\n#endif\n",
}


@pytest.mark.slow
def test_the_shape_of_published_optimisers(
    fresh_daemon: Callable[..., Daemon], tmp_path: Path, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    import torch

    daemon = fresh_daemon(ccache=False)
    connection = Connection(daemon, context)
    for name in ("simd.h", "optimizer.h"):
        (tmp_path / name).write_text(FILES[name])

    def build(comment: str) -> Built:
        (tmp_path / "optimizer.cpp").write_text(FILES["optimizer.cpp"].format(comment=comment))
        call = {"name": "optimizer", "module_name": "optimizer", "extra_cflags": FLAGS}
        answer = connection.build(load_request([tmp_path / "optimizer.cpp"], **call), 500)
        assert isinstance(answer, Built), answer
        print(comment, round(answer.seconds, 1), answer.way)
        return answer

    stocks = build("first")
    assert "without precompiled headers" in stocks.way
    daemon.wait_for_profiles(1)
    ours = build("second")
    status = daemon.status()
    assert "with a precompiled header" in ours.way, (status["unmatched"], daemon.log())
    assert status["accelerators"]["pch"] == {"used": 1, "fallbacks": {}, "unfinished": {}}
    assert [one["headers"] for one in status["profiles"]] == [["torch/extension.h"]]
    assert symbols(stocks) == symbols(ours)
    assert machine_code(stocks, "State::step") == machine_code(ours, "State::step") != ""
    module = load(ours, "optimizer")
    weights, moments = torch.zeros(1000), torch.zeros(1000)
    module.create(0, 0.5)
    module.step(0, weights, torch.ones(1000), moments)
    assert torch.allclose(moments, torch.full((1000,), 0.1))


def symbols(built: Built) -> set[str]:
    """Those that are nobody else's: which templates' copies g++ keeps depends on what it inlines,
    and that on a PCH.
    """
    words = ["nm", "-C", "--defined-only", built.path]
    said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
    return {line.split(" ", 1)[1] for line in said.splitlines() if line.split(" ")[1] in "TDB"}


def machine_code(built: Built, name: str) -> str:
    """The instructions of the functions with a name, without addresses, and what fills up between
    functions.
    """
    words = ["objdump", "-dC", "--no-show-raw-insn", "--no-addresses", built.path]
    said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
    found = "\n\n".join(
        part for part in said.split("\n\n") if re.match(rf"<{name}\b", part.strip())
    )
    plain = (re.sub(r"0x[0-9a-f]+|#.*|<.*", "", line).rstrip() for line in found.split("\n"))
    return "\n".join(line for line in plain if not re.search(r"nop|xchg +%ax,%ax", line))


_names = (f"own{number}" for number in itertools.count())


class Author:
    """Someone whose sources include a small header of torch's through one of their own."""

    def __init__(self, daemon: Daemon, folder: Path, **environment: str) -> None:
        self.daemon = daemon
        self.folder = folder
        self.environment = {**request().environment, **environment}
        self._before = daemon.status()

    def build(self, text: str) -> Built:
        """Build a source behind a header of this text, and check what it gives."""
        (self.folder / "own.h").write_text(text)
        name = next(_names)
        source = '#include "own.h"\n' + module_source(name=name).replace("(42)", "(SEEN)")
        with zmq.Context() as context:
            connection = Connection(self.daemon, context)
            answer = connection.build(
                request(
                    name=name,
                    module_name=name,
                    cpp_sources=[source],
                    extra_include_paths=[str(self.folder)],
                    environment=self.environment,
                )
            )
            connection.close()
        assert isinstance(answer, Built), answer
        assert load(answer, name).answer() == 42
        return answer

    def pch(self) -> tuple[int, dict[str, int]]:
        """How often a precompiled header was used since this author began, and why it was not."""
        before, now = (x["accelerators"]["pch"] for x in (self._before, self.daemon.status()))
        return now["used"] - before["used"], grown(before["fallbacks"], now["fallbacks"])

    def unmatched(self) -> dict[str, int]:
        return grown(self._before["unmatched"], self.daemon.status()["unmatched"])


def grown(before: dict[str, int], now: dict[str, int]) -> dict[str, int]:
    return {name: more for name in now if (more := now[name] - before.get(name, 0))}


SMALL = "#include <c10/macros/Macros.h>\n"


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Path]]:
    """A daemon with a precompiled header for this folder's sources."""
    daemon, folder = Daemon(ccache=False), tmp_path_factory.mktemp("author")
    running.append(daemon)
    try:
        first = Author(daemon.start(), folder)
        first.build(f"#pragma once\n{SMALL}#define SEEN 42\n")
        daemon.wait_for_profiles(1)
        assert first.pch() == (0, {})
        yield daemon, folder
        daemon.stop()
    finally:
        running.remove(daemon)
        daemon.discard()


@pytest.fixture
def author(known: tuple[Daemon, Path]) -> Author:
    return Author(*known)


def test_an_own_header_in_front(author: Author) -> None:
    text = f"#include <vector>\n#define FREE 42\n{SMALL}#define SEEN FREE\n"
    author.build(f"#ifndef MY_OWN_H\n#define MY_OWN_H\n{text}#endif\n")
    assert author.pch() == (1, {}), author.daemon.log()


@pytest.mark.slow
def test_a_macro_that_torchs_header_tests(author: Author) -> None:
    """g++ finds it out the first time, and the daemon remembers it."""
    text = f"#define C10_NODEPRECATED 1\n{SMALL}#define SEEN 42\n"
    author.build(text)
    assert author.pch() == (0, {"a header mentions C10_NODEPRECATED": 1}), author.daemon.log()
    author.build(text)
    assert author.pch() == (0, {"a header mentions C10_NODEPRECATED": 1})
    reason = "a header mentions C10_NODEPRECATED, which is defined in front of it"
    assert author.unmatched()[reason] == 1


# What a header says of a macro → whether that keeps a unit that defines it from the PCH.
# torch has the first one (2.4 to 2.11), and DeepSpeed's sources define it.
SAID = {
    "#ifdef _WIN32\n#error define NOMINMAX on Windows\n#endif\n": False,
    "#ifdef _WIN32\n#error define NOMINMAX\n#endif\n#ifdef NOMINMAX\n#endif\n": True,
    "#define PUT \\\n#error NOMINMAX\n": True,
}


@pytest.mark.parametrize("said", SAID)
def test_a_macro_of_which_a_header_speaks(
    said: str, fresh_daemon: Callable[..., Daemon], tmp_path: Path
) -> None:
    daemon = fresh_daemon(ccache=False)
    system, own = tmp_path / "system", tmp_path / "own"
    system.mkdir()
    own.mkdir()
    (system / "assert.h").write_text(f"#include_next <assert.h>\n{said}")
    compiler = tmp_path / "c++"
    compiler.write_text(f'#!/bin/sh\nexec {shutil.which("c++")} "$@" -isystem {system}\n')
    compiler.chmod(0o755)
    author = Author(daemon, own, CXX=str(compiler))
    author.build(f"#pragma once\n{SMALL}#define SEEN 42\n")
    daemon.wait_for_profiles(1)
    refused = {"a header mentions NOMINMAX": 1} if SAID[said] else {}
    for values in ("4, 2", "40, 2"):
        text = f"#define NOMINMAX 1\n#define TWO {values}\n{SMALL}#define SEEN 42\n"
        author.build(text)
    assert author.pch() == (0 if refused else 2, refused), (author.unmatched(), daemon.log())


@pytest.mark.parametrize("name", ["c10", pytest.param("tbb", marks=pytest.mark.slow)])
def test_a_folder_that_may_hold_headers_of_torchs(name: str, author: Author) -> None:
    """``tbb/tbb.h`` is not read, but the standard library's headers look whether it is there."""
    (author.folder / name).mkdir()
    try:
        author.build(f"#include <vector>\n{SMALL}#define SEEN 42\n")
    finally:
        (author.folder / name).rmdir()
    reason = "a folder of the user's own may hold headers of the prelude"
    assert (author.pch(), author.unmatched()) == ((0, {}), {reason: 1})


def test_what_ended_the_walk_is_told(author: Author) -> None:
    author.build(f"#if 1\nint x;\n#endif\n{SMALL}#define SEEN 42\n")
    assert author.unmatched() == {"#if stands in front of torch's headers": 1}
