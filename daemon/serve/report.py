"""What the daemon says of itself: all of it for ``warmcc status``, and a line for the service manager."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import msgspec
import psutil

from warmcc import paths, protocol
from warmcc.config import Config
from warmcc.daemon.cuda.step_cache import StepCache
from warmcc.daemon.cuda.warm.profiles import CudaProfiles
from warmcc.daemon.pch.plugin import Plugins
from warmcc.daemon.pch.profiles import Profiles
from warmcc.daemon.plan.zygotes import ZygotePool
from warmcc.daemon.serve.prewarm import Prewarmer
from warmcc.daemon.serve.server import Server
from warmcc.daemon.store import Store
from warmcc.daemon.store.claim import Claim
from warmcc.daemon.store.shared import SharedStore
from warmcc.daemon.store.trust import Trust
from warmcc.daemon.system.counters import Counters
from warmcc.daemon.system.permits import Permits
from warmcc.version import __version__


@dataclass
class StatusReport:
    """Reads the parts of a running daemon; changes nothing."""

    config: Config
    counters: Counters
    store: Store
    profiles: Profiles
    cuda: CudaProfiles
    plugins: Plugins
    steps: StepCache
    trust: Trust
    prewarmer: Prewarmer
    permits: Permits
    server: Server
    zygotes: ZygotePool
    shared: SharedStore | None
    claimed: Claim
    started: float = field(default_factory=time.time)

    def _shared(self) -> dict[str, Any]:
        if self.shared is None:
            return {}
        found = {"path": self.config.shared_store, "found": self.shared.found, "offered": self.shared.offered}
        return {**found, "refused": self.shared.refused}

    def _requests(self) -> dict[str, Any]:
        """What became of requests."""
        counters = self.counters
        return {
            "total": counters.requests,
            "hits": counters.hits,
            "misses": counters.misses,
            "joined": counters.joined,
            "failed": counters.failed,
            "cancelled": counters.cancelled,
            "busy": counters.busy,
            "refused": dict(counters.refused),
            "declined": dict(counters.declined),
            "fallbacks": dict(counters.fallbacks),
            "malformed": counters.malformed,
            "strangers": counters.strangers,
            "turned away": counters.turned_away,
        }

    def _accelerators(self) -> dict[str, Any]:
        """How often each was of use, and why not."""
        counters = self.counters
        return {
            "pch": {
                "used": counters.pch_used,
                "fallbacks": {**counters.pch_fallbacks, **self.profiles.dropped},
                "unfinished": dict(self.plugins.reasons),
            },
            "ways": {
                "used": dict(counters.ways),
                "fallbacks": dict(counters.way_fallbacks),
                "pybind11": dict(counters.pybind_reasons),
                "whole prelude": dict(counters.whole_reasons),
            },
            "cuda": {
                "used": dict(counters.cuda),
                "not faster": dict(counters.cuda_reasons),
                "steps found": dict(self.steps.found),
                "dropped": dict(self.cuda.dropped),
                "profiles": self.cuda.report(),
            },
            "samples": dict(counters.samples),
            "withdrawn": self.trust.withdrawn,
            "linker": {"fallbacks": dict(counters.linker_fallbacks)},
            "ccache": {"hits": counters.ccache_hits},
        }

    def line(self) -> str:
        """Warm or not, and what is under way."""
        counters, left = self.counters, self.prewarmer.left
        state = f"warming up, {left} sets of flags to go" if left else "warm"
        flights = len(self.server.builds.flights.by_key)
        return f"{state}; {flights} building; {counters.requests} requests, {counters.hits} hits"

    def status(self) -> dict[str, Any]:
        """Everything that ``warmcc status`` shows. Called in a thread."""
        counters = self.counters
        usage = self.store.usage()
        own = psutil.Process()
        now = time.monotonic()
        return {
            "pid": os.getpid(),
            "version": __version__,
            "protocol": protocol.PROTOCOL,
            "uptime": time.time() - self.started,
            "python": sys.executable,
            "socket": str(paths.socket_path()),
            "cache": {"path": str(self.claimed.path), "in place of one that is held by": self.claimed.holder},
            "store": {"path": str(self.store.root), "limit": self.config.store_size, **usage},
            "shared store": self._shared(),
            "requests": self._requests(),
            "compiles": counters.compiles,
            "links": counters.links,
            "units_reused": counters.units_reused,
            "unpublished": counters.unpublished,
            "accelerators": self._accelerators(),
            "prewarming": self.prewarmer.left,
            "prewarmed": self.prewarmer.report(),
            "profiles": self.profiles.report(),
            "unmatched": dict(self.profiles.unmatched),
            "flights": [
                {"name": f.name, "phase": f.phase, "seconds": now - f.started, "waiting": len(f.waiters)}
                for f in list(self.server.builds.flights.by_key.values())
            ],
            "queue": self.permits.queue_length,
            "permits": {"limit": self.permits.limit, "in_use": self.permits.in_use},
            "clients": len(self.server.clients),
            "zygotes": self.zygotes.report(),
            "memory": own.memory_info().rss,
            "config": msgspec.to_builtins(self.config),
        }
