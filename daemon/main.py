"""Start the daemon: settings, the single instance's lock, the parts, signals; and end it in order.

Exit codes: 0 ended as asked (or another daemon runs already), 2 wrong configuration, 3 could not
start.
"""

from __future__ import annotations

import asyncio
import contextlib
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
from warmcc.daemon.build.builder import Builder, ninja_executable
from warmcc.daemon.build.executor import Executor
from warmcc.daemon.build.graph import Graph
from warmcc.daemon.build.learnt import Learnt
from warmcc.daemon.build.publisher import Publisher
from warmcc.daemon.closure.closure import Closures
from warmcc.daemon.closure.header_sets import HeaderWatch
from warmcc.daemon.cuda.compiler import CudaCompiler
from warmcc.daemon.cuda.step_cache import StepCache
from warmcc.daemon.cuda.warm.profiles import CudaProfiles
from warmcc.daemon.pch import pch
from warmcc.daemon.pch.lean import Missing
from warmcc.daemon.pch.machine_store import SharedProfiles
from warmcc.daemon.pch.plugin import Plugins
from warmcc.daemon.pch.profiles import Profiles
from warmcc.daemon.plan.machine import Machine
from warmcc.daemon.plan.policy import Policy
from warmcc.daemon.plan.zygotes import ZygotePool
from warmcc.daemon.serve import logs, metrics
from warmcc.daemon.serve.door import raise_limit
from warmcc.daemon.serve.prewarm import Prewarmer
from warmcc.daemon.serve.report import StatusReport
from warmcc.daemon.serve.server import Server
from warmcc.daemon.serve.systemd import Notifier, listening
from warmcc.daemon.store import Store
from warmcc.daemon.store.claim import Claim, claim, take_lock
from warmcc.daemon.store.shared import SharedStore
from warmcc.daemon.store.trust import Trust
from warmcc.daemon.system import bounds, remains, resources
from warmcc.daemon.system.background import Background
from warmcc.daemon.system.counters import Counters
from warmcc.daemon.system.permits import Permits
from warmcc.daemon.system.runner import Limits, Runner, start_of, started_threads
from warmcc.daemon.system.sandbox import Sandbox, make_helper
from warmcc.daemon.toolchain import Toolchains
from warmcc.daemon.verify.sampling import Sampler
from warmcc.errors import ConfigError, DaemonError
from warmcc.version import __version__

log = logging.getLogger(__name__)

# Until a store that is too large, with all of it in use, is looked through again
IN_USE_SECONDS = 60.0


def take_temporary(folder: Path) -> Path:
    """Put this process's temporary files into ``folder``, and remove those of dead processes.
    A killed process leaves nothing, and a service may not be allowed to write into /tmp. From
    here on, TMPDIR no longer says where the caller's folders are."""
    for left in paths.private_dir(folder).iterdir():
        pid, _, start = left.name.partition("-")
        if not pid.isdecimal() or start_of(int(pid)) != start:
            shutil.rmtree(left, ignore_errors=True)
    own = paths.private_dir(folder / f"{os.getpid()}-{start_of(os.getpid())}")
    tempfile.tempdir = os.environ["TMPDIR"] = str(own)
    return own


def _sandbox(config: Config, cache: Path, ninja: str) -> Sandbox | None:
    """What confines all that builds run, if the configuration says so. Raises ConfigError."""
    if not config.sandbox:
        return None
    read = [str(cache / name) for name in ("profiles", "cuda", "plugins")]
    read += [os.path.dirname(os.path.realpath(ninja)), *filter(None, [config.shared_store])]
    return Sandbox(
        config.sandbox_roots, read, cache / "store" / "staging", make_helper(cache / "confine")
    )


