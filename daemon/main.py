"""Start the daemon: settings, the single instance's lock, the parts, signals; and end it in order.

Exit codes: 0 ended as asked (or another daemon runs already), 2 wrong settings, 3 cannot start.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys

import msgspec

from warmcc import config as configuration
from warmcc import paths
from warmcc.config import Config
from warmcc.daemon.build.builder import Builder
from warmcc.daemon.build.elsewhere.objects import Elsewhere
from warmcc.daemon.build.executor import Executor
from warmcc.daemon.build.graph import Graph
from warmcc.daemon.build.learnt import Learnt
from warmcc.daemon.build.pch_choice import PchChoice
from warmcc.daemon.build.publisher import Publisher
from warmcc.daemon.build.samples import LeanSamples
from warmcc.daemon.closure.closure import Closures
from warmcc.daemon.closure.header_watch import HeaderWatch
from warmcc.daemon.cuda.compiler import CudaCompiler
from warmcc.daemon.cuda.step_cache import StepCache
from warmcc.daemon.cuda.tools import Tools
from warmcc.daemon.cuda.warm.finder import Finder
from warmcc.daemon.cuda.warm.host_choice import HostChoice
from warmcc.daemon.cuda.warm.profiles import CudaProfiles
from warmcc.daemon.cuda.warm.start import Starter
from warmcc.daemon.kernel.kernels import Kernels
from warmcc.daemon.pch import pch
from warmcc.daemon.pch.lean import Missing
from warmcc.daemon.pch.machine_store import SharedProfiles
from warmcc.daemon.pch.plugin import Plugins
from warmcc.daemon.pch.profiles import Profiles
from warmcc.daemon.plan.machine import Machine
from warmcc.daemon.plan.planner import Planner
from warmcc.daemon.plan.policy import Policy
from warmcc.daemon.plan.zygotes import ZygotePool
from warmcc.daemon.remote.configured import tier_of
from warmcc.daemon.serve import logs, metrics
from warmcc.daemon.serve.accelerators import AcceleratorsReport
from warmcc.daemon.serve.admission import Admission
from warmcc.daemon.serve.build_requests import Builds, Post
from warmcc.daemon.serve.door import raise_limit
from warmcc.daemon.serve.housekeeping import Housekeeping
from warmcc.daemon.serve.prewarm import Prewarmer
from warmcc.daemon.serve.report import StatusReport
from warmcc.daemon.serve.server import Server
from warmcc.daemon.serve.systemd import Notifier, listening
from warmcc.daemon.store import Store, baked
from warmcc.daemon.store.claim import Claim, claim, take_lock
from warmcc.daemon.store.hits import Hits
from warmcc.daemon.store.shared import SharedStore
from warmcc.daemon.store.trust import Trust
from warmcc.daemon.system import remains, resources, temporary
from warmcc.daemon.system.background import Background
from warmcc.daemon.system.counters import Counters
from warmcc.daemon.system.permits import Permits
from warmcc.daemon.system.runner import Limits, Runner, started_threads
from warmcc.daemon.system.sandbox import Sandbox, configured
from warmcc.daemon.toolchain import Toolchains, huge_pages
from warmcc.daemon.toolchain.known_contents import KnownContents
from warmcc.daemon.toolchain.ninja import executable
from warmcc.daemon.verify.sampling import Sampler
from warmcc.errors import ConfigError, DaemonError
from warmcc.version import __version__

log = logging.getLogger(__name__)

_LEARN_SECONDS = 15.0  # at the end, for headers that nobody has read yet


class Daemon:
    """All parts of a running daemon, and the order in which they start and end."""

    def __init__(
        self, config: Config, claimed: Claim, ninja: str, notifier: Notifier, files: int
    ) -> None:
        self._config = config
        self._notifier = notifier
        self._claimed = claimed
        cache = claimed.path
        sandbox = configured(config, cache, ninja)
        self._counters = Counters()
        self._permits = Permits(config.jobs, config.job_memory)
        self._background = Background(self._permits)
        self._huge_pages = huge_pages.HugePages(cache / huge_pages.FOLDER, wanted=config.huge_pages)
        self._runner = self._make_runner(files, sandbox)
        self._store = Store(cache / "store", config.store_size, grace=config.build_timeout)
        known = KnownContents(cache / "contents")
        self._closures = Closures(self._store, HeaderWatch(self._store.get_headers, known))
        self._trust = Trust(cache / "withdrawn.json", self._store)
        self._zygotes = ZygotePool(marks=remains.mark(cache), sandbox=sandbox)
        self._plugins = Plugins(cache / "plugins", self._runner)
        shared = SharedStore.of(config, self._store, self._closures, self._trust)
        self._profiles = self._make_profiles(ninja, shared)
        self._steps = StepCache(self._store, self._closures)
        self._cuda = self._make_cuda_profiles()
        self._finder = Finder(self._cuda, self._runner, self._counters.cuda_reasons)
        self._store.keep_headers(
            lambda: pch.header_sets(cache / "profiles") | pch.header_sets(cache / "cuda" / "host")
        )
        missing = Missing(cache / "lean.json")
        self._sampler = Sampler(
            self._store, self._background, self._counters, self._trust, after=config.sample_after
        )
        policy = Policy(Machine.of(config)) if config.shared else None
        switches = frozenset(name for name in ("binding", "lean") if getattr(config, name))
        toolchains = Toolchains(sandbox, known)
        planner = Planner(
            self._store.root, toolchains, self._zygotes, self._counters, missing,
            switches, policy, sandbox, self._finder.names.mentioned_now,
        )  # fmt: skip
        hits = Hits(self._store, self._closures, shared)
        self._remote = tier_of(config, self._store, self._closures, known, self._trust, hits)
        builder = Builder(
            self._store, self._closures, hits, planner, self._make_executor(ninja, missing),
            self._make_publisher(shared), self._counters, Elsewhere(
                config, self._store, self._closures, self._runner, self._permits, self._counters
            ),
        )  # fmt: skip
        self._prewarmer = Prewarmer(
            config, planner, builder, self._profiles, self._background, self._finder
        )
        builder.on_built = self._prewarmer.targets.saw
        self._kernels = Kernels(
            config, self._store, self._closures, toolchains, self._runner, self._permits,
            self._counters, remains.mark(cache),
        )  # fmt: skip
        self._server = self._make_server(planner, hits, builder, policy)
        self.report = self._make_report(shared)
        self._housekeeping = Housekeeping(
            config, claimed, self._store, self._closures, self._server, notifier,
            self.report.line, self._cuda.rest,
        )  # fmt: skip

    def _make_profiles(self, ninja: str, shared: SharedStore | None) -> Profiles:
        config, root = self._config, self._claimed.path / "profiles"
        headers = pch.PchBuilder(
            root, self._closures, self._runner, ninja_path=ninja, timeout=config.build_timeout
        )
        return Profiles(
            headers, self._closures, root=root, size_limit=config.profile_size,
            background=self._background,
            finisher=self._plugins.finish if config.pch and config.finished_pch else None,
            shared=None if shared is None
            else SharedProfiles(shared, self._closures, config.profile_size),
        )  # fmt: skip

    def _make_cuda_profiles(self) -> CudaProfiles:
        config = self._config
        root, timeout = self._claimed.path / "cuda", config.build_timeout
        starter = Starter(root, self._runner, config.cuda_fork_memory, timeout, self._trust)
        hosts = HostChoice(
            root, self._closures, self._runner, steps=self._steps, timeout=timeout,
            finisher=self._plugins.finish if config.pch and config.finished_pch else None,
        )  # fmt: skip
        parts = (root, self._closures, starter, hosts, self._background)
        return CudaProfiles(*parts, config.cuda_memory, self._trust)

    def _make_executor(self, ninja: str, missing: Missing) -> Executor:
        config, learnt = self._config, Learnt()
        tools = Tools(
            config, self._finder, self._runner, self._counters, self._steps, self._permits
        )
        nvcc = CudaCompiler(tools, self._sampler, learnt)
        ccache = shutil.which("ccache") if config.ccache and not config.sandbox else None
        pchs = PchChoice(self._profiles, learnt, self._counters, self._trust, enabled=config.pch)
        return Executor(
            config, pchs, self._permits, self._counters, missing,
            LeanSamples(self._sampler, self._runner), nvcc,
            Graph(config, self._runner, self._permits, ninja, ccache), learnt,
        )  # fmt: skip

    def _make_publisher(self, shared: SharedStore | None) -> Publisher:
        ours = [self._store.root, self._profiles.root, self._cuda.root]
        ours += [] if shared is None else [shared.root]
        return Publisher(self._store, self._closures, self._trust, ours)

    def _make_runner(self, files: int, sandbox: Sandbox | None) -> Runner:
        config = self._config
        memory = config.step_memory or resources.total_memory()
        return Runner(
            Limits(memory, config.step_file_size, config.step_processes, files),
            marks=remains.mark(self._claimed.path), sandbox=sandbox,
            background=self._background, prepared=self._huge_pages.added_to,
        )  # fmt: skip

    def _make_server(
        self, planner: Planner, hits: Hits, builder: Builder, policy: Policy | None
    ) -> Server:
        admission = Admission(planner, hits, policy, self._closures.page)

        def make_builds(post: Post) -> Builds:
            return Builds(
                admission, builder, self._kernels, self._counters, self._permits, post,
                self._remote, queue=self._config.queue,
            )  # fmt: skip

        return Server(
            paths.socket_path(), make_builds, self._store, self._closures, self._counters,
            lambda: self.report.plain(), self._remote, self._background,
            message_size=self._config.message_size,
        )  # fmt: skip

    def _make_report(self, shared: SharedStore | None) -> StatusReport:
        accelerators = AcceleratorsReport(
            self._counters, self._profiles, self._plugins, self._cuda, self._steps, self._trust,
            self._huge_pages,
        )  # fmt: skip
        return StatusReport(
            self._config, self._counters, accelerators, self._store, self._profiles,
            self._prewarmer, self._permits, self._server, self._zygotes, shared,
            None if self._remote is None else self._remote.report, self._claimed,
        )  # fmt: skip

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(started_threads())
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._server.stopping.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        self._profiles.open()
        self._cuda.open()
        await asyncio.to_thread(self._trust.clear)
        if self._remote is not None:
            self._remote.start()
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
                self._housekeeping.run(), self._housekeeping.each_second(),
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
            if self._remote is not None:
                await self._remote.close()
            await self._profiles.close()
            await self._cuda.close()
            await self._zygotes.close()
            await self._kernels.close()
            self._runner.close()
            await self._server.close()
            await asyncio.to_thread(self._closures.learn, seconds=_LEARN_SECONDS)
            log.info("ended")

    def _reload(self) -> None:
        """SIGHUP: apply the settings that may change now, and log those that need a restart."""
        self._notifier.reloading()
        try:
            wanted = configuration.load()
        except ConfigError as error:
            log.error("the settings were not changed: %s", error)
        else:
            changed = configuration.changed(self._config, wanted)
            waiting = [name for name in changed if name not in configuration.LIVE]
            live = {name: getattr(wanted, name) for name in changed if name in configuration.LIVE}
            self._config = self.report.config = msgspec.structs.replace(self._config, **live)
            self._store.resize(wanted.store_size)
            self._housekeeping.config = wanted
            self._server.builds.queue = wanted.queue
            self._permits.resize(wanted.jobs, wanted.job_memory)
            logging.getLogger().setLevel(wanted.log_level.upper())
            self._closures.page.changed()
            log.info("settings reloaded: %s changed", ", ".join(live) or "nothing")
            if waiting:
                log.warning("restart required to apply: %s", ", ".join(waiting))
        self._notifier.ready()


def main() -> int:
    """Run the daemon until it is told to stop."""
    os.umask(0o077)
    # A hit reads a hundred files, and after each waits for a turn behind what is made warm.
    sys.setswitchinterval(0.0005)
    logs.keep_errors_to_size()
    notifier = Notifier()
    files = raise_limit()
    try:
        config = configuration.load()
        # They stay what they are, whatever appears on the machine later
        os.environ.update(paths.settle())
        lock = take_lock(paths.lock_path(), str(os.getpid()))
        if lock is None:
            print("warmcc: another daemon of this user is already running", file=sys.stderr)
            return 0
        claimed = claim(paths.cache_dir())
        baked.begin(claimed.path, config.baked)
        own = temporary.take(claimed.path / "tmp")
        if config.sandbox and (reason := Sandbox.missing()) is not None:
            raise DaemonError(reason)
        ninja = executable()
        if ninja is None:
            raise DaemonError("ninja is not installed; run: pip install ninja")
        left = remains.end(claimed.path)
        listener = logs.start(
            config.log_level, paths.private_dir(paths.state_dir()) / paths.STRUCTURED_LOG
        )
        if left:
            log.warning(
                "%d processes of a daemon that was killed were still running, and were ended",
                left,
            )
        try:
            asyncio.run(_run(config, claimed, ninja, notifier, files))
        finally:
            listener.stop()
            shutil.rmtree(own, ignore_errors=True)
    except ConfigError as error:
        print(f"warmcc: {error}", file=sys.stderr)
        return 2
    except (DaemonError, OSError) as error:
        print(f"warmcc: the daemon cannot start: {error}", file=sys.stderr)
        return 3
    # In this order: who gets the second one finds the cache free.
    for descriptor in (claimed.lock, lock):
        with contextlib.suppress(OSError):
            os.close(descriptor)
    return 0


async def _run(config: Config, claimed: Claim, ninja: str, notifier: Notifier, files: int) -> None:
    await Daemon(config, claimed, ninja, notifier, files).run()
