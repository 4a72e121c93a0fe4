"""The same calls through stock (recorded) and through warmcc: results, exception types, flags,
docstrings, files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Queue
from typing import Any

import pytest

from tests.parity import record
from tests.parity.case import Case, facts
from tests.parity.cases import CASES
from tests.parity.run import Forking, run
from tests.support.daemons import Daemon

WORKERS = 2


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    if not record.path().exists():
        pytest.skip(f"no record of this torch: {record.path().name} (make parity-record)")
    found: dict[str, Any] = json.loads(record.path().read_text())
    return found


@pytest.fixture(scope="module")
def results(
    warm: Daemon, request: pytest.FixtureRequest
) -> Iterator[dict[str, Future[dict[str, Any]]]]:
    """All chosen cases under way, two at a time."""
    chosen = [item.callspec.params["case"] for item in request.session.items
              if item.path == request.path
              and hasattr(item, "callspec")]  # fmt: skip

    def one(case: Case) -> dict[str, Any]:
        environment = {**warm.environment, **({"WARMCC_FALLBACK": "1"} if case.stock_path else {})}
        forking = idle.get()
        try:
            return run("warmcc", case, environment, forking)
        finally:
            idle.put(forking)

    idle: Queue[Forking] = Queue()
    for _ in range(WORKERS):
        idle.put(Forking())
    with ThreadPoolExecutor(WORKERS) as pool:
        yield {case.name: pool.submit(one, case) for case in chosen}
        pool.shutdown(cancel_futures=True)
    for _ in range(WORKERS):
        idle.get().close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_parity(
    case: Case, recorded: dict[str, Any], results: dict[str, Future[dict[str, Any]]]
) -> None:
    stock = recorded["cases"].get(case.name)
    assert stock is not None, "not recorded: make parity-record"
    found = results[case.name].result()
    if "skipped" in stock or "skipped" in found:
        pytest.skip(stock.get("skipped") or found["skipped"])
    here = facts()
    if differing := [fact for fact in case.needs if here[fact] != recorded["facts"][fact]]:
        pytest.skip(f"recorded on a machine that differs in {', '.join(differing)}")
    assert found["observed"] == case.expected(stock["observed"]), found["output"][-3000:]


def test_every_parameter_is_covered() -> None:
    """Of the torch that runs the tests: a new parameter needs a case."""
    from tests.parity.case import stock_parameters

    covered = {name for case in CASES for name in case.covers}
    wanted = {f"{call}.{name}" for call, names in stock_parameters().items() for name in names}
    assert not wanted - covered
    assert len(CASES) >= 40
