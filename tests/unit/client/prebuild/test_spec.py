"""Spec files and templates: what they come to, and mistakes in them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support import ROOT
from warmcc.client.prebuild import plan, spec
from warmcc.client.prebuild.plan import Plan
from warmcc.client.prebuild.template import Template, macros
from warmcc.errors import RequestError

GOOD = """
name = "pack"
version = "1.2"
cpp_files = ["a.cpp"]
functions = ["f"]
extra_cflags = ["-DN={{tile}}"]
extra_include_paths = ["include"]
defines = {STAGES = "stages"}
constraints = ["tile < 3"]
[parameters]
tile = [1, 2, 3]
stages = [true, false]
[sample]
method = "random"
count = 2
"""


def made(path: Path) -> Plan:
    read = spec.read(path)
    return plan.plan(
        read.name, read.variants, read.template, entry=read.entry, version=read.version
    )


def written(folder: Path, text: str) -> Path:
    (folder / "a.cpp").write_text("int tile = {{ tile }}; bool on = {{stages}};\n")
    path = folder / "spec.toml"
    path.write_text(text)
    return path


def test_a_spec_is_a_plan(tmp_path: Path) -> None:
    found = made(written(tmp_path, GOOD.replace('"random"\ncount = 2', '"all"')))
    assert (found.name, found.version, found.entry, len(found.jobs)) == ("pack", "1.2", "f", 4)
    first, second = found.jobs[:2]
    assert (first.key, second.key) == ("tile=1,stages=true", "tile=1,stages=false")
    assert first.arguments["cpp_sources"] == ["int tile = 1; bool on = true;\n"]
    assert first.arguments["extra_cflags"] == ["-DN=1", "-DSTAGES=1"]
    assert first.arguments["extra_cuda_cflags"] == ["-DSTAGES=1"]
    assert second.arguments["extra_cflags"] == ["-DN=1", "-DSTAGES=0"]
    assert first.arguments["extra_include_paths"] == [str(tmp_path / "include")]
    assert first.module.startswith("pack_") and first.module != second.module
    again = made(written(tmp_path, GOOD))
    assert {job.id for job in again.jobs} < {job.id for job in found.jobs}


def test_a_function_makes_the_sources(tmp_path: Path) -> None:
    (tmp_path / "make.py").write_text(
        "def sources(one):\n    return {'cpp_sources': [f'int x = {one[\"tile\"] * 2};']}\n"
    )
    text = 'name = "pack"\ntemplate = "make.py:sources"\nfunctions = "f"\n[[variants]]\ntile = 4\n'
    (job,) = made(written(tmp_path, text)).jobs
    assert job.arguments == {"functions": "f", "cpp_sources": ["int x = 8;"]}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("version", "versoin", "unknown key versoin; did you mean version"),
        ("[sample]", "[sample]\nseeds = 1", "unknown key sample.seeds; did you mean sample.seed"),
        ('name = "pack"', "", "name is missing"),
        ('"pack"', '"class"', "'class' is no name of a Python package"),
        ('"pack"', '"a-b"', "'a-b' is no name"),
        ('"pack"', '"torch"', "would hide torch"),
        ('"1.2"', '"new"', "'new' is no version"),
        ('"1.2"', "1.2", "version is 1.2; it must be a text"),
        ('["a.cpp"]', '["b.cpp"]', r"b\.cpp cannot be read: No such file"),
        ("tile < 3", "tiles < 3", "names 'tiles', which is no parameter"),
        ("tile < 3", "tile < 0", "the space is empty"),
        ("tile = [1, 2, 3]", "tile = []", "'tile' has no values"),
        ("tile = [1, 2, 3]", "tile = [1, 1]", "the value 1 twice"),
        ("tile = [1, 2, 3]", "tile = [1]\ntile = [2]", "spec.toml: .*"),
        ("tile = [1, 2, 3]", "tile = [1]\nother = [1]", "depends on the parameter 'other'"),
        ("tile = [1, 2, 3]", "tiles = [1]", "which is no parameter"),
        ("{{tile}}", "{{width}}", "extra_cflags has {{width}}, and there is no parameter"),
        ('"random"', '"some"', "sample.method is 'some'; it can be all"),
        ("count = 2", "", "sample.count is missing"),
        ('method = "random"', "", "sample.count needs a method"),
        ("count = 2", "count = 99", "wants 99 variants, and the space has only 4"),
        ("count = 2", "count = true", "sample.count is True; it must be a number"),
        ("[parameters]", "[[variants]]\ntile = 1\n[parameters]", "give either"),
        ('"stages"}', '"stage"}', "defines names 'stage', which is no parameter"),
        ('functions = ["f"]', "", "name the function"),
        ('functions = ["f"]', 'functions = ["f"]\nentry = "g"', "has no function 'g'"),
        ('functions = ["f"]', 'functions = ["f"]\ntemplate = "x.py"', "write it as file"),
        ('functions = ["f"]', 'functions = ["f"]\ntemplate = "x.py:f"', "there is no file"),
        ('cpp_files = ["a.cpp"]', "", "no sources given|depends on"),
    ],
)  # fmt: skip
def test_mistakes(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in GOOD
    path = written(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(RequestError, match=said):
        made(path)


def test_a_file_that_is_no_spec(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"none\.toml cannot be read: No such file"):
        spec.read(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(RequestError, match=r"binary\.toml"):
        spec.read(tmp_path / "binary.toml")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"arguments": {"cpp_source": ["{{a}}"]}}, "load_inline has no argument 'cpp_source'"),
        ({"arguments": {"verbose": True, "cpp_sources": "{{a}}"}}, "verbose cannot be given"),
        ({"arguments": {}, "function": lambda one: one["b"]}, "function fails .* KeyError: 'b'"),
        ({"arguments": {}, "function": lambda one: 3}, "gives int .* a map of arguments"),
        ({"arguments": {"cpp_sources": "{{a}}", "with_cuda": object()}}, "cannot be sent"),
    ],
)
def test_mistakes_of_a_call(given: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        plan.plan("pack", [{"a": 1}], Template(**given), entry="f", version="1")


def test_the_examples_space() -> None:
    read = spec.read(ROOT / "examples" / "fa_variants" / "spec.toml")
    assert (read.size, len(read.variants)) == (2592, 20)
    for name in read.variants[0]:
        used = Counter(one[name] for one in read.variants)
        assert max(used.values()) - min(used.values()) <= 1, name
    assert len(made(ROOT / "examples" / "fa_variants" / "spec.toml").jobs) == 20


def test_macros() -> None:
    with pytest.raises(RequestError, match="give a list"):
        macros("TILE")
    with pytest.raises(RequestError, match="'A B' is no macro"):
        macros(["A B"])
