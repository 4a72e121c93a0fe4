"""The counts of ``warmcc status`` for Prometheus (``metrics_port``), on loopback only."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

from warmcc.status import read

log = logging.getLogger(__name__)

_COUNTED = (
    "total", "hits", "misses", "joined", "failed", "cancelled", "busy", "malformed", "strangers",
)  # fmt: skip


class _Collector:
    """Reads the status at each scrape, in the server's thread."""

    def __init__(self, status: Callable[[], dict[str, Any]]) -> None:
        self._status = status

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        status = read(self._status())
        requests = CounterMetricFamily(
            "warmcc_requests", "Requests by how they ended.", labels=["outcome"]
        )
        for name in _COUNTED:
            requests.add_metric([name], getattr(status.requests, name))
        yield requests
        left = CounterMetricFamily(
            "warmcc_left_to_stock", "Requests left to stock torch.", labels=["reason"]
        )
        for kind in ("declined", "fallbacks", "refused"):
            for reason, count in getattr(status.requests, kind).items():
                left.add_metric([reason[:80]], count)
        yield left
        ways = CounterMetricFamily("warmcc_builds", "Builds by the way they went.", labels=["way"])
        for way, count in status.accelerators.ways.used.items():
            ways.add_metric([way], count)
        yield ways
        levels = CounterMetricFamily("warmcc_cuda_units", "CUDA units by level.", labels=["level"])
        for level, count in status.accelerators.cuda.used.items():
            levels.add_metric([level], count)
        yield levels
        if (remote := status.remote) is not None:
            used = CounterMetricFamily(
                "warmcc_remote", "Results and the remote store.", labels=["event"]
            )
            for name in ("found", "missed", "skipped", "given", "dropped"):
                used.add_metric([name], getattr(remote, name))
            yield used
            failed = CounterMetricFamily(
                "warmcc_remote_failures", "Failures of the remote store.", labels=["kind", "reason"]
            )
            for kind in ("not_found", "not_given"):
                for reason, count in getattr(remote, kind).items():
                    failed.add_metric([kind, reason], count)
            yield failed
        yield CounterMetricFamily(
            "warmcc_compiles", "Units that were compiled.", value=status.compiles
        )
        yield CounterMetricFamily(
            "warmcc_links", "Extensions that were linked.", value=status.links
        )
        for name, text, value in (
            ("uptime_seconds", "Seconds since the start.", status.uptime),
            ("memory_bytes", "Memory of the daemon's own process.", status.memory),
            ("store_bytes", "Size of the store.", status.store.bytes),
            ("store_limit_bytes", "Limit of the store.", status.store.limit),
            ("flights", "Builds under way.", len(status.flights)),
            ("queue", "Builds that wait for a place.", status.queue),
            ("clients", "Connections.", status.clients),
            ("prewarming", "Sets of flags that are not warm yet.", status.prewarming),
        ):
            yield GaugeMetricFamily(f"warmcc_{name}", text, value=value)


def serve(port: int, status: Callable[[], dict[str, Any]]) -> Callable[[], None]:
    """Serve ``http://127.0.0.1:port/metrics``; gives what ends it.
    Where that is not possible, says so and goes on."""
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError:
        log.warning(
            "metrics_port is set, but prometheus-client is not installed: pip install "
            "'warmcc[metrics]'"
        )
        return lambda: None
    registry = CollectorRegistry()
    try:
        registry.register(_Collector(status))
        server, thread = start_http_server(port, addr="127.0.0.1", registry=registry)
    except OSError as error:
        log.warning("no metrics on port %d: %s", port, error.strerror)
        return lambda: None
    log.info("metrics at http://127.0.0.1:%d/metrics", port)

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return end
