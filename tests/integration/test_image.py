"""``examples/image``: what ``bake.sh`` fills serves a new cache at once, also with other times."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zmq

from tests.support.calls import Connection, request
from tests.support.daemons import Daemon
from tests.support.pages import TOP
from warmcc.protocol import Built

IMAGE = TOP / "examples" / "image"
C_AND_CPP = {"WARMCC_PREWARM_CUDA": "0", "WARMCC_PREWARM_IDLE": "", "WARMCC_CUDA_WARM": "0"}


def test_the_definitions_name_what_is_there() -> None:
    named = re.compile(r"examples/image/[\w.]+")
    for name in ("Dockerfile", "modal_image.py", "ci.yml"):
        text = (IMAGE / name).read_text()
        assert "examples/image/bake.sh" in text
        assert [path for path in named.findall(text) if not (TOP / path).exists()] == []
    ast.parse((IMAGE / "modal_image.py").read_text())


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_baked_folder_serves_the_first_call(
    tmp_path: Path, fresh_daemon: Callable[..., Daemon], context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    other = Daemon()  # whose folders the script's daemon has, but for the cache
    folder = tmp_path / "baked"
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "warmcc"
    command.write_text('#!/bin/sh\nexec "$PYTHON" -m warmcc.client.cli "$@"\n')
    command.chmod(0o755)
    try:
        environment = {
            **os.environ, **other.environment, **C_AND_CPP, "WARMCC_AUTOSTART": "1",
            "PATH": f"{command.parent}:{os.environ['PATH']}", "PYTHON": sys.executable,
            "PYTHONPATH": str(TOP),
        }  # fmt: skip
        done = subprocess.run(
            ["sh", IMAGE / "bake.sh", folder],
            env=environment, capture_output=True, text=True, timeout=1100,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        other.discard()
    for path in folder.rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000), follow_symlinks=False)
    daemon = fresh_daemon(baked=str(folder), cuda_warm=False)
    source = "torch::Tensor add(torch::Tensor a, double b) { return a + b + 77; }\n"
    answer = Connection(daemon, context).build(
        request(cpp_sources=[source], functions=["add"], no_implicit_headers=False)
    )
    assert isinstance(answer, Built) and answer.outcome == "miss"
    assert answer.way == "lean way, with a precompiled header"
    assert [one["state"] for one in daemon.status()["profiles"]] == ["ready"] * 3
