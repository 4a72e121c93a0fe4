"""Which sequences of calls a run makes, how long they may take, and making them in turns."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.harness import say
from benchmarks.road.cases import EDIT, ERROR, FIRST, NEW, SECOND, Case
from benchmarks.road.foreign import Missing
from benchmarks.road.ledger import Ledger
from benchmarks.road.measure import Sample, Sequence
from benchmarks.road.worlds import STARTED, STOCK, WARM, WARMING, RoadWorld

# Seconds, for an estimate before anything was measured: a source on one core, and what goes before
# the calls.
_CPP, _CUDA = 25.0, 80.0
_HITS = 20.0
_BEFORE = {STOCK: 0.0, STARTED: 5.0, WARMING: 20.0, WARM: 30.0}
_WARM_UP = 500.0  # on one core


@dataclass(frozen=True)
class Plan:
    """Everything that was chosen. ``cores`` has the numbers of processors, the last turn of all is
    ``repeat`` - 1.
    """

    cases: list[Case]
    states: list[str]
    cores: list[int]
    repeat: int
    prewarm_cuda: bool = True

    def turns(self) -> Iterator[list[Sequence]]:
        """All sequences, in the order of their making, in groups that share one warm daemon.

        Stock stands between the states, and every other turn goes backwards: no side always comes
        after another.
        """
        for cores in self.cores:
            for turn in range(self.repeat):
                group: list[Sequence] = []
                for place, case in enumerate(self.cases):
                    number = 1000 + 10 * (turn * len(self.cases) + place)
                    sides = [STOCK, *self.states]
                    order = sides if turn % 2 == 0 else sides[::-1]
                    group += [Sequence(case, cores, turn, side, number) for side in order]
                yield group

    def sequences(self) -> list[Sequence]:
        return [one for group in self.turns() for one in group]


def expected(one: Sequence) -> float:
    """Roughly the seconds that a sequence takes; stock's time stands for warmcc's, too."""
    cpp, cuda = one.case.units
    whole = max((cpp * _CPP + cuda * _CUDA) / min(one.cores, cpp + cuda), _CUDA if cuda else _CPP)
    unit = _CUDA if cuda else _CPP
    cost = {FIRST: whole, SECOND: whole, EDIT: unit, ERROR: unit, NEW: _HITS}
    return sum(cost.get(moment, 0.0) for moment in one.case.moments) + _BEFORE[one.side]


def _pace(plan: Plan, ledger: Ledger) -> float:
    """How many times as long as expected stock's calls have taken here so far."""
    done = {
        (one.case.name, one.cores, one.turn): one
        for one in plan.sequences()
        if one.side == STOCK and ledger.has(one)
    }
    took = [
        sum(s.seconds)
        for s in ledger.samples
        if s.side == STOCK and (s.case, s.cores, s.turn) in done
    ]
    return sum(took) / sum(map(expected, done.values())) if done else 1.0


def estimate(plan: Plan, ledger: Ledger) -> float:
    """Roughly the seconds that are left to measure."""
    total = 0.0
    for group in plan.turns():
        left = [one for one in group if not ledger.has(one)]
        total += sum(expected(one) for one in left)
        if any(one.side == WARM for one in left):
            total += _WARM_UP / min(left[0].cores, 2)
    return total * _pace(plan, ledger)


def spoken(seconds: float) -> str:
    """``about 3 h 20 min``."""
    minutes = max(1, round(seconds / 60))
    return (
        f"about {minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"about {minutes} min"
    )


@contextlib.contextmanager
def restricted(cores: int) -> Iterator[None]:
    """Leave this process, and so all that it starts, so many processors; fewer than all are said in
    MAX_JOBS, too.
    """
    allowed, jobs = os.sched_getaffinity(0), os.environ.get("MAX_JOBS")
    os.sched_setaffinity(0, set(sorted(allowed)[:cores]))
    if cores < len(allowed):
        os.environ["MAX_JOBS"] = str(cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
        os.environ.pop("MAX_JOBS", None)
        if jobs is not None:
            os.environ["MAX_JOBS"] = jobs


@dataclass
class Run:
    """Makes the sequences of a plan that the ledger has not yet. ``keep`` is called after each."""

    plan: Plan
    ledger: Ledger
    keep: Callable[[], None]
    _warm: RoadWorld | None = None

    def run(self) -> None:
        for group in self.plan.turns():
            left = [one for one in group if not self.ledger.has(one)]
            if left:
                with restricted(left[0].cores), contextlib.closing(self):
                    for one in left:
                        self._measure(one)

    def _measure(self, one: Sequence) -> None:
        if one.case.name in self.ledger.left_out:
            return
        what = f"{one.case.name}, {one.side}, {one.cores} cores, turn {one.turn + 1}"
        say(
            f"  {what}: {spoken(expected(one))}; "
            f"{spoken(estimate(self.plan, self.ledger))} in all from here"
        )
        try:
            self.ledger.samples += self._samples(one)
        except Missing as error:
            self.ledger.left_out[one.case.name] = str(error)
            say(f"  {one.case.name} is left out: {error}")
        except Exception as error:
            self.ledger.failures[what] = f"{type(error).__name__}: {error}"
            say(f"  {what} FAILED: {error}")
            if one.side == WARM:
                self.close()  # whatever became of that daemon, the next case gets one that works
        self.keep()

    def _samples(self, one: Sequence) -> list[Sample]:
        if one.side == WARM:
            world = self._shared()
            return one.samples(world, world.wait_settled)
        world = self._world()
        if one.side == STOCK:
            try:
                return one.samples(world, _nothing)
            finally:
                world.__exit__()
        with world:
            if one.side == WARMING:
                world.wait_warming()
            return one.samples(world, _nothing)

    def _world(self) -> RoadWorld:
        return RoadWorld(prewarm_cuda=self.plan.prewarm_cuda)

    def _shared(self) -> RoadWorld:
        """One warm daemon for a whole turn, as it takes minutes to warm up. Each case brings it
        flags of its own.
        """
        if self._warm is None:
            say("  waiting for a daemon to warm up")
            world = self._world()
            world.__enter__()
            self._warm = world
        return self._warm

    def close(self) -> None:
        """End the warm daemon, if there is one."""
        if self._warm is not None:
            self._warm.__exit__()
            self._warm = None


def _nothing() -> None:
    """What goes before each call, where the daemon is not waited for."""
