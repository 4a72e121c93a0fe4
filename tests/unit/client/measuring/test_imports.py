"""What ``-X importtime`` writes, as a tree; and real imports in new processes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from warmcc.client.measuring import imports
from warmcc.client.measuring.imports import Imports, Module, read
from warmcc.client.measuring.in_zygote import InZygote
from warmcc.errors import RequestError

TEXT = f"""\
import time: self [us] | cumulative | imported package
import time:        10 |         10 | site
{imports._BEGIN}
import time:       100 |        100 |     torch._C
a warning of somebody's
import time:        20 |         20 |     numpy
import time:         5 |        125 |   torch.deep
import time:        50 |        175 | torch
import time:         1 |          1 | json
{imports._END}
import time:         7 |          7 | encodings.idna
"""


def test_a_module_stands_behind_those_that_it_imports() -> None:
    torch, json = read(TEXT)
    assert (torch.name, torch.own, torch.whole) == ("torch", 5e-05, 0.000175)
    (deep,) = torch.children
    assert [one.name for one in deep.children] == ["torch._C", "numpy"]
    assert (json.name, json.children) == ("json", [])


def test_nothing_between_the_marks_is_no_module() -> None:
    assert read("") == [] == read(TEXT.partition(imports._BEGIN)[0])


def taken() -> Imports:
    return Imports(["torch", "json"], 0.1, 0.2, 1, 1, read(TEXT))


def test_all_modules_come_before_their_own_imports() -> None:
    names = [one.name for one in taken().all()]
    assert names == ["torch", "torch.deep", "torch._C", "numpy", "json"]


def test_what_a_zygote_lacks_is_named_once_and_the_dearest_first() -> None:
    def missing(*before: str) -> list[str]:
        return [one.name for one in InZygote(0.1, frozenset(before)).missing(taken())]

    assert missing("torch", "torch.deep", "torch._C", "numpy", "json") == []
    assert missing("json") == ["torch"]
    assert missing("torch", "torch.deep", "json") == ["torch._C", "numpy"]
    assert missing("torch", "torch.deep", "torch._C", "numpy") == ["json"]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Python finds modules in this folder."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_real_imports_with_their_files(package: Path) -> None:
    folder = package / "outer"
    folder.mkdir()
    (folder / "data.txt").write_text("x")
    (folder / "__init__.py").write_text(
        "import sys\nprint('on both streams')\nprint('on both streams', file=sys.stderr)\n"
        f"for i in range(3): open({str(folder / 'data.txt')!r}).close()\nimport outer.inner\n"
    )
    (folder / "inner.py").write_text("import os\nos.listdir('.')\n")
    found = imports.measure(sys.executable, ["outer"], 1)
    by_name = {module.name: module for module in found.all()}
    assert by_name["outer"].children == [by_name["outer.inner"]]
    assert by_name["outer"].opened == 4  # the byte code, and three times the data
    assert by_name["outer.inner"].listed == 2  # its folder to find it, and its own listing
    assert 0 < by_name["outer.inner"].whole < by_name["outer"].whole <= found.measured
    assert found.seconds > 0 and found.memory > 1 << 20 and found.threads == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1/0", "broken cannot be imported: ZeroDivisionError: division by zero"),
        ("import nowhere_to_be_found", "No module named 'nowhere_to_be_found'"),
        ("import os; os._exit(3)", "ended with code 3"),
        ("import os; os.kill(os.getpid(), 9)", "ended with code -9"),
        ("import sys; sys.exit(4)", "SystemExit: 4"),
    ],
)
def test_what_cannot_be_imported_is_one_error(package: Path, text: str, said: str) -> None:
    (package / "broken.py").write_text(text)
    with pytest.raises(RequestError, match=said):
        imports.measure(sys.executable, ["broken"], 1)


@pytest.mark.parametrize("name", ["", "a b", "-c", "a..b", "os;x", "a.b.", "../x"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(RequestError, match="is not the name of a module"):
        imports.measure(sys.executable, [name], 1)


def test_an_import_that_does_not_end(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (package / "endless.py").write_text("import time; time.sleep(60)")
    monkeypatch.setattr(imports, "SECONDS", 0.5)
    with pytest.raises(RequestError, match="took more than"):
        imports.measure(sys.executable, ["endless"], 1)


def test_a_package_is_the_first_part_of_a_name() -> None:
    assert Module("torch._C._x", 0, 0).package == "torch"
