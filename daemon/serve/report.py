"""The daemon's report: all of it for ``warmcc status``, and a line for systemd."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import psutil

from warmcc import config as configuration
from warmcc import paths, protocol, status
from warmcc.config import Config
from warmcc.daemon.pch.profiles import Profiles
from warmcc.daemon.plan.zygotes import ZygotePool
from warmcc.daemon.serve.accelerators import AcceleratorsReport
from warmcc.daemon.serve.prewarm import Prewarmer
from warmcc.daemon.serve.server import Server
from warmcc.daemon.store import Store
from warmcc.daemon.store.claim import Claim
from warmcc.daemon.store.shared import SharedStore
from warmcc.daemon.system.counters import Counters
from warmcc.daemon.system.permits import Permits
from warmcc.version import __version__


@dataclass
class StatusReport:
    """Reads the parts of a running daemon; changes nothing."""

    config: Config
    counters: Counters
    accelerators: AcceleratorsReport
    store: Store
    profiles: Profiles
    prewarmer: Prewarmer
    permits: Permits
    server: Server
    zygotes: ZygotePool
    shared: SharedStore | None
    remote: Callable[[], status.Remote] | None
    claimed: Claim
    started: float = field(default_factory=time.time)

    def line(self) -> str:
        """Warm or not, and what is under way."""
        counters, left = self.counters, self.prewarmer.left
        state = f"warming up, {left} flag sets to go" if left else "warm"
        flights = len(self.server.builds.flights.by_key)
        return f"{state}; {flights} building; {counters.requests} requests, {counters.hits} hits"

    def plain(self) -> dict[str, Any]:
        """Everything that ``warmcc status`` shows (``warmcc/status.py``), in plain values.
        Called in a thread."""
        counters, shared, now = self.counters, self.shared, time.monotonic()
        flights = list(self.server.builds.flights.by_key.values())
        found = status.DaemonStatus(
            pid=os.getpid(),
            version=__version__,
            protocol=protocol.PROTOCOL,
            uptime=time.time() - self.started,
            python=sys.executable,
            socket=str(paths.socket_path()),
            cache=status.Cache(str(self.claimed.path), self.claimed.holder),
            store=status.Store(str(self.store.root), self.config.store_size, **self.store.usage()),
            shared_store=None
            if shared is None
            else status.SharedStore(
                self.config.shared_store, shared.found, shared.offered, shared.refused
            ),
            remote=None if self.remote is None else self.remote(),
            requests=self._requests(),
            compiles=counters.compiles,
            links=counters.links,
            units_reused=counters.units_reused,
            elsewhere=dict(counters.elsewhere),
            unpublished=counters.unpublished,
            accelerators=self.accelerators.report(),
            prewarming=self.prewarmer.left,
            prewarming_idle=self.prewarmer.left_for_idle,
            prewarmed=self.prewarmer.targets.report(),
            profiles=self.profiles.report(),
            unmatched=dict(self.profiles.unmatched),
            flights=[
                status.Flight(one.name, one.phase.value, now - one.started, len(one.waiters))
                for one in flights
            ],
            queue=self.permits.queue_length,
            permits=status.Permits(self.permits.limit, self.permits.in_use),
            clients=len(self.server.clients),
            zygotes=self.zygotes.report(),
            memory=psutil.Process().memory_info().rss,
            config=configuration.shown(self.config),
        )
        data: dict[str, Any] = msgspec.to_builtins(found)
        return data

    def _requests(self) -> status.Requests:
        counters = self.counters
        return status.Requests(
            total=counters.requests, hits=counters.hits, misses=counters.misses,
            joined=counters.joined, failed=counters.failed, cancelled=counters.cancelled,
            busy=counters.busy, refused=dict(counters.refused), declined=dict(counters.declined),
            fallbacks=dict(counters.fallbacks), malformed=counters.malformed,
            strangers=counters.strangers, turned_away=counters.turned_away,
        )  # fmt: skip
