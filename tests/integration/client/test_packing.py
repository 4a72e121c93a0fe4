"""What goes into a bundle: by artifact, name or key, and what a command's processes load."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import warmcc
from tests.support.bundling import Target, packed, plain, script
from tests.support.calls import module_source
from tests.support.commands import warmcc as run_warmcc
from tests.support.daemons import Daemon
from warmcc.client.connection import session
from warmcc.errors import BundleError, RequestError


@pytest.fixture(autouse=True)
def _reaching(daemon: Daemon, fresh_client: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in daemon.environment.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return Target(tmp_path / "target")


def test_torchs_names(daemon: Daemon, tmp_path: Path, target: Target) -> None:
    """A script that is not edited; a copy is where torch would put it."""
    path = tmp_path / "script.py"
    call = script("unedited", 4).replace(
        "import warmcc", "import torch.utils.cpp_extension as warmcc"
    )
    path.write_text(call)
    out = str(tmp_path / "unedited.tar.gz")
    run_warmcc(daemon, "pack", out, "--record", "--", sys.executable, str(path))
    assert target.warmcc("unpack", out).returncode == 0
    done = target.run("-m", "warmcc", str(path))
    assert done.stdout.startswith("4 "), done.stderr
    (copy,) = target.home.glob(".cache/torch_extensions/*/unedited/unedited.so")
    assert copy.stat().st_size > 1000


@pytest.mark.slow
def test_torchs_own_headers(tmp_path: Path, target: Target) -> None:
    call = (
        "from torch.utils.cpp_extension import load_inline\n"
        "module = load_inline('square', 'torch::Tensor square(torch::Tensor x) { return x * x; }', "
        "functions=['square'])\n"
        "import torch; print(module.square(torch.full([2], 3.0)).sum().item())\n"
    )
    path = tmp_path / "script.py"
    path.write_text(call)
    bundle = tmp_path / "square.tar.gz"
    environment = {**os.environ, "TORCH_EXTENSIONS_DIR": str(tmp_path / "extensions")}
    done = subprocess.run(
        [sys.executable, "-m", "warmcc.client.cli", "pack", bundle, "--record", "--",
            sys.executable, path],
        env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "18.0\n"), done.stderr
    assert "packed 1 artifacts into" in done.stderr
    entry = warmcc.unpack(bundle, tmp_path / "other")
    assert entry.artifacts == ["square"]
    assert target.warmcc("unpack", str(bundle)).returncode == 0
    done = target.run("-m", "warmcc", str(path))
    assert done.stdout == "18.0\n", done.stderr


def test_the_same_artifacts_give_the_same_bytes(tmp_path: Path) -> None:
    one, two = plain(1, "same_one"), plain(2, "same_two")
    for suffix in (".tar.gz", ".tar.xz", ".tar.zst", ".tar"):
        first, second = tmp_path / f"first{suffix}", tmp_path / f"second{suffix}"
        made = warmcc.pack(first, [one, two])
        assert warmcc.pack(second, [two, one, two]).id == made.id
        assert first.read_bytes() == second.read_bytes()
    by_name = tmp_path / "by_name.tar"
    warmcc.pack(by_name, ["same_two", "same_one"])
    assert by_name.read_bytes() == (tmp_path / "first.tar").read_bytes()


def test_by_key_as_cache_ls_shows_it(daemon: Daemon, tmp_path: Path) -> None:
    plain(3, "by_key")
    rows = run_warmcc(daemon, "cache", "ls").splitlines()
    (key,) = [row.split()[-1] for row in rows if row.startswith("by_key.so")]
    run_warmcc(daemon, "pack", str(tmp_path / "a.tar.gz"), key)
    listed = run_warmcc(daemon, "unpack", "--list", str(tmp_path / "a.tar.gz"))
    assert [row.split()[0] for row in listed.splitlines()[2:]] == ["by_key"]


@pytest.mark.slow
def test_recorded_processes(daemon: Daemon, tmp_path: Path, target: Target) -> None:
    """All of a command's processes, also sources that are gone at its end."""
    child = tmp_path / "child.py"
    child.write_text(script("rec_child", 2))
    main = tmp_path / "main.py"
    main.write_text(
        "import os, subprocess, sys, tempfile, warmcc\n"
        f"subprocess.run([sys.executable, {str(child)!r}], check=True)\n"
        "with tempfile.TemporaryDirectory() as folder:\n"
        "    path = os.path.join(folder, 'rec_file.cpp')\n"
        f"    open(path, 'w').write({module_source(3, 'rec_file')!r})\n"
        "    warmcc.build('rec_file', [path])\n" + script("rec_main", 1)
    )
    run_warmcc(
        daemon, "pack", str(tmp_path / "r.tar.gz"), "--record", "--", sys.executable, str(main)
    )
    listed = run_warmcc(daemon, "unpack", "--list", str(tmp_path / "r.tar.gz"))
    names = [row.split()[0] for row in listed.splitlines()[2:]]
    assert names == ["rec_child", "rec_file", "rec_main"]
    assert target.warmcc("unpack", str(tmp_path / "r.tar.gz")).returncode == 0
    assert target.run(str(main)).stdout.split()[-2] == "1"


