"""The remote store beside a build: who is first, what is left alone, and what is dropped."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.closures import Project
from tests.support.exchanging import CONTENT, KEY, Machine
from tests.support.remotes import Proxy, webdav
from warmcc import status
from warmcc.client.cli.status import show
from warmcc.daemon.build.flight import Answer, Flight
from warmcc.daemon.remote import breaker, redis, tier, web
from warmcc.daemon.remote.breaker import Breaker
from warmcc.daemon.remote.exchange import Exchange
from warmcc.daemon.remote.header_contents import HeaderContents
from warmcc.daemon.remote.places import opened
from warmcc.daemon.remote.tier import Tier, Unusable
from warmcc.daemon.serve.metrics import _Collector
from warmcc.daemon.store.hits import Hits, built
from warmcc.protocol import Built, Failed


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(Project(tmp_path / "project", watching=False), tmp_path / "one")


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that a test can wait for."""
    for module in (web, redis):
        monkeypatch.setattr(module, "SILENT_SECONDS", 0.3)
    monkeypatch.setattr(tier, "END_SECONDS", 0.5)


def tier_of(machine: Machine, url: str = "", *, wait: float = 60.0, writes: bool = True) -> Tier:
    def make() -> Exchange:
        return Exchange(
            opened(url or str(machine.remote), signed=False), machine.store, machine.closures,
            HeaderContents(machine.store, machine.known), machine.trust, None, [],
        )  # fmt: skip

    hits = Hits(machine.store, machine.closures, None)
    return Tier(url or str(machine.remote), make, hits, wait=wait, writes=writes)


class Build:
    """A build that takes until it is let go on."""

    def __init__(self, machine: Machine, *, waits: bool = False) -> None:
        self.machine = machine
        self.begun = self.cancelled = self.done = 0
        self.go_on = asyncio.Event()
        if not waits:
            self.go_on.set()

    async def __call__(self) -> Answer:
        self.begun += 1
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        self.done += 1
        await asyncio.to_thread(self.machine.build)
        (result, *_) = self.machine.store.results("artifact", KEY)
        return built(result, self.machine.store.root / "x", "miss", 0.0)


async def fails() -> Answer:
    return Failed(0, "RuntimeError", "no")


def flight() -> Flight:
    return Flight(KEY, "ext")


async def idle(one: Tier) -> None:
    """Wait until nothing waits to be given."""
    while one.report().waiting:
        await asyncio.sleep(0.01)


async def ask(one: Tier, machine: Machine, build: Callable[[], Awaitable[Answer]]) -> Answer:
    return await one.first(machine.request, flight(), build)


def test_a_miss_is_built_and_given_and_then_found(machine: Machine, tmp_path: Path) -> None:
    other = Machine(machine.project, tmp_path / "other")

    async def go() -> None:
        one, two = tier_of(machine), tier_of(other)
        build, never = Build(machine), Build(other)
        answer = await ask(one, machine, build)
        assert isinstance(answer, Built) and answer.outcome == "miss" and build.done == 1
        await idle(one)
        found = await ask(two, other, never)
        assert isinstance(found, Built) and found.outcome == "hit" and never.begun == 0
        assert found.way == "from the remote store; lean way"
        assert Path(found.path).read_bytes() == CONTENT
        report = one.report()
        assert (report.missed, report.given, report.found, report.dropped) == (1, 1, 0, 0)
        assert (two.report().found, two.report().missed) == (1, 0)
        await one.close()
        await two.close()

    asyncio.run(go())


def test_what_failed_is_not_given(machine: Machine) -> None:
    async def go() -> None:
        one = tier_of(machine)
        assert isinstance(await ask(one, machine, fails), Failed)
        readonly = tier_of(machine, writes=False)
        assert isinstance(await ask(readonly, machine, Build(machine)), Built)
        assert one.report().given == readonly.report().given == 0
        assert not machine.files("results")

    asyncio.run(go())


def test_the_remote_store_ends_a_build_that_it_overtakes(machine: Machine, tmp_path: Path) -> None:
    giver = Machine(machine.project, tmp_path / "giver")
    giver.build()
    assert giver.give()

    async def go() -> None:
        one, build = tier_of(machine, wait=0.0), Build(machine, waits=True)
        answer = await ask(one, machine, build)
        assert isinstance(answer, Built) and answer.outcome == "hit"
        assert build.begun == build.cancelled and not build.done
        await one.close()

    asyncio.run(go())


def test_a_build_overtakes_a_server_that_hangs(machine: Machine, soon: None) -> None:
    async def go(url: str) -> None:
        one = tier_of(machine, url, wait=0.0)
        for _ in range(breaker.FAILURES):
            assert isinstance(await ask(one, machine, Build(machine)), Built)
            while one._tasks:
                await asyncio.sleep(0.01)
        report = one.report()
        assert report.not_found == {"timed out": breaker.FAILURES} and report.rests > 0
        assert "does not answer in time" in report.reason
        assert isinstance(await ask(one, machine, Build(machine)), Built)
        assert one.report().skipped == 1
        await one.close()

    with Proxy(hang=0, says=b"x") as server:
        asyncio.run(go(f"http://127.0.0.1:{server.port}"))
        assert server.connections <= 2 * breaker.FAILURES


