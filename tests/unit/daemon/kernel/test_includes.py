"""What a text may read, as NVRTC does not say it."""

from __future__ import annotations

from pathlib import Path

import pytest

from warmcc.daemon.kernel.includes import ByMacro, Includes, directives


def test_directives_in_all_forms() -> None:
    text = (
        b'#include <a.h>\n  #\tinclude "b.h"\n#/* x */include <c.h>\n%:include <d.h>\n'
        b'#incl\\\nude <e.h>\n// #include <no.h>\n/* \n#include <no.h>\n*/\n#include NAME\n'
        b'#include_next "f.h"\nint include; #include <no.h>\n'
    )  # fmt: skip
    assert directives(text) == [
        ("a.h", False), ("b.h", True), ("c.h", False), ("d.h", False), ("e.h", False),
        ("", False), ("f.h", True),
    ]  # fmt: skip


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    files = {
        "mine/a.h": '#include "b.h"\n#include <kit/k.h>\n', "mine/b.h": "", "mine/sub/c.h": "",
        "kit/kit/k.h": '#include "l.h"\n#include MACRO\n#include_next <kit/k.h>\n',
        "kit/kit/l.h": "", "mine/by_macro.h": "#include WHAT\n",
        "mine/sub/up.h": '#include "../b.h"\n',
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def reads(tree: Path, text: str, *forced: str) -> tuple[set[str], set[str]]:
    folders = [str(tree / "mine"), str(tree / "kit")]
    found = Includes().reads(text, folders, [str(tree / "kit")], list(forced))
    cut = len(str(tree)) + 1
    return {path[cut:] for path in found.files}, {path[cut:] for path in found.absent}


def test_headers_of_headers_are_followed(tree: Path) -> None:
    files, absent = reads(tree, '#include "a.h"\n')
    assert files == {"mine/a.h", "mine/b.h", "kit/kit/k.h", "kit/kit/l.h"}
    assert absent == set()


def test_conditions_do_not_matter_and_missing_names_stay_missing(tree: Path) -> None:
    files, absent = reads(tree, "#ifdef NO\n#include <sub/c.h>\n#include <none.h>\n#endif\n")
    assert files == {"mine/sub/c.h"}
    assert absent == {"mine/none.h", "kit/none.h"}


def test_forced_headers_count(tree: Path) -> None:
    assert reads(tree, "int x;\n", "b.h")[0] == {"mine/b.h"}


def test_what_a_macro_includes_is_not_known(tree: Path) -> None:
    for text in ("#include WHAT\n", '#include "by_macro.h"\n'):
        with pytest.raises(ByMacro):
            reads(tree, text)


def test_an_edit_of_a_header_is_read_again(tree: Path) -> None:
    includes, folders = Includes(), [str(tree / "mine")]
    assert len(includes.reads('#include "b.h"\n', folders, [], []).files) == 1
    (tree / "mine/b.h").write_text('#include "sub/c.h"\n')
    assert len(includes.reads('#include "b.h"\n', folders, [], []).files) == 2
