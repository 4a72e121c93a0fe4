"""Offer what was built the lean way as a sample, which the idle daemon builds again to compare."""

from __future__ import annotations

from warmcc.daemon.build.work import Work
from warmcc.daemon.pch import leading_includes, lean
from warmcc.daemon.pch.lean_sample import LeanSample
from warmcc.daemon.system.runner import Runner
from warmcc.daemon.toolchain import ninja
from warmcc.daemon.verify.sampling import Inputs, Sampler


class LeanSamples:
    """Offers samples to the sampler of a daemon."""

    def __init__(self, sampler: Sampler, runner: Runner) -> None:
        self._sampler = sampler
        self._runner = runner

    def built(self) -> None:
        """Something was built: the daemon is not idle."""
        self._sampler.built()

    def offer(self, work: Work) -> None:
        """Offer the first unit of a flight that went the lean way."""
        unit, stock = work.units[0], work.ways.stock.units[0].text
        attempt = work.attempt(unit)
        if (
            work.way.name != "lean"
            or attempt.is_plain
            or unit.text is None
            or stock is None
            or not self._sampler.wants(LeanSample.kind)
        ):
            return
        request, plan = work.request, work.plan
        read = ninja.dependencies(work.tree / f"{unit.object}.d", work.folder)
        own = str(work.tree)
        inputs = Inputs.of([path for path in read if not path.startswith(own)], work.marker)
        flags = f"{work.cflags(unit)} {plan.post_cflags}".strip()
        source = "\n".join(request.cpp_sources)
        text = unit.text
        if attempt.text is not None:
            headers = leading_includes.text(attempt.text.headers)
            text = f'{headers}#line 1 "{unit.source}"\n{text}'
        sample = LeanSample(
            request.module_name, lean.maker(work.toolchain.digest), inputs, work.toolchain.argv,
            flags, work.environment(), attempt.pch, text, stock, source, self._runner,
        )  # fmt: skip
        self._sampler.offer(sample)
