"""What is done with a request before its build: check it, identify its toolchain, find its hit.

Some requests are refused (by a shared machine's policy, or in a sandbox), and some are left to
stock torch.
"""

from __future__ import annotations

from dataclasses import dataclass

from warmcc.daemon.plan import declines, keys, sandboxed
from warmcc.daemon.plan.planner import Planner
from warmcc.daemon.plan.policy import Forbidden, Policy, refusal
from warmcc.daemon.store.hits import Hits
from warmcc.daemon.system.page import Page
from warmcc.daemon.toolchain import MissingCompiler, Toolchain
from warmcc.protocol import Built
from warmcc.request import Request


class Refused(Exception):
    """A request that this daemon refuses; ``reason`` is what the status counts."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class LeftToStock(Exception):
    """Stock torch has to build this request; ``expected``: that is by design."""

    def __init__(self, reason: str, expected: bool) -> None:
        super().__init__(reason)
        self.expected = expected


@dataclass(frozen=True)
class Admitted:
    """A request that may be built, and its hit, if there is one."""

    request: Request
    toolchain: Toolchain
    key: str
    hit: Built | None

    def inputs(self) -> dict[str, str]:
        """The parts of its key, for people."""
        return keys.readable(self.request, self.toolchain)


class Admission:
    """Admits requests. One per daemon. With a ``policy`` it refuses some."""

    def __init__(self, planner: Planner, hits: Hits, policy: Policy | None, page: Page) -> None:
        self._planner = planner
        self._hits = hits
        self._policy = policy
        self._page = page

    async def look_up(self, request: Request, *, publish: bool) -> Admitted:
        """Check a request, and look for its hit. Raises Refused, LeftToStock."""
        page = self._page.count  # before anything is looked at
        try:
            if self._policy is not None:
                request = self._policy.admit(request)
            if (declined := declines.why_declined(request)) is not None:
                raise LeftToStock(*declined)
            toolchain = await self._planner.identify(request)
        except Forbidden as reason:
            raise Refused(str(reason), refusal(str(reason)).message) from reason
        except sandboxed.Unreadable as reason:
            raise Refused("a path outside of the sandbox", str(reason)) from reason
        except MissingCompiler as reason:
            # Stock has its own words for it.
            raise LeftToStock(str(reason), True) from reason
        if request.interpreter.torch_loaded not in (None, toolchain.torch_version):
            raise LeftToStock(
                f"torch {request.interpreter.torch_loaded} is imported, but torch "
                f"{toolchain.torch_version} is installed now; start a new process",
                False,
            )
        key = keys.request_key(request, toolchain)
        paths = self._planner.paths(request, toolchain)
        hit = await self._hits.find(key, publish=publish, page=page, paths=paths)
        return Admitted(request, toolchain, key, hit)
