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
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from warmcc import config as configuration
from warmcc import paths
from warmcc.config import Config
from warmcc.daemon import logs, metrics
from warmcc.daemon.builder import Builder, ninja_executable
from warmcc.daemon.closure import Closures
from warmcc.daemon.counters import Counters
from warmcc.daemon.cuda.compiler import CudaCompiler
from warmcc.daemon.cuda.profiles import CudaProfiles
from warmcc.daemon.cuda.steps import Steps
from warmcc.daemon.executor import Executor
from warmcc.daemon.headers import HeaderWatch
from warmcc.daemon.notify import Notifier, listening
from warmcc.daemon.prewarm import Prewarmer
from warmcc.daemon.process import Limits, Runner, start_of, total_memory
from warmcc.daemon.profiles import pch
from warmcc.daemon.profiles.fleet import Profiles
from warmcc.daemon.profiles.lean import Missing
from warmcc.daemon.profiles.plugin import Plugins
from warmcc.daemon.profiles.shared import SharedProfiles
from warmcc.daemon.publisher import Publisher
from warmcc.daemon.report import Report
from warmcc.daemon.sampling import Sampler
from warmcc.daemon.sandbox import Sandbox
from warmcc.daemon.scheduler import Permits
from warmcc.daemon.server import Server
from warmcc.daemon.store import Store
from warmcc.daemon.store.shared import SharedStore
from warmcc.daemon.toolchain import Toolchains
from warmcc.daemon.trust import Trust
from warmcc.daemon.zygote.pool import ZygotePool
from warmcc.errors import ConfigError, DaemonError
from warmcc.version import __version__

log = logging.getLogger(__name__)

IN_USE_SECONDS = 60.0  # until a store that is too large, with all of it in use, is looked through again


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


def take_temporary(folder: Path) -> Path:
    """Have everything temporary in a folder of this process in ``folder``, and remove those of processes that are gone:
    whoever is killed leaves nothing, and a service may not be allowed to write into /tmp."""
    for left in paths.private_dir(folder).iterdir():
        pid, _, start = left.name.partition("-")
        if not pid.isdecimal() or start_of(int(pid)) != start:
            shutil.rmtree(left, ignore_errors=True)
    own = paths.private_dir(folder / f"{os.getpid()}-{start_of(os.getpid())}")
    tempfile.tempdir = os.environ["TMPDIR"] = str(own)
    return own