class Daemon:
    """All parts of a running daemon, and the order in which they start and end."""

    def __init__(
        self, config: Config, claimed: Claim, ninja: str, notifier: Notifier, files: int
    ) -> None:
        self._config = config
        self._notifier = notifier
        self._claimed = claimed
        self._counters = Counters()
        cache = claimed.path
        self._store = Store(cache / "store", config.store_size, grace=config.build_timeout)
        self._closures = Closures(self._store, HeaderWatch(self._store.get_headers))
        self._trust = Trust(cache / "withdrawn.json", self._store)
        sandbox = _sandbox(config, cache, ninja)
        self._toolchains = Toolchains(sandbox)
        self._permits = Permits(config.jobs, config.job_memory)
        self._background = Background(self._permits)
        self._runner = Runner(
            Limits(
                config.step_memory or resources.total_memory(), config.step_file_size,
                config.step_processes, files,
            ),
            marks=remains.mark(cache), sandbox=sandbox, background=self._background,
        )  # fmt: skip
        self._zygotes = ZygotePool(marks=remains.mark(cache), sandbox=sandbox)
        self._plugins = Plugins(cache / "plugins", self._runner)
        headers = pch.PchBuilder(
            cache / "profiles", self._closures, self._runner, ninja_path=ninja,
            timeout=config.build_timeout,
        )  # fmt: skip
        shared = self._shared_store()
        self._profiles = Profiles(
            headers, self._closures, root=cache / "profiles", size_limit=config.profile_size,
            background=self._background,
            finisher=self._plugins.finish if config.finished_pch else None,
            shared=None if shared is None
            else SharedProfiles(shared, self._closures, config.profile_size),
        )  # fmt: skip
        self._cuda = CudaProfiles(
            cache / "cuda", self._closures, self._runner, background=self._background,
            finisher=self._plugins.finish if config.finished_pch else None,
            timeout=config.build_timeout, memory=config.cuda_memory,
            fork_memory=config.cuda_fork_memory, trust=self._trust,
        )  # fmt: skip
        self._store.keep_headers(
            lambda: pch.header_sets(cache / "profiles") | pch.header_sets(cache / "cuda" / "host")
        )
        missing = Missing(cache / "lean.json")
        self._sampler = Sampler(
            self._store, self._background, self._counters, self._trust, after=config.sample_after
        )
        self._steps = StepCache(self._store, self._closures)
        ours = [
            self._store.root,
            self._profiles.root,
            self._cuda.root,
            *([shared.root] if shared is not None else []),
        ]
        self._executor = self._make_executor(ninja, missing)
        publisher = Publisher(self._store, self._closures, self._trust, ours)
        policy = Policy(Machine.of(config)) if config.shared else None
        self._builder = Builder(
            self._store, self._closures, self._toolchains, self._zygotes, self._executor, publisher,
            self._counters, missing,
            frozenset(name for name in ("binding", "lean") if getattr(config, name)), shared,
            policy, sandbox,
        )  # fmt: skip
        self._prewarmer = Prewarmer(
            config, self._zygotes, self._builder, self._executor, self._profiles, self._background,
            self._cuda,
        )  # fmt: skip
        self._builder.on_built = self._prewarmer.saw
        self._server = Server(
            paths.socket_path(), self._builder, self._store, self._closures, self._counters,
            self._report_status, self._permits, message_size=config.message_size,
            queue=config.queue, policy=policy,
        )  # fmt: skip
        self.report = StatusReport(
            config, self._counters, self._store, self._profiles, self._cuda, self._plugins,
            self._steps, self._trust, self._prewarmer, self._permits, self._server, self._zygotes,
            shared, claimed,
        )  # fmt: skip

    def _make_executor(self, ninja: str, missing: Missing) -> Executor:
        learnt = Learnt()
        nvcc = CudaCompiler(
            self._config, self._cuda, self._runner, self._counters, self._sampler, self._steps,
            self._permits, learnt,
        )  # fmt: skip
        ccache = (
            shutil.which("ccache") if self._config.ccache and not self._config.sandbox else None
        )
        return Executor(
            self._config, self._profiles, self._runner, self._permits, self._counters, missing,
            self._sampler, self._trust, nvcc,
            Graph(self._config, self._runner, self._permits, ninja, ccache), learnt,
        )  # fmt: skip

    def _shared_store(self) -> SharedStore | None:
        """What the users of this machine share, if the configuration names it."""
        config = self._config
        if not config.shared_store:
            return None
        return SharedStore(
            Path(config.shared_store), self._store, self._closures, self._trust, config.store_size,
            operator=config.shared_operator, publish_all=config.shared_publish,
        )  # fmt: skip

    def _report_status(self) -> dict[str, Any]:
        return self.report.plain()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(started_threads())
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._server.stopping.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        self._profiles.open()
        self._cuda.open()
        await asyncio.to_thread(self._trust.clear)
        self._server.bind(listening())
        self._notifier.ready()
        port = self._config.metrics_port
        end_metrics = metrics.serve(port, self.report.plain) if port else None
        log.info("warmcc %s serves %s as process %d", __version__, paths.socket_path(), os.getpid())
        if self._claimed.holder:
            log.warning(
                "another daemon writes to the cache (%s): this one keeps its own results in %s",
                self._claimed.holder, self._claimed.path,
            )  # fmt: skip
        background = [
            asyncio.create_task(work)
            for work in (
                self._background.run(), self._prewarmer.run(), self._sampler.run(),
                self._housekeeping(), self._telling(),
            )
        ]  # fmt: skip
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
            await self._server.close()
            log.info("ended")

    async def _housekeeping(self) -> None:
        """Keep the store under its limit; end the daemon when it is idle or unreachable."""
        again = 0.0
        while True:
            await asyncio.sleep(10)
            # What others write to it: a crash, the reaper
            await asyncio.to_thread(logs.keep_errors_to_size)
            await asyncio.to_thread(bounds.remove)  # what could not be removed
            if time.monotonic() > again and not await asyncio.to_thread(self._store.keep_to_limit):
                again = time.monotonic() + IN_USE_SECONDS
            if (why := self._why_end()) and not self._server.builds.flights.by_key:
                log.info("%s", why)
                self._server.stopping.set()

    def _why_end(self) -> str:
        idle = time.monotonic() - self._server.last_message
        if 0 < self._config.idle_timeout < idle:
            return f"idle for {idle:.0f} s"
        if not paths.socket_path().exists():  # a logout takes /run/user/UID away
            return f"{paths.socket_path()} no longer exists: clients cannot connect"
        return ""

    def _reload(self) -> None:
        """SIGHUP: apply the settings that may change now, and log those that need a restart."""
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
            self._closures.page.changed()
            log.info("settings read again: %s changed", ", ".join(live) or "nothing")
            if waiting:
                log.warning("restart required to apply: %s", ", ".join(waiting))
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
    logs.keep_errors_to_size()
    notifier = Notifier()
    files = raise_limit()
    try:
        config = configuration.load()
        # They stay what they are, whatever appears on the machine later
        os.environ.update(paths.settle())
        lock = take_lock(paths.lock_path(), str(os.getpid()))
        if lock is None:
            print("warmcc: another daemon of yours runs already", file=sys.stderr)
            return 0
        claimed = claim(paths.cache_dir())
        temporary = take_temporary(claimed.path / "tmp")
        if config.sandbox and (reason := Sandbox.missing()) is not None:
            raise DaemonError(reason)
        ninja = ninja_executable()
        if ninja is None:
            raise DaemonError("ninja is not installed; run: pip install ninja")
        left = remains.end(claimed.path)
        listener = logs.start(
            config.log_level, paths.private_dir(paths.state_dir()) / paths.STRUCTURED_LOG
        )
        if left:
            log.warning(
                "%d processes of a daemon that was killed were still running, and have been ended",
                left,
            )
        try:
            asyncio.run(_run(config, claimed, ninja, notifier, files))
        finally:
            listener.stop()
            shutil.rmtree(temporary, ignore_errors=True)
    except ConfigError as error:
        print(f"warmcc: {error}", file=sys.stderr)
        return 2
    except (DaemonError, OSError) as error:
        print(f"warmcc: the daemon cannot start: {error}", file=sys.stderr)
        return 3
    for descriptor in (
        claimed.lock,
        lock,
    ):  # in this order: who gets the second one finds the cache free
        with contextlib.suppress(OSError):
            os.close(descriptor)
    return 0


async def _run(config: Config, claimed: Claim, ninja: str, notifier: Notifier, files: int) -> None:
    await Daemon(config, claimed, ninja, notifier, files).run()
