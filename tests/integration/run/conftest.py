"""One folder of zygotes for all tests here, and one with a zygote of the test's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.zygotes import Zygotes


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
