"""What the daemon counts about itself, for ``warmcc status``. Changed on the event loop's thread only."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Counters:
    """Totals since the daemon started.

    ``refused``, ``declined`` and ``fallbacks`` count by reason, ``pch_fallbacks`` by cause, ``ways`` the builds that
    went each way, ``pybind_reasons`` and ``whole_reasons`` why not a faster one, ``cuda`` the CUDA units
    compiled at each level, ``cuda_reasons`` why not at a faster one, ``samples`` how comparisons with stock ended.
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
    ccache_hits: int = 0
    pch_used: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    declined: Counter[str] = field(default_factory=Counter)
    fallbacks: Counter[str] = field(default_factory=Counter)
    pch_fallbacks: Counter[str] = field(default_factory=Counter)
    ways: Counter[str] = field(default_factory=Counter)
    way_fallbacks: Counter[str] = field(default_factory=Counter)
    pybind_reasons: Counter[str] = field(default_factory=Counter)
    whole_reasons: Counter[str] = field(default_factory=Counter)
    cuda: Counter[str] = field(default_factory=Counter)
    cuda_reasons: Counter[str] = field(default_factory=Counter)
    samples: Counter[str] = field(default_factory=Counter)
    linker_fallbacks: Counter[str] = field(default_factory=Counter)
