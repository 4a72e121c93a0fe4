"""The written package, as far as it goes without an extension that can be loaded: what its import
takes, what it refuses, and its wheel."""

from __future__ import annotations

import importlib.machinery
import json
import platform
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.prebuilding import imported
from warmcc.client.prebuild import package, wheel
from warmcc.client.prebuild.draft import Draft
from warmcc.client.prebuild.plan import Plan, plan
from warmcc.client.prebuild.template import Template
from warmcc.errors import PrebuildError

ABI = importlib.machinery.EXTENSION_SUFFIXES[0]
NEEDS = {
    "machine": platform.machine(), "abi": ABI, "torch": "9.9", "torch_git": "f" * 40, "cuda": "",
    "cxx11_abi": True, "architectures": ["sm_90"],
}  # fmt: skip


def planned(name: str) -> Plan:
    template = Template({"cpp_sources": "int x = {{n}};", "functions": ["f"]})
    return plan(name, [{"n": 0}, {"n": 1}, {"n": 2}], template, entry=None, version="1.0")


def record(draft: Draft, content: bytes, **needs: Any) -> dict[str, Any]:
    return {
        "digest": draft.results.put(content), "artifact": "", "outcome": "miss", "seconds": 1.0,
        "steps": {}, "kernels": None, "toolchain": {"c++": "g++ 12"}, "needs": {**NEEDS, **needs},
    }  # fmt: skip


def written(folder: Path, name: str, **needs: Any) -> dict[str, Any]:
    """A package with two variants of three; its objects are no shared objects."""
    draft = Draft(folder, name)
    with draft.held():
        records = {number: record(draft, f"{number}".encode(), **needs) for number in (0, 2)}
        return package.write(planned(name), records, {1: "error: x"}, draft, folder / name)


def test_an_import_is_light(tmp_path: Path) -> None:
    written(tmp_path, "light")
    script = (
        "import sys; before = set(sys.modules)\n"
        "import light\n"
        "print(sorted(set(sys.modules) - before))\n"
        "from light import run_config_0, variants\n"
        "print(run_config_0.key, len(variants), len(set(sys.modules) - before) < 12)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.splitlines() == ["['light']", "n=0 2 True"], done.stderr


def test_what_is_in_it(tmp_path: Path) -> None:
    metadata = written(tmp_path, "content")
    found = imported(tmp_path, "content")
    assert found.metadata == json.loads(json.dumps(metadata))
    assert list(found.variants) == ["n=0", "n=2"]
    assert found.run_config_2 is found.variants["n=2"]
    assert found.run_config_2.parameters == {"n": 2}
    assert found.run_config_2.metadata["arguments"] == {"functions": ["f"]}
    assert repr(found.run_config_2) == "<variant n=2 of content>"
    names: dict[str, Any] = {}
    exec("from content import *", names)
    assert {"variants", "metadata", "run_config_0", "run_config_2"} <= names.keys()
    with pytest.raises(AttributeError, match=r"run_config_1 \(n=1\) did not build"):
        _ = found.run_config_1
    with pytest.raises(AttributeError, match="has no attribute 'run_config_9'"):
        _ = found.run_config_9
    with pytest.raises(ImportError, match="nothing"):
        exec("from content import nothing")


@pytest.mark.parametrize(
    ("needs", "said"),
    [
        ({"abi": ".cpython-27-x.so"}, "was built for Python .cpython-27-x.so"),
        ({"machine": "pdp11"}, "on pdp11, and this one is"),
        ({}, "was built for torch 9.9, and this is torch"),
        ({"torch": None}, r"was built for torch [\d.+a-z]+ \(ffffffff, CUDA .*\), and this is"),
        ({"torch": None, "torch_git": None}, r"objects/.* is damaged; install"),
    ],
)
def test_it_is_refused_elsewhere(
    tmp_path: Path, needs: dict[str, Any], said: str, request: pytest.FixtureRequest
) -> None:
    import torch
    import torch.version as version

    own = {
        "torch": str(torch.__version__), "torch_git": str(version.git_version),
        "cuda": str(version.cuda or ""), "cxx11_abi": bool(torch._C._GLIBCXX_USE_CXX11_ABI),
    }  # fmt: skip
    filled = {name: own[name] if value is None else value for name, value in needs.items()}
    if "torch_git" in needs:
        filled |= own
    name = f"refused_{abs(hash(request.node.name))}"
    metadata = written(tmp_path, name, **filled)
    path = tmp_path / name / metadata["variants"][0]["file"]
    path.write_bytes(b"other")
    with pytest.raises(ImportError, match=said) as caught:
        imported(tmp_path, name).run_config_0()
    assert f"{name}: n=0 cannot be loaded: " in str(caught.value)
    assert ("warmcc prebuild" in str(caught.value)) == ("damaged" not in said)


def test_an_older_package_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    written(tmp_path, "replaced")
    (tmp_path / "replaced" / "old").write_text("")
    written(tmp_path, "replaced")
    assert sorted(path.name for path in (tmp_path / "replaced").iterdir()) == [
        "__init__.py", "metadata.json", "objects"
    ]  # fmt: skip
    (tmp_path / "other").mkdir()
    with pytest.raises(PrebuildError, match="exists, and is no package of variants"):
        written(tmp_path, "other")
    (tmp_path / "link").symlink_to(tmp_path / "replaced")
    with pytest.raises(PrebuildError, match="exists, and is no package"):
        written(tmp_path, "link")


def test_one_run_at_a_time(tmp_path: Path) -> None:
    draft = Draft(tmp_path, "held")
    with draft.held():
        with pytest.raises(PrebuildError, match="in use by another run"), draft.held():
            pass
        draft.remove()
    assert list(tmp_path.iterdir()) == []


def test_workers_with_another_torch(tmp_path: Path) -> None:
    draft = Draft(tmp_path, "mixed")
    with draft.held():
        records = {0: record(draft, b"a"), 2: record(draft, b"b", torch="9.8")}
        with pytest.raises(PrebuildError, match=r"'n=2' was built for another torch \(9.8\)"):
            package.write(planned("mixed"), records, {}, draft, tmp_path / "mixed")
    assert not (tmp_path / "mixed").exists()


def test_a_wheel_is_the_same_each_time(tmp_path: Path) -> None:
    metadata = written(tmp_path, "wheeled")
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one, two = (
        wheel.write(tmp_path / "wheeled", metadata, tmp_path / name) for name in ("one", "two")
    )
    assert one.read_bytes() == two.read_bytes()
    digits = f"{sys.version_info.major}{sys.version_info.minor}"
    assert one.name == f"wheeled-1.0-cp{digits}-cp{digits}-linux_{platform.machine()}.whl"
    with zipfile.ZipFile(one) as archive:
        assert archive.testzip() is None
        listed = archive.read("wheeled-1.0.dist-info/RECORD").decode().splitlines()
        assert {line.split(",")[0] for line in listed} == set(archive.namelist())
    with pytest.raises(PrebuildError, match="no wheel can be made"):
        wheel.write(
            tmp_path / "wheeled", {**metadata, "needs": {**NEEDS, "abi": ".so"}}, tmp_path / "one"
        )
    assert len(list((tmp_path / "one").iterdir())) == 1
