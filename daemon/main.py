"""Start the daemon: settings, the single instance's lock, the parts, signals; and end it in order.

Exit codes: 0 ended as asked (or another daemon runs already), 2 wrong configuration, 3 could not start.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import psutil

from warmcc import config as configuration
from warmcc import paths, protocol
from warmcc.config import Config
from warmcc.daemon.builder import Builder, ninja_executable
from warmcc.daemon.closure import Closures
from warmcc.daemon.counters import Counters
from warmcc.daemon.cuda.compiler import CudaCompiler
from warmcc.daemon.cuda.profiles import CudaProfiles
from warmcc.daemon.cuda.steps import Steps
from warmcc.daemon.executor import Executor
from warmcc.daemon.headers import HeaderWatch
from warmcc.daemon.prewarm import Prewarmer
from warmcc.daemon.process import Runner
from warmcc.daemon.profiles import pch
from warmcc.daemon.profiles.fleet import Profiles
from warmcc.daemon.profiles.lean import Missing
from warmcc.daemon.profiles.plugin import Plugins
from warmcc.daemon.publisher import Publisher
from warmcc.daemon.sampling import Sampler
from warmcc.daemon.scheduler import Permits
from warmcc.daemon.server import Server
from warmcc.daemon.store import Store
from warmcc.daemon.toolchain import Toolchains
from warmcc.daemon.trust import Trust
from warmcc.daemon.zygote.pool import ZygotePool
from warmcc.errors import ConfigError, DaemonError
from warmcc.version import __version__

log = logging.getLogger(__name__)


def take_lock(path: Path) -> int | None:
    """The lock of the single instance (its descriptor), or None when another daemon holds it.

    The kernel lets go of it with the process, so no stale lock can exist.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())
    return descriptor


