"""What perf prints, and what is missing."""

from __future__ import annotations

import pytest

from warmcc.client.measuring.calls import profilers
from warmcc.errors import RequestError

TEXT = """\
python
            7f00 at::add(at::Tensor const&, at::Tensor const&)+0x10
            7f01 [unknown]
            7f02 main

python
            7f02 main

"""


def test_stacks_from_the_outside() -> None:
    assert list(profilers.stacks(TEXT)) == [
        ["main", "[unknown]", "at::add(at::Tensor const&, at::Tensor const&)"], ["main"],
    ]  # fmt: skip


@pytest.mark.parametrize("tool", ["nsys", "perf"])
def test_a_profiler_that_is_missing(tool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(
        RequestError, match=rf"{tool} is not in PATH; install .* leave out --{tool}"
    ):
        if tool == "nsys":
            profilers.nsys("report", {"target": "a.b"})
        else:
            profilers.perf({"target": "a.b"})