class Daemon:
    """All parts of a running daemon, and the order in which they start and end."""

    def __init__(self, config: Config, ninja: str, notifier: Notifier) -> None:
        self._config = config
        self._notifier = notifier
        self._counters = Counters()
        cache = paths.private_dir(paths.cache_dir())
        self._store = Store(cache / "store", config.store_size, grace=config.build_timeout)
        self._trust = Trust(cache / "withdrawn.json", self._store)
        self._closures = Closures(self._store, HeaderWatch(self._store.get_headers))
        self._toolchains = Toolchains()
        self._runner = Runner(
            Limits(config.step_memory or total_memory(), config.step_file_size, config.step_processes)
        )
        self._zygotes = ZygotePool()
        self._permits = Permits(config.jobs, config.job_memory)
        self._plugins = Plugins(cache / "plugins", self._runner)
        headers = pch.Builder(
            cache / "profiles", self._closures, self._runner, ninja_path=ninja, timeout=config.build_timeout
        )
        shared = (
            SharedStore(Path(config.shared_store), self._store, self._closures, self._trust, config.store_size)
            if config.shared_store
            else None
        )
        self._profiles = Profiles(
            headers, self._closures, root=cache / "profiles", size_limit=config.profile_size,
            quiet=self._permits.quiet, finisher=self._plugins.finish if config.finished_pch else None,
            shared=SharedProfiles(shared, self._closures) if shared is not None else None,
        )  # fmt: skip
        self._cuda = CudaProfiles(
            cache / "cuda", self._closures, self._runner, quiet=self._permits.quiet,
            finisher=self._plugins.finish if config.finished_pch else None, timeout=config.build_timeout,
            memory=config.cuda_memory, fork_memory=config.cuda_fork_memory, trust=self._trust,
        )  # fmt: skip
        self._store.keep_headers(lambda: pch.header_sets(cache / "profiles") | pch.header_sets(cache / "cuda" / "host"))
        missing = Missing(cache / "lean.json")
        self._sampler = Sampler(self._store, self._permits, self._counters, self._trust, after=config.sample_after)
        self._steps = Steps(self._store, self._closures)
        ours = [self._store.root, self._profiles.root, self._cuda.root, *([shared.root] if shared is not None else [])]
        sandbox = Sandbox([*map(str, ours), os.path.dirname(os.path.realpath(ninja))])
        confined = sandbox if config.sandbox else None
        nvcc = CudaCompiler(config, self._cuda, self._runner, self._counters, self._sampler, self._steps, confined)
        self._executor = Executor(
            config, self._profiles, self._runner, self._permits, self._counters, missing, self._sampler, self._trust,
            nvcc, ninja, shutil.which("ccache") if config.ccache and not config.sandbox else None, confined,
        )  # fmt: skip
        publisher = Publisher(self._store, self._closures, self._trust, ours)
        self._builder = Builder(
            self._store, self._closures, self._toolchains, self._zygotes, self._executor, publisher, self._counters,
            missing, frozenset(name for name in ("binding", "lean") if getattr(config, name)), shared,
        )  # fmt: skip
        self._prewarmer = Prewarmer(
            config, self._zygotes, self._builder, self._executor, self._profiles, self._permits, self._cuda
        )
        self._server = Server(
            paths.socket_path(),
            self._builder,
            self._store,
            self._counters,
            self._report_status,
            self._permits,
            message_size=config.message_size,
            queue=config.queue,
            shared=config.shared,
        )
        self.report = Report(
            config, self._counters, self._store, self._profiles, self._cuda, self._plugins, self._steps, self._trust,
            self._prewarmer, self._permits, self._server, self._zygotes, shared,
        )  # fmt: skip

    def _report_status(self) -> dict[str, Any]:
        return self.report.status()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._server.stopping.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        self._profiles.open()
        self._cuda.open()
        await asyncio.to_thread(self._trust.clear)
        self._server.bind(listening())
        self._notifier.ready()
        port = self._config.metrics_port
        end_metrics = metrics.serve(port, self.report.status) if port else None
        log.info("warmcc %s serves %s as process %d", __version__, paths.socket_path(), os.getpid())
        background = [
            asyncio.create_task(work)
            for work in (self._prewarmer.run(), self._sampler.run(), self._housekeeping(), self._telling())
        ]
        try:
            await self._server.serve()
        finally:
            self._notifier.stopping()
            if end_metrics is not None:
                await asyncio.to_thread(end_metrics)
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
        again = 0.0
        while True:
            await asyncio.sleep(10)
            if time.monotonic() > again and not await asyncio.to_thread(self._store.keep_to_limit):
                again = time.monotonic() + IN_USE_SECONDS
            idle = time.monotonic() - self._server.last_message
            if 0 < self._config.idle_timeout < idle and not self._server.builds.flights.by_key:
                log.info("nobody came for %.0f s", idle)
                self._server.stopping.set()

    def _reload(self) -> None:
        """SIGHUP: take over what can change while the daemon runs, and say what waits for the next start."""
        self._notifier.reloading()
        try:
            wanted = configuration.load()
        except ConfigError as error:
            log.error("the settings stay as they were: %s", error)
        else:
            changed = configuration.changed(self._config, wanted)
            waiting = [name for name in changed if name not in configuration.LIVE]
            live = {name: getattr(wanted, name) for name in changed if name in configuration.LIVE}
            self._config = self.report.config = msgspec.structs.replace(self._config, **live)
            self._store.resize(wanted.store_size)
            self._server.builds.queue = wanted.queue
            self._permits.resize(wanted.jobs, wanted.job_memory)
            logging.getLogger().setLevel(wanted.log_level.upper())
            log.info("settings read again: %s changed", ", ".join(live) or "nothing")
            if waiting:
                log.warning("the next start takes over: %s", ", ".join(waiting))
        self._notifier.ready()

    async def _telling(self) -> None:
        """Keep systemd informed: a line of status, and that the event loop turns."""
        while True:
            self._notifier.watchdog()
            self._notifier.status(self.report.line())
            await asyncio.sleep(min(1.0, self._notifier.interval or 1.0))


def main() -> int:
    """Run the daemon until it is told to stop."""
    os.umask(0o077)
    notifier = Notifier()
    try:
        config = configuration.load()
        paths.private_dir(paths.runtime_dir())
        lock = take_lock(paths.lock_path())
        if lock is None:
            print("warmcc: another daemon of yours runs already", file=sys.stderr)
            return 0
        temporary = take_temporary(paths.private_dir(paths.cache_dir()) / "tmp")
        if config.sandbox and (reason := Sandbox.missing()) is not None:
            raise DaemonError(reason)
        ninja = ninja_executable()
        if ninja is None:
            raise DaemonError("ninja is not installed; run: pip install ninja")
        listener = logs.start(config.log_level, paths.private_dir(paths.state_dir()) / paths.STRUCTURED_LOG)
        try:
            asyncio.run(_run(config, ninja, notifier))
        finally:
            listener.stop()
            shutil.rmtree(temporary, ignore_errors=True)
    except ConfigError as error:
        print(f"warmcc: {error}", file=sys.stderr)
        return 2
    except (DaemonError, OSError) as error:
        print(f"warmcc: the daemon cannot start: {error}", file=sys.stderr)
        return 3
    with contextlib.suppress(OSError):
        os.close(lock)
    return 0


async def _run(config: Config, ninja: str, notifier: Notifier) -> None:
    await Daemon(config, ninja, notifier).run()
