"""The warm level behind torch/extension.h: the host's front ends have read the real headers, the
devices' are the lean level's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import warmcc
from tests.support.cuda import CudaDaemon, levels, new_toy
from warmcc.daemon.cuda.unit_text.eligibility import EXTENSION
from warmcc.errors import CompileError

pytestmark = [pytest.mark.ci, pytest.mark.timeout(1800)]

WRONG = "auto y = torch::empty_like(x); int z = y;"
MODULE = 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run, "Scales."); }\n'


@pytest.fixture(scope="module")
def cold(nvcc: str) -> Iterator[CudaDaemon]:
    daemon = CudaDaemon(cuda_warm=False)
    daemon.start()
    yield daemon
    daemon.stop()
    daemon.discard()


def source(old: str = "", new: str = "") -> str:
    text = f"#include <torch/extension.h>\n#include <vector>\n{new_toy()}"
    assert old in text
    return text.replace(old, new) if old else text


def build(daemon: CudaDaemon, text: str) -> Any:
    """What binds itself, with a name that is always the same."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in daemon.environment.items():
            patch.setenv(name, value)
        return warmcc.load_inline("binds_itself", "", cuda_sources=text + MODULE)


def told(daemon: CudaDaemon, text: str) -> list[str]:
    """What is said of a wrong unit, without the command."""
    with pytest.raises(CompileError) as caught:
        build(daemon, text)
    said = str(caught.value)
    return said[said.index("FAILED") :].split("\n")[1:]


def served(daemon: CudaDaemon) -> int | None:
    """How many units the level has seen, if there is one."""
    found = [
        int(level["served"])
        for profile in daemon.cuda()["profiles"]
        for level in profile["levels"]
        if level["headers"] == list(EXTENSION)
    ]
    return sum(found) if found else None


@pytest.fixture(scope="module")
def behind(warm_cuda: CudaDaemon) -> CudaDaemon:
    """A daemon that has such a level, since a unit with a mistake needed one."""
    warm_cuda.wait_for_cuda()
    told(warm_cuda, source("auto y = torch::empty_like(x);", WRONG))
    warm_cuda.wait_for_cuda()
    assert served(warm_cuda) is not None
    return warm_cuda


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("auto y = torch::empty_like(x);", WRONG),
        ("auto y = torch::empty_like(x);", "auto y = torch::empty_like(x).no_such_member();"),
        ("auto y = torch::empty_like(x);", "auto y = torch::empty_like(x); Reducer r;"),
        ("y[i] = x[i]", "y = x[i]"),
    ],
)
def test_mistakes_are_told_in_nvccs_words(
    behind: CudaDaemon, cold: CudaDaemon, old: str, new: str
) -> None:
    text = source(old, new)
    before, seen = levels(behind), served(behind)
    ours = told(behind, text)
    assert levels(behind, before) == {}, "nvcc was not asked"
    assert seen is not None and served(behind) == seen + 1
    assert ours == told(cold, text)


def test_a_condition_on_what_headers_define_keeps_units_away(behind: CudaDaemon) -> None:
    """The devices' front ends are the lean level's, and may not have the macro."""
    before, seen = levels(behind), served(behind)
    build(behind, "#ifdef TORCH_API\n#define IT 1\n#endif\n" + source())
    assert levels(behind, before) == {"exact": 1}
    assert served(behind) == seen
