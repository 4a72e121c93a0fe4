"""Fixtures of remote stores: a project, and two machines that have it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.closures import Project
from tests.support.exchanging import Machine


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project", watching=False)


@pytest.fixture
def giver(project: Project, tmp_path: Path) -> Machine:
    machine = Machine(project, tmp_path / "one")
    machine.build()
    assert machine.give()
    return machine


@pytest.fixture
def taker(project: Project, tmp_path: Path) -> Machine:
    return Machine(project, tmp_path / "other")
