"""Variants of the example's attention kernel: built without a GPU, for several architectures, and
loaded without a compiler. With a GPU they are compared with a reference."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import warmcc
from tests.cuda.conftest import CudaDaemon
from tests.support import ROOT
from tests.support.bundling import Target
from tests.support.prebuilding import imported
from warmcc.client.connection import session
from warmcc.client.prebuild import api, plan, spec
from warmcc.client.prebuild.template import Template

pytestmark = pytest.mark.ci
EXAMPLE = ROOT / "examples" / "fa_variants"


def built(name: str, output: Path, count: int, architectures: list[str]) -> warmcc.Prebuilt:
    """The first variants of the example's sample."""
    read = spec.read(EXAMPLE / "spec.toml")
    arguments = {**read.template.arguments, "architectures": architectures}
    session.forget()
    return api.build(
        plan.plan(name, read.variants[:count], Template(arguments), entry=read.entry, version="1"),
        output,
    )


def test_the_examples_variants(client: CudaDaemon, tmp_path: Path) -> None:
    made = built("fa_some", tmp_path, 2, ["9.0"])
    assert (made.compiled, made.failed) == (2, {})
    package = imported(tmp_path, "fa_some")
    x = torch.zeros(1, 1, 1, package.run_config_0.parameters["head_dim"], dtype=torch.half)
    for variant in package.variants.values():
        with pytest.raises(RuntimeError, match="q must be a contiguous tensor of halves"):
            variant(x, x, x)
        (kernel,) = variant.metadata["kernels"]
        assert "attention_kernel" in kernel["name"] and kernel["architecture"] == "sm_90"
        assert kernel["registers"] > 16
    assert package.metadata["toolchain"]["nvcc"][0].startswith("Cuda compilation tools")
    if torch.cuda.is_available():
        words = [sys.executable, str(EXAMPLE / "check.py"), made.path]
        assert subprocess.run(words, timeout=300).returncode == 0


def test_several_architectures_without_a_compiler(client: CudaDaemon, tmp_path: Path) -> None:
    built("fa_two", tmp_path, 1, ["8.0", "9.0+PTX"])
    package = imported(tmp_path, "fa_two")
    assert package.metadata["variants"][0]["architectures"] == ["compute_90", "sm_80", "sm_90"]
    warmcc.pack(tmp_path / "fa_two.tar.gz", [tmp_path / "fa_two"])
    target = Target(tmp_path / "target")
    assert target.warmcc("unpack", str(tmp_path / "fa_two.tar.gz")).returncode == 0
    script = "import fa_two; print(callable(fa_two.run_config_0.function))"
    done = target.run("-c", script, PYTHONPATH=str(tmp_path))
    assert done.stdout == "True\n", done.stderr
