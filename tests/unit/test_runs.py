"""What the two sides of ``warmcc run`` tell each other, and which facts matter."""

from __future__ import annotations

import pytest

from warmcc import runs
from warmcc.client.run import facts


def job() -> runs.Job:
    return runs.Job(
        "ab", b"/bin/python", [b"-c", b"print('\n \xff')", b""], [b"A=", b"B=x=y"], [0, 2, 63],
        0o22, 5, 1 << 63, 77, 1,
    )  # fmt: skip


def test_a_job_arrives_as_it_was() -> None:
    one, other = job(), runs.decode(job().encode())
    for name in runs.Job.__slots__:
        assert getattr(one, name) == getattr(other, name), name


@pytest.mark.parametrize(
    "data", [b"", b"a\0b", b"a\0" + b"1 " * 6 + b"\0p", b"a\0x y z\0p", b"a\0-1 0 0 0 0 -1\0p"]
)
def test_what_is_no_job_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError):
        runs.decode(data)


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["-c", "0"], "command"), (["-c"], "options"), (["-m", "x"], "module"), (["-m"], "options"),
        ([], "stdin"), (["-"], "stdin"), (["-", "-c"], "stdin"), (["x.py", "-c"], "file"),
        (["-O", "x.py"], "options"), (["-c0"], "options"), ([""], "options"), (["--"], "options"),
    ],
)  # fmt: skip
def test_how_python_reads_words(words: list[str], kind: str) -> None:
    assert runs.kind([word.encode() for word in words]) == kind


def test_which_variables_are_keyed() -> None:
    given = {"OMP_NUM_THREADS": "1", "HOME": "/", "CUDA_VISIBLE_DEVICES": "0", "LC_ALL": "C",
        "WARMCC_RUNTIME_DIR": "/x", "CUDA_HOME": "/c", "PATH": "/bin"}  # fmt: skip
    assert list(facts.keyed(given)) == ["CUDA_HOME", "LC_ALL", "OMP_NUM_THREADS"]


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"PYTHONPATH": "/a:/b"}, ""), ({"PYTHONOPTIMIZE": "1"}, "PYTHONOPTIMIZE is set"),
        ({"PYTHONOPTIMIZE": ""}, ""), ({"LD_PRELOAD": "x"}, "LD_PRELOAD is set"),
        ({"PYTHONHASHSEED": "0"}, ""),
        ({"PYTHONPATH": "a"}, "PYTHONPATH names a folder relative to the working directory"),
    ],
)  # fmt: skip
def test_for_which_variables_no_zygote_is_right(variables: dict[str, str], reason: str) -> None:
    assert facts.why_plain(variables) == reason


def test_facts_name_what_differs() -> None:
    process = facts.Process()
    one = facts.gather("/bin/python", "torch", process, {"LC_ALL": "C"})
    other = facts.gather("/bin/python", "compile", process, {"TZ": "UTC"})
    assert facts.differences(one, other) == ["$LC_ALL", "$TZ", "profile"]
    assert facts.digest(one) != facts.digest(other)
    assert facts.digest(one) == facts.digest(facts.gather("/bin/python", "torch", process,
        {"LC_ALL": "C", "OTHER": "x"}))  # fmt: skip
