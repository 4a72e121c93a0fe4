"""The report of all accelerators: how often each was used, and why not."""

from __future__ import annotations

from dataclasses import dataclass

from warmcc import status
from warmcc.daemon.cuda.step_cache import StepCache
from warmcc.daemon.cuda.warm.profiles import CudaProfiles
from warmcc.daemon.pch.plugin import Plugins
from warmcc.daemon.pch.profiles import Profiles
from warmcc.daemon.store.trust import Trust
from warmcc.daemon.system.counters import Counters
from warmcc.daemon.toolchain.huge_pages import HugePages


@dataclass
class AcceleratorsReport:
    """Reads the parts of a running daemon; changes nothing."""

    counters: Counters
    profiles: Profiles
    plugins: Plugins
    cuda: CudaProfiles
    steps: StepCache
    trust: Trust
    huge_pages: HugePages

    def report(self) -> status.Accelerators:
        counters = self.counters
        pch = status.Pch(
            counters.pch_used,
            {**counters.pch_fallbacks, **self.profiles.dropped},
            dict(self.plugins.reasons),
        )
        ways = status.Ways(
            dict(counters.ways), dict(counters.way_fallbacks), dict(counters.pybind_reasons),
            dict(counters.whole_reasons),
        )  # fmt: skip
        cuda = status.Cuda(
            dict(counters.cuda), dict(counters.cuda_reasons), dict(self.steps.found),
            dict(self.cuda.dropped), self.cuda.report(),
        )  # fmt: skip
        return status.Accelerators(
            pch, ways, cuda, dict(counters.samples), self.trust.withdrawn,
            status.Linker(dict(counters.linker_fallbacks)), status.Ccache(counters.ccache_hits),
            status.HugePages(not self.huge_pages.reason, self.huge_pages.reason),
        )  # fmt: skip
