"""A compile that nothing accelerates gets room, unless what is made would tell."""

from __future__ import annotations

import pytest

import warmcc
from tests.support.calls import module_source
from tests.support.daemons import Daemon


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "given"), [([], True), (["-O2"], True), (["-g"], False), (["-O2", "-g1"], False)]
)
def test_which_compiles_get_it(
    daemon: Daemon,
    flags: list[str],
    given: bool,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    if daemon.switched_off == "compiler_heap":
        pytest.skip("it is switched off")
    for name, value in daemon.environment.items():
        monkeypatch.setenv(name, value)
    name = "roomy" + "".join(flags).replace("-", "_")
    source = "int first;  // no precompiled header begins with it\n" + module_source(7, name)
    made = warmcc.load_inline(
        name, source, extra_cflags=flags, no_implicit_headers=True, verbose=True
    )
    assert made.answer() == 7
    shown = [line for line in capfd.readouterr().out.splitlines() if " -c main.cpp" in line]
    assert len(shown) == 1
    assert ("--param=ggc-min-heapsize=" in shown[0]) == given
