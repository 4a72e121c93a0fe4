"""An operator's daemon, which fills a shared store; and files that are another user's."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from tests.support.calls import Connection
from tests.support.daemons import Daemon

OPERATOR, STRANGER = 4242, 4243

needs_root = pytest.mark.skipif(
    os.getuid() != 0, reason="only root may give files to others: run make test as root"
)


def give_to(uid: int, root: Path) -> None:
    for path in (root, *root.rglob("*")):
        os.chown(path, uid, uid, follow_symlinks=False)


@contextlib.contextmanager
def operator(root: Path, **settings: Any) -> Iterator[tuple[Daemon, Connection]]:
    """The daemon of someone who fills the shared store in this folder, with all that it builds
    unless it is set.
    """
    root.mkdir()
    root.chmod(0o755)
    daemon = Daemon(**{"ccache": False, "shared_store": root, "shared_publish": True, **settings})
    try:
        with zmq.Context() as context:
            connection = Connection(daemon.start(), context)
            yield daemon, connection
            connection.close()
        daemon.stop()
    finally:
        daemon.discard()
