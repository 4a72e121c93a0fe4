"""torch.compile by the daemon: with torch's own Inductor, in processes of its own."""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.support.bundling import Target
from tests.support.commands import warmcc as run_warmcc
from tests.support.daemons import Daemon
from warmcc.client.inductor import commands

MODEL = """
    import torch, warmcc
    warmcc.inductor.enable()
    x = torch.linspace(-1, 1, 4096)
    f = torch.compile(lambda x: torch.relu(x * NUMBER) + 1.0)
    assert torch.allclose(f(x), torch.relu(x * NUMBER) + 1.0)
    print("right")
"""

GRAPHS = "print(torch._dynamo.utils.counters['inductor']['fxgraph_cache_miss'])"


def model(number: int, more: str = "") -> str:
    lines = textwrap.dedent(MODEL).strip().splitlines()
    lines.insert(2, more)
    return "\n".join(lines).replace("NUMBER", str(number))


def run(
    daemon: Daemon, folder: Path, code: str, *words: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """In empty folders of Inductor's."""
    folder.mkdir(exist_ok=True)
    environment = {
        **os.environ, **daemon.environment, "TORCHINDUCTOR_CACHE_DIR": f"{folder}/cache",
        "TMPDIR": str(folder), **variables,
    }  # fmt: skip
    return subprocess.run(
        [*(words or (sys.executable,)), "-c", code], env=environment, capture_output=True, text=True
    )


def counted(daemon: Daemon) -> dict[str, Any]:
    found: dict[str, Any] = daemon.status()["requests"]
    return found


def libraries(folder: Path) -> dict[str, bytes]:
    """The machine code of the libraries that hold a kernel."""
    found = {}
    for path in folder.glob("cache/??/*.so"):
        text = path.with_suffix(".cpp").read_text()
        if "cpp_prefix.h" in text:
            disassembled = subprocess.run(
                ["objdump", "-d", "--no-show-raw-insn", path], capture_output=True, check=True
            ).stdout
            found[path.name] = disassembled.partition(b"Disassembly")[2]
    return found


@pytest.fixture
def reached(daemon: Daemon, no_session_of_before: None, monkeypatch: pytest.MonkeyPatch) -> Daemon:
    for name, value in daemon.environment.items():
        monkeypatch.setenv(name, value)
    return daemon


def test_a_command_gives_what_the_compiler_gives(reached: Daemon, tmp_path: Path) -> None:
    """And the same text is a hit in another folder."""

    def never(cmd_line: str, cwd: str) -> None:
        raise AssertionError(cmd_line)

    own = {}
    for folder in ("one", "two"):
        source = tmp_path / folder / "c1.main.cpp"
        source.parent.mkdir()
        source.write_text('extern "C" int seven() { return ONE + 6; }\n')
        target = source.with_suffix(".so")
        line = f"g++ {source} -D ONE=1 -O3 -shared -fPIC -std=c++17 -Wall -o {target} -lm"
        before = counted(reached)
        commands.served(never)(line, str(tmp_path))
        after = counted(reached)
        own[folder] = {kind: after[kind] - before[kind] for kind in ("hits", "misses")}
        assert ctypes.CDLL(str(target)).seven() == 7
        by_daemon = target.read_bytes()
        subprocess.run(shlex.split(line), check=True)
        assert by_daemon == target.read_bytes()
    assert own == {"one": {"hits": 0, "misses": 1}, "two": {"hits": 1, "misses": 0}}


@pytest.mark.slow
def test_compiled_once_and_as_by_torch(reached: Daemon, tmp_path: Path) -> None:
    """A second process, with other folders and with Inductor's caches off, compiles nothing."""
    first = run(reached, tmp_path / "first", model(3))
    assert first.stdout == "right\n" and "warmcc" not in first.stderr, first.stderr
    before = counted(reached)
    off = {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
    assert run(reached, tmp_path / "second", model(3), **off).stdout == "right\n"
    after = counted(reached)
    assert (after["misses"], after["failed"]) == (before["misses"], before["failed"])
    assert after["hits"] > before["hits"] and after["fallbacks"] == before["fallbacks"]
    stock = run(reached, tmp_path / "stock", model(3), WARMCC_DISABLE="1")
    assert stock.stdout == "right\n"
    ours, theirs = libraries(tmp_path / "first"), libraries(tmp_path / "stock")
    assert ours == theirs and ours


@pytest.mark.slow
def test_a_wrapper_in_cpp(reached: Daemon, tmp_path: Path) -> None:
    code = model(5, "import torch._inductor.config as c; c.cpp_wrapper = True")
    before = counted(reached)
    done = run(reached, tmp_path / "run", code)
    assert (done.stdout, done.returncode) == ("right\n", 0), done.stderr
    after = counted(reached)
    assert after["misses"] > before["misses"] and after["fallbacks"] == before["fallbacks"]


@pytest.mark.slow
def test_the_way_back(reached: Daemon, tmp_path: Path) -> None:
    """Without a daemon, Inductor compiles, with its own precompiled header; disabled, it does not
    ask."""
    gone = {"WARMCC_RUNTIME_DIR": str(tmp_path), "WARMCC_FALLBACK": "1"}
    done = run(reached, tmp_path / "away", model(7), **gone)
    assert done.stdout == "right\n"
    assert done.stderr.count("Inductor runs its compiler itself") == 1, done.stderr
    assert list(tmp_path.glob("away/torchinductor_*/precompiled_headers/*.gch"))
    before = counted(reached)
    code = model(7, "warmcc.inductor.disable()")
    assert run(reached, tmp_path / "disabled", code).stdout == "right\n"
    assert counted(reached) == before


@pytest.mark.slow
def test_a_packed_model_without_a_compiler(
    reached: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine with other folders: no compiler in PATH, no $CXX, no daemon, an empty cache."""
    path = tmp_path / "model.py"
    path.write_text(model(9) + "\n" + GRAPHS)
    bundle = str(tmp_path / "model.tar.gz")
    compiler = tmp_path / "compilers/g++"
    compiler.parent.mkdir()
    compiler.symlink_to(shutil.which("g++") or "")
    monkeypatch.setenv("CXX", str(compiler))
    run_warmcc(reached, "pack", bundle, "--record", "--", sys.executable, str(path))
    (tmp_path / "empty").mkdir()
    empty = {name: str(tmp_path / "empty") for name in ("TMPDIR", "TORCHINDUCTOR_CACHE_DIR")}
    target = Target(tmp_path / "target", **empty)
    assert target.warmcc("unpack", bundle).returncode == 0
    done = target.run(str(path))
    assert (done.stdout, done.returncode) == ("right\n0\n", 0), done.stderr
    path.write_text(model(10))
    other = target.run(str(path))
    assert other.returncode != 0 and "no unpacked bundle has 'torch.compile'" in other.stderr


HELPER = """
import warmcc
warmcc.inductor.enable()
from triton.runtime.build import compile_module_from_src
SOURCE = '''#include <Python.h>
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "helper", "number NUMBER", -1};
PyMODINIT_FUNC PyInit_helper(void) { return PyModule_Create(&module); }
'''
print(compile_module_from_src(SOURCE, "helper").__doc__)
"""


@pytest.mark.slow
def test_a_packed_helper_of_triton(reached: Daemon, tmp_path: Path) -> None:
    """Triton compiles C modules for its driver and its launchers, with an empty cache."""
    pytest.importorskip("triton.runtime.build")
    path = tmp_path / "helper.py"
    path.write_text(HELPER)
    bundle = str(tmp_path / "helper.tar.gz")
    run_warmcc(reached, "pack", bundle, "--record", "--", sys.executable, str(path))
    target = Target(tmp_path / "target", TRITON_CACHE_DIR=str(tmp_path / "empty"))
    assert target.warmcc("unpack", bundle).returncode == 0
    done = target.run(str(path))
    assert (done.stdout, done.returncode) == ("number NUMBER\n", 0), done.stderr
    path.write_text(HELPER.replace("NUMBER", "2"))
    other = target.run(str(path))
    assert other.returncode != 0 and "no unpacked bundle has 'torch.compile'" in other.stderr


GROUPS = """
import warmcc
warmcc.inductor.enable()
import torch._inductor.compile_fx
from triton.runtime.cache import get_cache_manager
cache = get_cache_manager("0123456789abcdef")
found = cache.get_group("kernel.json")
if found is None:
    assert KEPT
    files = {name: cache.put(name.encode(), name) for name in ("kernel.json", "kernel.cubin")}
    cache.put_group("kernel.json", files)
    found = cache.get_group("kernel.json")
print(sorted((name, open(path).read() == name) for name, path in found.items()))

from torch._inductor.runtime import triton_heuristics, autotune_cache
from torch._inductor.codecache import cache_dir
from triton import Config
configs = [Config({"XBLOCK": size}, num_warps=4, num_stages=1) for size in (64, 128)]
meta = {"autotune_local_cache": True, "autotune_remote_cache": False}
if KEPT:
    kept = autotune_cache.AutotuneCache.create(
        meta, f"{cache_dir()}/ab/source.py", triton_heuristics.hash_configs(configs)
    )
    kept.save(configs[1], 0)
check = triton_heuristics.check_autotune_cache
print([one.kwargs for one in check(configs, "/gone/ab/source.py", meta)[0]])
"""


@pytest.mark.slow
def test_packed_machine_code_of_triton(reached: Daemon, tmp_path: Path) -> None:
    """Of kernels that no graph has, and the choices of a graph's."""
    pytest.importorskip("triton.runtime.cache")
    path = tmp_path / "groups.py"
    path.write_text(HELPER + GROUPS.replace("KEPT", "True"))
    bundle = str(tmp_path / "groups.tar.gz")
    words = ("pack", bundle, "--record", "--", sys.executable, str(path))
    assert "'XBLOCK': 64" in run_warmcc(reached, *words)
    target = Target(tmp_path / "target", TRITON_CACHE_DIR=str(tmp_path / "empty"),
        TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "empty"))  # fmt: skip
    assert target.warmcc("unpack", bundle).returncode == 0
    path.write_text(HELPER + GROUPS.replace("KEPT", "False"))
    done = target.run(str(path))
    assert done.stdout.splitlines()[1:] == [
        "[('kernel.cubin', True), ('kernel.json', True)]", "[{'XBLOCK': 128}]",
    ], done.stderr  # fmt: skip
