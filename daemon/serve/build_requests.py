"""Requests for builds: hits and refusals are answered at once, the rest joins a flight."""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import Protocol

import msgspec

from warmcc import protocol
from warmcc.daemon.build.builder import Builder
from warmcc.daemon.build.flight import Answer, Flight, Waiter
from warmcc.daemon.kernel.kernels import AdmittedKernel, Kernels
from warmcc.daemon.kernel.makers import NotHere
from warmcc.daemon.remote.tier import Tier
from warmcc.daemon.serve import logs
from warmcc.daemon.serve.admission import Admission, Admitted, LeftToStock, Refused
from warmcc.daemon.serve.flights import Flights
from warmcc.daemon.system.counters import Counters
from warmcc.daemon.system.permits import Permits
from warmcc.protocol import DaemonMessage, Declined, Failed, Output
from warmcc.record import Answered

log = logging.getLogger(__name__)

_GATHER_SECONDS = 0.02
Wanted = Admitted | AdmittedKernel


class Post(Protocol):
    """What is needed of the server. Sending does not block."""

    def send(self, identity: bytes, message: DaemonMessage) -> bool: ...
    def answer(self, identity: bytes, number: int, message: DaemonMessage) -> None: ...
    def pid(self, identity: bytes) -> int: ...
    def waits(self, identity: bytes, number: int) -> bool: ...


class Builds:
    """One per daemon. ``queue`` builds may wait at a time."""

    def __init__(
        self, admission: Admission, builder: Builder, kernels: Kernels, counters: Counters,
        permits: Permits, post: Post, remote: Tier | None, *, queue: int,
    ) -> None:  # fmt: skip
        self._admission = admission
        self._builder = builder
        self._kernels = kernels
        self._counters = counters
        self._permits = permits
        self._post = post
        self._remote = remote
        self.queue = queue
        self.flights = Flights(self._land)

    async def answer(self, identity: bytes, message: protocol.Build | protocol.Kernel) -> None:
        """Answer a request: at once when it is a hit or refused, else when its flight lands."""
        number, request = message.id, message.request
        publish = isinstance(message, protocol.Build) and message.publish
        alike = message.alike if isinstance(message, protocol.Build) else []
        try:
            found: Wanted
            if isinstance(message, protocol.Kernel):
                found = await self._kernels.look_up(message.request)
            else:
                found = await self._admission.look_up(message.request, publish=publish)
        except Refused as refused:
            self._refuse(identity, number, request.name, refused.reason, str(refused))
        except (LeftToStock, NotHere) as reason:
            self._decline(identity, number, str(reason), reason.expected, request.name)
        except Exception as error:
            log.exception("request %s failed before its build", request.name)
            text = f"internal error: {type(error).__name__}: {error}"
            self._decline(identity, number, text, False, request.name)
        else:
            self._proceed(identity, number, found, publish=publish, alike=alike)

    def _proceed(
        self, identity: bytes, number: int, found: Wanted, *, publish: bool, alike: list[str]
    ) -> None:
        """Answer with the hit; without one, have the client wait for a flight."""
        name, pid = found.request.module_name, self._post.pid(identity)
        if found.hit is not None:
            self._counters.hits += 1
            logs.answered(Answered(name, found.key, "hit", found.hit.seconds, pid))
            self._post.answer(identity, number, msgspec.structs.replace(found.hit, id=number))
            return
        if not self._post.waits(identity, number):
            self._counters.cancelled += 1
            logs.answered(Answered(name, found.key, "cancelled", 0.0, pid))
            return
        self._wait(identity, number, found, publish=publish, alike=alike)

    def _refuse(self, identity: bytes, number: int, name: str, reason: str, text: str) -> None:
        self._counters.refused[reason] += 1
        logs.answered(Answered(name, "", "failed", 0.0, self._post.pid(identity), reason=text))
        self._post.answer(identity, number, Failed(number, "RequestError", text))

    def _decline(
        self, identity: bytes, number: int, reason: str, expected: bool, name: str
    ) -> None:
        self._counters.declined[reason] += 1
        logs.answered(Answered(name, "", "declined", 0.0, self._post.pid(identity), reason=reason))
        self._post.answer(identity, number, Declined(number, reason, expected))

    def _wait(
        self, identity: bytes, number: int, found: Wanted, *, publish: bool, alike: list[str]
    ) -> None:
        """Join the flight of a key, or start one."""
        waiter, verbose = (identity, number), found.request.verbose
        if (present := self.flights.by_key.get(found.key)) is not None:
            self._flush(present)
        joined = self.flights.join(found.key, waiter, wants_output=verbose)
        if joined is not None:
            joined.publish = joined.publish or publish
            self._counters.joined += 1
            if verbose and joined.printed:
                self._post.send(identity, Output(number, "".join(joined.printed)))
            return
        flight = Flight(
            found.key, found.request.module_name, publish=publish, alike=alike,
            on_output=self._print,
        )  # fmt: skip
        if len(self.flights.by_key) >= self.queue:
            self._turn_away(waiter, flight)
            return
        flight.inputs = found.inputs()
        flight.waiters[waiter] = verbose
        flight.first, flight.client = waiter, self._post.pid(identity)
        self.flights.start(flight, lambda flight: self._fly(flight, found))

    def _turn_away(self, waiter: Waiter, flight: Flight) -> None:
        seconds, waiting = self.flights.patience(self._permits.limit), len(self.flights.by_key)
        self._counters.busy += 1
        reason = f"{waiting} builds were waiting"
        logs.answered(
            Answered(flight.name, flight.key, "busy", 0.0, self._post.pid(waiter[0]), reason=reason)
        )
        self._post.answer(*waiter, protocol.Busy(waiter[1], seconds, waiting))

    async def _fly(self, flight: Flight, found: Wanted) -> Answer:
        try:
            if isinstance(found, AdmittedKernel):
                return await self._kernels.build(found, flight)
            build = functools.partial(self._builder.build, found.request, found.toolchain, flight)
            if self._remote is not None:
                return await self._remote.first(found.request, flight, build)
            return await build()
        except Exception as error:
            log.exception("build of %s failed", flight.name)
            return Declined(0, f"internal error: {type(error).__name__}: {error}", expected=False)

    def _print(self, flight: Flight, text: str) -> None:
        """Lines go out together: a message for each would overrun a client that is slow."""
        if not flight.unsent:
            asyncio.get_running_loop().call_later(_GATHER_SECONDS, self._flush, flight)
        flight.unsent.append(text)

    def _flush(self, flight: Flight) -> None:
        if not flight.unsent:
            return
        text, flight.unsent = "".join(flight.unsent), []
        for (identity, number), wants in list(flight.waiters.items()):
            if wants:
                self._post.send(identity, Output(number, text))

    def _land(self, flight: Flight, answer: Answer | None) -> None:
        """Give a flight's answer to all who wait for it, and count it once; None: nobody waits."""
        self._flush(flight)
        logs.landed(flight, answer, flight.client)
        if answer is None:
            return
        if isinstance(answer, protocol.Built):
            self._counters.hits += answer.outcome == "hit"
            self._counters.misses += answer.outcome != "hit"
        elif isinstance(answer, Failed):
            self._counters.failed += 1
        else:
            self._counters.declined[answer.reason] += 1
        for waiter in list(flight.waiters):
            identity, number = waiter
            own = msgspec.structs.replace(answer, id=number)
            if isinstance(own, protocol.Built) and waiter != flight.first and own.outcome == "miss":
                own = msgspec.structs.replace(own, outcome="joined")
            self._post.answer(identity, number, own)
