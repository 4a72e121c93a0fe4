"""Each program does the same under ``python`` and under ``warmcc run``."""

from __future__ import annotations

import re
import shutil

import pytest

from tests.integration.run.programs import PROGRAMS, Program
from tests.support.zygotes import Zygotes

# Addresses and times; and the list of what was imported that faulthandler prints.
_VARIES = re.compile(r"(?<=0x)[0-9a-f]+|(?<= in )[\d.]+s$|\n+Extension modules: .*", re.M)


def outcome(zygotes: Zygotes, program: Program, how: str) -> dict[str, object]:
    """All that can be seen of a run."""
    shutil.rmtree(zygotes.where)
    zygotes.where.mkdir()
    for name, text in program.files.items():
        zygotes.script(text, name)
    run = zygotes.warm if how == "warm" else zygotes.plain
    done = run(*program.words, stdin=program.stdin, **program.variables)
    shutil.rmtree(zygotes.where / "__pycache__", ignore_errors=True)
    files = {
        str(path.relative_to(zygotes.where)): path.read_text(errors="replace")
        for path in sorted(zygotes.where.rglob("*"))
        if path.is_file() and path.suffix != ".pyc"
    }
    return {
        "code": done.returncode,
        "stdout": _VARIES.sub("", done.stdout),
        "stderr": _VARIES.sub("", done.stderr),
        "files": files,
    }


def test_there_are_enough() -> None:
    assert len(PROGRAMS) >= 100


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_is_the_same(started: Zygotes, name: str) -> None:
    """A run that python itself does says so on standard error, and is another one."""
    plain = outcome(started, PROGRAMS[name], "plain")
    assert outcome(started, PROGRAMS[name], "warm") == plain


def test_the_profile_of_torch_compile(fresh: Zygotes) -> None:
    """What torch.compile uses is imported, and it compiles."""
    fresh.start("--profile", "compile")
    text = (
        "import sys; print('torch._dynamo' in sys.modules, 'torch._inductor' in sys.modules)\n"
        "import torch\nf = torch.compile(lambda x: x.sin() + 1, backend='eager')\n"
        "print(f(torch.zeros(3)).sum().item(), torch.cuda.is_initialized())"
    )
    done = fresh.warm("--profile", "compile", "-c", text)
    assert done.stdout == "True True\n3.0 False\n"
    assert "python runs it" not in done.stderr
