"""One folder of zygotes for all tests here, and one with a zygote of the test's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.support.zygotes import Zygotes

_OFTEN = 8
_numbers: Counter[str] = Counter()  # of tests, by module


def pytest_itemcollected(item: pytest.Item) -> None:
    """Most of these tests start Python two times or more, and import torch in it: the first of so
    many of a module stands for the others, which are slow."""
    module = item.nodeid.partition("::")[0]
    if _numbers[module] % _OFTEN:
        item.add_marker(pytest.mark.slow)
    _numbers[module] += 1


@pytest.fixture(scope="session")
def started() -> Iterator[Zygotes]:
    """A zygote that serves programs without a terminal."""
    zygotes = Zygotes()
    try:
        zygotes.start()
        yield zygotes
    finally:
        zygotes.close()


@pytest.fixture
def fresh() -> Iterator[Zygotes]:
    """A folder in which no zygote was started."""
    zygotes = Zygotes()
    try:
        yield zygotes
    finally:
        zygotes.close()
