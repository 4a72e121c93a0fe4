"""What the daemon counts about itself, for ``warmcc status``.
Changed on the event loop's thread only.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from warmcc.daemon.system.bounds import Reasons


@dataclass
class Counters:
    """Totals since the daemon started.

    ``turned_away`` counts clients for whom there was no place; ``refused``, ``declined`` and
    ``fallbacks`` by reason, ``pch_fallbacks`` by cause, ``ways`` the builds that went each way,
    ``pybind_reasons`` and ``whole_reasons`` why not a faster one, ``cuda`` the CUDA units compiled
    at each level, ``cuda_reasons`` why not at a faster one, ``samples`` how comparisons with stock
    ended, ``elsewhere`` what became of objects of the same source in another folder.
    """

    requests: int = 0
    hits: int = 0
    misses: int = 0
    joined: int = 0
    failed: int = 0
    cancelled: int = 0
    busy: int = 0
    compiles: int = 0
    links: int = 0
    units_reused: int = 0
    unpublished: int = 0
    malformed: int = 0
    strangers: int = 0
    turned_away: int = 0
    ccache_hits: int = 0
    pch_used: int = 0
    refused: Reasons = field(default_factory=Reasons)
    declined: Reasons = field(default_factory=Reasons)
    fallbacks: Reasons = field(default_factory=Reasons)
    pch_fallbacks: Reasons = field(default_factory=Reasons)
    ways: Reasons = field(default_factory=Reasons)
    way_fallbacks: Reasons = field(default_factory=Reasons)
    pybind_reasons: Reasons = field(default_factory=Reasons)
    whole_reasons: Reasons = field(default_factory=Reasons)
    cuda: Reasons = field(default_factory=Reasons)
    cuda_reasons: Reasons = field(default_factory=Reasons)
    samples: Reasons = field(default_factory=Reasons)
    linker_fallbacks: Reasons = field(default_factory=Reasons)
    elsewhere: Reasons = field(default_factory=Reasons)