class Daemon:
    """All parts of a running daemon, and the order in which they start and end."""

    def __init__(self, config: Config, ninja: str) -> None:
        self._config = config
        self._started = time.time()
        self._counters = Counters()
        cache = paths.private_dir(paths.cache_dir())
        self._store = Store(cache / "store", config.store_size, grace=config.build_timeout)
        self._trust = Trust(cache / "withdrawn.json", self._store)
        self._closures = Closures(self._store, HeaderWatch(self._store.get_headers))
        self._toolchains = Toolchains()
        self._runner = Runner()
        self._zygotes = ZygotePool()
        self._permits = Permits(config.jobs, config.job_memory)
        self._plugins = Plugins(cache / "plugins", self._runner)
        headers = pch.Builder(
            cache / "profiles", self._closures, self._runner, ninja_path=ninja, timeout=config.build_timeout
        )
        self._profiles = Profiles(
            headers, self._closures, root=cache / "profiles", size_limit=config.profile_size,
            quiet=self._permits.quiet, finisher=self._plugins.finish if config.finished_pch else None,
        )  # fmt: skip
        self._cuda = CudaProfiles(
            cache / "cuda", self._closures, self._runner, quiet=self._permits.quiet,
            finisher=self._plugins.finish if config.finished_pch else None, timeout=config.build_timeout,
            memory=config.cuda_memory, fork_memory=config.cuda_fork_memory, trust=self._trust,
        )  # fmt: skip
        missing = Missing(cache / "lean.json")
        self._sampler = Sampler(self._store, self._permits, self._counters, self._trust, after=config.sample_after)
        self._steps = Steps(self._store, self._closures)
        nvcc = CudaCompiler(config, self._cuda, self._runner, self._counters, self._sampler, self._steps)
        self._executor = Executor(
            config, self._profiles, self._runner, self._permits, self._counters, missing, self._sampler, self._trust,
            nvcc, ninja, shutil.which("ccache") if config.ccache else None,
        )  # fmt: skip
        ours = [self._store.root, self._profiles.root, self._cuda.root]
        publisher = Publisher(self._store, self._closures, self._trust, ours)
        self._builder = Builder(
            self._store, self._closures, self._toolchains, self._zygotes, self._executor, publisher, self._counters,
            missing, frozenset(name for name in ("binding", "lean") if getattr(config, name)),
        )  # fmt: skip
        self._prewarmer = Prewarmer(
            config, self._zygotes, self._builder, self._executor, self._profiles, self._permits, self._cuda
        )
        self._server = Server(
            paths.socket_path(),
            self._builder,
            self._store,
            self._counters,
            self.status,
            message_size=config.message_size,
        )

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._server.stopping.set)
        self._profiles.open()
        self._cuda.open()
        await asyncio.to_thread(self._trust.clear)
        self._server.bind()
        log.info("warmcc %s serves %s as process %d", __version__, paths.socket_path(), os.getpid())
        background = [
            asyncio.create_task(work) for work in (self._prewarmer.run(), self._sampler.run(), self._housekeeping())
        ]
        try:
            await self._server.serve()
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            await self._profiles.close()
            await self._cuda.close()
            await self._zygotes.close()
            self._runner.close()
            self._server.close()
            log.info("ended")

    async def _housekeeping(self) -> None:
        """Keep the store under its limit, and end when nobody has come for the configured time."""
        while True:
            await asyncio.sleep(10)
            if self._store.usage()["bytes"] > self._config.store_size:
                await asyncio.to_thread(self._store.prune, None)
            idle = time.monotonic() - self._server.last_message
            if 0 < self._config.idle_timeout < idle and not self._server.flights.by_key:
                log.info("nobody came for %.0f s", idle)
                self._server.stopping.set()

    def status(self) -> dict[str, Any]:
        """Everything that ``warmcc status`` shows. Called in a thread."""
        counters = self._counters
        usage = self._store.usage()
        own = psutil.Process()
        now = time.monotonic()
        return {
            "pid": os.getpid(),
            "version": __version__,
            "protocol": protocol.PROTOCOL,
            "uptime": time.time() - self._started,
            "python": sys.executable,
            "socket": str(paths.socket_path()),
            "store": {"path": str(self._store.root), "limit": self._config.store_size, **usage},
            "requests": {
                "total": counters.requests,
                "hits": counters.hits,
                "misses": counters.misses,
                "joined": counters.joined,
                "failed": counters.failed,
                "cancelled": counters.cancelled,
                "declined": dict(counters.declined),
                "fallbacks": dict(counters.fallbacks),
                "malformed": counters.malformed,
                "strangers": counters.strangers,
            },
            "compiles": counters.compiles,
            "links": counters.links,
            "units_reused": counters.units_reused,
            "unpublished": counters.unpublished,
            "accelerators": {
                "pch": {
                    "used": counters.pch_used,
                    "fallbacks": {**counters.pch_fallbacks, **self._profiles.dropped},
                    "unfinished": dict(self._plugins.reasons),
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
                    "steps found": dict(self._steps.found),
                    "dropped": dict(self._cuda.dropped),
                    "profiles": self._cuda.report(),
                },
                "samples": dict(counters.samples),
                "withdrawn": self._trust.withdrawn,
                "linker": {"fallbacks": dict(counters.linker_fallbacks)},
                "ccache": {"hits": counters.ccache_hits},
            },
            "prewarming": self._prewarmer.left,
            "profiles": self._profiles.report(),
            "unmatched": dict(self._profiles.unmatched),
            "flights": [
                {"name": f.name, "phase": f.phase, "seconds": now - f.started, "waiting": len(f.waiters)}
                for f in list(self._server.flights.by_key.values())
            ],
            "queue": self._permits.queue_length,
            "permits": {"limit": self._permits.limit, "in_use": self._permits.in_use},
            "clients": len(self._server.clients),
            "zygotes": self._zygotes.report(),
            "memory": own.memory_info().rss,
            "config": msgspec.to_builtins(self._config),
        }


def main() -> int:
    """Run the daemon until it is told to stop."""
    os.umask(0o077)
    try:
        config = configuration.load()
        logging.basicConfig(
            level=config.log_level.upper(),
            format="%(asctime)s %(levelname)s %(name)s: %(message)s",
            stream=sys.stderr,
        )
        paths.private_dir(paths.runtime_dir())
        lock = take_lock(paths.lock_path())
        if lock is None:
            print("warmcc: another daemon of yours runs already", file=sys.stderr)
            return 0
        ninja = ninja_executable()
        if ninja is None:
            raise DaemonError("ninja is not installed; run: pip install ninja")
        asyncio.run(_run(config, ninja))
    except ConfigError as error:
        print(f"warmcc: {error}", file=sys.stderr)
        return 2
    except (DaemonError, OSError) as error:
        print(f"warmcc: the daemon cannot start: {error}", file=sys.stderr)
        return 3
    with contextlib.suppress(OSError):
        os.close(lock)
    return 0


async def _run(config: Config, ninja: str) -> None:
    await Daemon(config, ninja).run()
