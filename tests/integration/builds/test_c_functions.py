"""C functions through a real daemon, and without one."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

import warmcc
from tests.support.daemons import Daemon
from warmcc.errors import CompileError

C = """
#include "by.h"
long twice(long a) { return a * BY; }
double dot(const double* x, const double* y, long n) {
  double s = 0;
  for (long i = 0; i < n; ++i) s += x[i] * y[i];
  return s;
}
void fill(float* out, unsigned char value, int n) { for (int i = 0; i < n; ++i) out[i] = value; }
"""


def test_c_functions(served: Daemon, tmp_path: Path) -> None:
    import numpy

    (tmp_path / "by.h").write_text("#define BY 2\n")
    wanted = ["twice", "dot", "void fill(float* out, unsigned char value, int n)"]
    made = warmcc.cfunctions(C, wanted, include_dirs=[tmp_path])
    assert made.twice(21) == 42
    x = torch.arange(4, dtype=torch.float64)
    assert made.dot(x, numpy.ones(4), 4) == 6.0
    out = torch.zeros(3)
    assert made.fill(out, 7, 3) is None and out.tolist() == [7.0, 7.0, 7.0]
    (tmp_path / "by.h").write_text("#define BY 3\n")
    time.sleep(0.05)
    assert warmcc.cfunctions(C, wanted, include_dirs=[tmp_path]).twice(21) == 63
    for arguments, error, said in (
        ((out, 256, 3), OverflowError, "`unsigned char value`: 256 does not fit"),
        ((out, 7), TypeError, "takes 3 arguments"),
        ((x, 7, 3), TypeError, "float32 is expected, and a float64 tensor"),
        ((out.expand(3, 3).t(), 7, 3), ValueError, "not contiguous"),
        ((numpy.ones(3), 7, 3), TypeError, "float32 is expected, and a numpy array of float64"),
    ):
        with pytest.raises(error, match=said):
            made.fill(*arguments)
    frozen = numpy.ones(3, dtype=numpy.float32)
    frozen.setflags(write=False)
    with pytest.raises(ValueError, match="may not be written"):
        made.fill(frozen, 7, 3)


def test_c_functions_are_kept(served: Daemon, tmp_path: Path) -> None:
    source = f"int one(void) {{ return 1; }} // {tmp_path}\n"
    before = served.status()["requests"]
    for _ in range(2):
        assert warmcc.cfunctions(source, "one").one() == 1
    after = served.status()["requests"]
    assert (after["misses"] - before["misses"], after["hits"] - before["hits"]) == (1, 1)


def test_cpp_functions_and_their_mistakes(served: Daemon) -> None:
    source = '#include <cmath>\nextern "C" float root(float x) { return std::sqrt(x); }\n'
    made = warmcc.cfunctions(source, "root", language="c++", options=["-O3", "-lm"])
    assert made.root(9) == 3.0
    with pytest.raises(ValueError, match=r'declare it extern "C"'):
        warmcc.cfunctions("float f(float x) { return x; }\n", "f", language="c++")
    with pytest.raises(CompileError) as caught:
        warmcc.cfunctions("int f(void) {\n  return nothing;\n}\n", "f")
    assert [(one.file, one.line) for one in caught.value.diagnostics] == [("functions.c", 2)]
    with pytest.raises(ValueError, match="no function 'g'"):
        warmcc.cfunctions("int f(void) { return 1; }\n", "g")


def test_c_functions_without_a_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARMCC_DISABLE", "1")
    source = "int sum(const char* s, int n) { int t = 0; while (n--) t += *s++; return t; }\n"
    assert warmcc.cfunctions(source, "sum").sum(b"\x01\x02\x03", 3) == 6
