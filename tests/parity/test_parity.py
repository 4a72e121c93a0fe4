"""The same calls through stock (recorded) and through warmcc: results, exception types, flags,
docstrings, files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.parity import record
from tests.parity.case import Case, facts
from tests.parity.cases import CASES
from tests.parity.run import Forking, run
from tests.support.daemons import Daemon

# Each takes three seconds or more: it compiles pybind11's machinery, imports torch anew, or both.
SLOW = frozenset(
    (
        "build_directory",
        "build_directory_with_odd_name",
        "compiler_by_path",
        "compiler_missing",
        "containers",
        "default_root",
        "defines",
        "docstring_that_breaks_the_binding",
        "environment_changes_between_calls",
        "error_below_torch_headers",
        "errors_handled_by_pybind",
        "errors_handled_by_pytorch",
        "errors_of_plain_pybind",
        "flags_for_the_shell",
        "flags_of_other_types",
        "function_not_defined",
        "function_overloaded",
        "functions_as_dict",
        "functions_as_list",
        "functions_as_text",
        "functions_beside_own_module",
        "functions_empty_list",
        "functions_of_wrong_type",
        "functions_through_own_wrapper",
        "functions_with_torch_headers",
        "include_path_before_the_system",
        "include_paths",
        "inline_by_position",
        "keep_intermediates",
        "library_with_operators",
        "name_of_another_module",
        "names_that_are_no_identifiers",
        "object_in_the_build_directory",
        "operators_from_files",
        "optimisation",
        "other_arguments_other_module",
        "own_archive",
        "own_pybind_module",
        "quoted_flags",
        "source_paths_with_odd_characters",
        "sources_in_other_encodings",
        "sources_with_other_suffixes",
        "standalone_program_with_torch",
        "standard_given_twice",
        "text_beyond_ascii",
        "the_callers_lists",
        "there_and_back",
        "use_pch",
        "verbose",
    )
)


# What the compiler says is shown where it runs: the equal call of the first side has built it.
OF_A_BUILD = frozenset(("verbose",))


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    if not record.path().exists():
        pytest.skip(f"no record of this torch: {record.path().name} (make parity-record)")
    found: dict[str, Any] = json.loads(record.path().read_text())
    return found


@pytest.fixture(scope="module")
def forking() -> Iterator[Forking]:
    one = Forking()
    yield one
    one.close()


@pytest.mark.spread
@pytest.mark.parametrize(
    "side",
    [
        "warmcc",
        pytest.param("installed", marks=pytest.mark.slow),
        pytest.param("module", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=pytest.mark.slow if case.name in SLOW else [])
        for case in CASES
    ],
)
def test_parity(
    case: Case, side: str, recorded: dict[str, Any], forking: Forking, warm: Daemon
) -> None:
    if side != "warmcc" and case.name in OF_A_BUILD:
        pytest.skip("it is found in the store")
    stock = recorded["cases"].get(case.name)
    assert stock is not None, "not recorded: make parity-record"
    if "skipped" in stock:
        pytest.skip(stock["skipped"])
    if differing := [fact for fact in case.needs if facts()[fact] != recorded["facts"][fact]]:
        pytest.skip(f"recorded on a machine that differs in {', '.join(differing)}")
    environment = {**warm.environment, **({"WARMCC_FALLBACK": "1"} if case.stock_path else {})}
    found = run(side, case, environment, forking)
    if "skipped" in found:
        pytest.skip(found["skipped"])
    allowed = [case.expected(stock["observed"])]
    if side != "warmcc":  # by torch's own names, files lie where torch puts them
        allowed.append(stock["observed"])
    assert found["observed"] in allowed, found["output"][-3000:]


def test_every_parameter_is_covered() -> None:
    """Of the torch that runs the tests: a new parameter needs a case."""
    from tests.parity.case import stock_parameters

    covered = {name for case in CASES for name in case.covers}
    wanted = {f"{call}.{name}" for call, names in stock_parameters().items() for name in names}
    assert not wanted - covered
    assert len(CASES) >= 40
    assert {case.name for case in CASES} >= SLOW
