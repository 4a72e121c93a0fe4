"""Mistakes as the first call of all, which nvcc's own steps tell on few processors: those of the
host's half first, with all processors; those of the devices' beside the host's.
"""

from __future__ import annotations

import psutil
import pytest

from tests.support.cuda import WHOLE, CudaDaemon, build, looking, new_toy, overlap, spans_of_last
from warmcc.errors import CompileError
from warmcc.record import Span


class Stopped:
    """The sources of g++'s compiles that stood still at any time."""

    def __init__(self) -> None:
        self.sources: set[str] = set()

    def look(self, process: psutil.Process) -> None:
        if process.status() == psutil.STATUS_STOPPED and process.name() == "cc1plus":
            self.sources.update(w for w in process.cmdline() if w.endswith((".cpp", ".h")))


def exact(spans: list[Span], step: str) -> list[Span]:
    """Those of nvcc's own steps: the last one, where any ran."""
    return sorted((span for span in spans if span.step == step), key=lambda span: span.start)[-1:]


def test_of_the_host(cold: CudaDaemon) -> None:
    source = WHOLE + new_toy() + "std::string wrong = at::ones({1});\n"
    stopped = Stopped()
    with looking(cold, stopped.look), pytest.raises(CompileError) as caught:
        build("host_mistake", source)
    assert 'from "at::Tensor" to "std::string" exists' in str(caught.value)
    spans = spans_of_last(cold)
    (parsed,) = exact(spans, "cudafe++")
    assert not any(span.step == "cicc" and span.end > parsed.start for span in spans)
    assert any(source.endswith("main.cpp") for source in stopped.sources)


def test_of_the_devices(cold: CudaDaemon) -> None:
    source = WHOLE + new_toy().replace("x[i] *", "x[i] * rand() *")
    stopped = Stopped()
    with looking(cold, stopped.look), pytest.raises(CompileError) as caught:
        build("device_mistake", source)
    assert 'calling a __host__ function("rand") from a __global__ function' in str(caught.value)
    spans = spans_of_last(cold)
    assert overlap(exact(spans, "cudafe++"), exact(spans, "cicc"))
    assert not any(source.endswith("main.cpp") for source in stopped.sources)