@pytest.mark.parametrize(
    ("program", "variables", "code", "said"),
    [
        ("raise SystemExit(7)", {}, 7, "failed with exit code 7; nothing was packed"),
        ("pass", {}, 3, "loaded and built no extension"),
        (script("by_stock", 1), {"WARMCC_DISABLE": "1"}, 3, "stock torch built by_stock, so"),
    ],
)
def test_recordings_that_fail(
    daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str,
    variables: dict[str, str], code: int, said: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "stock"))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    out = tmp_path / "failed.tar.gz"
    words = ("pack", str(out), "--record", "--", sys.executable, "-c", program)
    assert said in run_warmcc(daemon, *words, code=code)
    assert list(tmp_path.glob("failed*")) == []


def test_mistakes(daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = plain(1, "mistakes")
    with pytest.raises(BundleError, match=r"a\.zip: the name of a bundle ends in one of \.tar\.gz"):
        warmcc.pack(tmp_path / "a.zip", [good])
    with pytest.raises(BundleError, match="nothing to pack"):
        warmcc.pack(tmp_path / "a.tar", [])
    with pytest.raises(BundleError, match="5 is neither an Artifact nor a name"):
        warmcc.pack(tmp_path / "a.tar", [5])
    with pytest.raises(BundleError, match="no artifact 'unheard_of' can be packed: `warmcc cache"):
        warmcc.pack(tmp_path / "a.tar", ["unheard_of"])
    with pytest.raises(BundleError, match=r"none/a\.tar.*: No such file or directory"):
        warmcc.pack(tmp_path / "none" / "a.tar", [good])
    with pytest.raises(BundleError, match=r"nothing\.tar: No such file or directory"):
        warmcc.unpack(tmp_path / "nothing.tar", tmp_path / "to")
    assert os.listdir(tmp_path / "to") == [] and not list(tmp_path.glob("a.*"))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(BundleError, match=r"\.tar\.zst needs the package zstandard: pip install"):
        warmcc.pack(tmp_path / "a.tar.zst", [good])


def test_a_changed_source_is_stale(tmp_path: Path) -> None:
    """A name whose files have changed is not packed; an artifact of them is what it was."""
    source = tmp_path / "stale.cpp"
    source.write_text(module_source(1, "stale"))
    built = warmcc.build("stale", [source])
    source.write_text(module_source(2, "stale"))
    with pytest.raises(BundleError, match="'stale' can be packed: its files or its toolchain have"):
        warmcc.pack(tmp_path / "by_name.tar", ["stale"])
    warmcc.pack(tmp_path / "a.tar", [built])
    session.forget()


@pytest.mark.slow
def test_listing_and_removing(daemon: Daemon, tmp_path: Path, target: Target) -> None:
    for number in (1, 2):
        bundle = packed(tmp_path, number, f"removed{number}")
        assert target.warmcc("unpack", str(bundle)).returncode == 0
    listed = target.warmcc("bundles", "ls").stdout.splitlines()[1:]
    first = next(row.split()[0] for row in listed if row.endswith("removed1"))
    assert target.warmcc("bundles", "rm", first).stdout == f"removed bundle {first}\n"
    assert target.warmcc("bundles", "rm", first).returncode == 3
    assert "rm needs the id" in target.warmcc("bundles", "rm").stderr
    assert target.run("-c", script("removed2", 2)).stdout.startswith("2 ")
    assert "OfflineError" in target.run("-c", script("removed1", 1)).stderr
    cleared = target.warmcc("cache", "clear", "--all")
    assert f"kept {target.bundles}: bundles; see warmcc bundles" in cleared.stdout, cleared
    assert target.run("-c", script("removed2", 2)).stdout.startswith("2 ")


def test_usage(daemon: Daemon) -> None:
    for words, said in (
        (["a.tar", "--record"], "name the command alone"),
        (["a.tar", "--record", "name", "--", "x"], "name the command alone"),
        (["a.tar", "--", "python"], "a command is run only with --record"),
        (["a.tar", "name", "--sing", "k"], "pack has no option --sing"),
    ):
        assert said in run_warmcc(daemon, "pack", *words, code=3)
    with pytest.raises(RequestError, match="no argument"):
        plain(1, "usage", nothing=1)
