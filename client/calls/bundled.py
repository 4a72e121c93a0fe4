"""Bundles, as calls see them: an artifact that is there, and answers that are recorded.

Without bundles, a call looks for their folder, and no more; nothing is imported.
"""

from __future__ import annotations

import os

from warmcc import paths
from warmcc.client.connection.offline import is_offline
from warmcc.protocol import Built
from warmcc.request import Request


def answer(request: Request) -> Built | None:
    """The artifact from an unpacked bundle, if there is one for this machine.
    Raises OfflineError where nothing else is allowed."""
    if not are_there() or is_recorded():
        return None
    from warmcc.client.bundles import finding

    return finding.answer(request)


def are_there() -> bool:
    """Whether there may be bundles, or nothing else is allowed."""
    return is_offline() or os.path.isdir(paths.bundles_dir())


def record(request: Request, built: Built) -> None:
    """Keep an answer for ``warmcc pack --record``, if this process is recorded.
    Raises BundleError."""
    if is_recorded():
        from warmcc.client.bundles import recording

        recording.keep(request, built)


def record_stock(name: object) -> None:
    """Keep that stock torch got a call. Raises BundleError."""
    if is_recorded():
        from warmcc.client.bundles import recording

        recording.left(name)


def is_recorded() -> bool:
    """Whether ``warmcc pack --record`` has started this process."""
    return bool(os.environ.get("WARMCC_RECORD"))