def test_few_lookups_hang_at_a_time(machine: Machine, soon: None) -> None:
    async def go(url: str) -> None:
        one = tier_of(machine, url, wait=0.0)
        await asyncio.gather(*(ask(one, machine, fails) for _ in range(tier.LOOKUPS + 3)))
        assert sum(one.name == "warmcc-remote" for one in threading.enumerate()) <= tier.LOOKUPS + 1
        while one._tasks:
            await asyncio.sleep(0.01)
        assert one.report().skipped == 3
        await one.close()

    with Proxy(hang=0, says=b"x") as server:
        asyncio.run(go(f"http://127.0.0.1:{server.port}"))


def test_many_lookups_take_turns(machine: Machine, tmp_path: Path) -> None:
    giver = Machine(machine.project, tmp_path / "giver")
    giver.build()
    assert giver.give()

    async def go() -> None:
        one, build = tier_of(machine), Build(machine)
        answers = await asyncio.gather(*(ask(one, machine, build) for _ in range(20)))
        assert {answer.outcome for answer in answers if isinstance(answer, Built)} == {"hit"}
        assert (one.report().found, one.report().skipped, build.begun) == (20, 0, 0)
        await one.close()

    asyncio.run(go())


def test_a_client_that_goes_away_ends_the_build(machine: Machine, soon: None) -> None:
    async def go(url: str) -> None:
        one, build = tier_of(machine, url, wait=0.0), Build(machine, waits=True)
        asked = asyncio.ensure_future(ask(one, machine, build))
        while not build.begun:
            await asyncio.sleep(0.01)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert build.cancelled == 1
        await one.close()

    with Proxy(hang=0, says=b"x") as server:
        asyncio.run(go(f"http://127.0.0.1:{server.port}"))


def test_what_waits_too_long_is_dropped(
    machine: Machine, soon: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tier, "QUEUE", 2)

    async def go(url: str) -> None:
        one = tier_of(machine, url)
        machine.build()
        for _ in range(5):
            one._offer(machine.request, KEY)
        assert (one.report().waiting, one.report().dropped) == (2, 3)
        await one.close()
        assert one.report().dropped == 5 or one.report().not_given

    with Proxy(hang=0, says=b"x") as server:
        asyncio.run(go(f"http://127.0.0.1:{server.port}"))


def test_what_waits_is_given_before_the_end(machine: Machine, tmp_path: Path) -> None:
    async def go(url: str) -> None:
        one = tier_of(machine, url)
        assert isinstance(await ask(one, machine, Build(machine)), Built)
        await one.close()
        assert (one.report().given, one.report().waiting, one.report().dropped) == (1, 0, 0)

    with webdav(tmp_path / "server") as port:
        asyncio.run(go(f"http://someone:pass%2Fword@127.0.0.1:{port}"))


def test_one_that_is_unusable_is_left_out(machine: Machine) -> None:
    async def go() -> None:
        one = tier_of(machine, "nonsense")

        def make() -> Exchange:
            raise Unusable("it is nonsense")

        one._make = make
        one.start()
        assert isinstance(await ask(one, machine, Build(machine)), Built)
        assert isinstance(await ask(one, machine, Build(machine)), Built)
        assert one.report().refused == "it is nonsense"
        assert one.check()["problem"] == "it is nonsense"
        await one.close()

    asyncio.run(go())


def test_what_is_told_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    """By the status, and to Prometheus."""
    pytest.importorskip("prometheus_client", reason="prometheus-client is not installed")
    found = status.Remote(
        url="redis://…@cache", writes=True, rests=41.0, reason="timed out: late", found=3,
        dropped=2, not_shared=1, not_found={"timed out": 3}, not_given={"full": 1},
    )  # fmt: skip
    told = status.DaemonStatus(remote=found)
    show(told)
    text = capsys.readouterr().out
    assert "remote   3 found, 2 dropped  redis://…@cache\n" in text
    assert "left alone for 41.0 s: timed out: late" in text
    assert "3 lookups failed: timed out" in text and "1 results not given: full" in text
    collected = _Collector(lambda: msgspec.to_builtins(told)).collect()
    samples = {
        (one.name, *one.labels.values()): one.value for each in collected for one in each.samples
    }
    assert samples["warmcc_remote_total", "found"] == 3
    assert samples["warmcc_remote_failures_total", "not_given", "full"] == 1
    show(status.DaemonStatus(remote=status.Remote(url="x", refused="it is nonsense")))
    assert "remote   not used: it is nonsense  x" in capsys.readouterr().out


def test_an_error_of_ones_own_is_a_miss(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(*_: Any) -> None:
        raise ZeroDivisionError

    async def go() -> None:
        one = tier_of(machine)
        monkeypatch.setattr(Exchange, "take", raises)
        assert isinstance(await ask(one, machine, Build(machine)), Built)
        assert one.report().not_found == {"internal error": 1}
        await one.close()

    asyncio.run(go())


def test_a_breaker(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(breaker.time, "monotonic", lambda: now)
    one = Breaker()
    assert not one.failed("a") and not one.failed("b") and one.rests == 0
    one.worked()
    assert not one.failed("c") and not one.failed("d")
    assert one.failed("e") and one.rests == breaker.REST_SECONDS and one.reason == "e"
    now += breaker.REST_SECONDS
    assert one.rests == 0
    assert one.failed("f"), "after a rest one failure is enough"
    now += breaker.REST_SECONDS
    one.worked()
    assert one.rests == 0 and not one.failed("g")
