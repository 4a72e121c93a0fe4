"""The picture of docs/evidence/figures.md: stock beside warmcc, a pair of bars per scenario, on a
logarithmic scale.

Drawn on a transparent ground in colours that keep a contrast of 3:1 or more on white and on
GitHub's dark grey, so that one file serves both.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.harness.measuring import seconds
from benchmarks.harness.results import Report
from benchmarks.harness.table import ratio

STOCK, WARM, INK = "#848d97", "#e4572e", "#7d858f"
NAME = "benchmarks"


def draw(report: Report, folder: Path) -> list[Path]:
    """Write ``benchmarks.png`` and ``benchmarks.svg`` into ``folder``; gives their paths.

    Equal reports give equal files. Raises ValueError for a report without results.
    """
    if not report.results:
        raise ValueError("there is nothing to draw: no scenario gave figures")
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = NAME
    import matplotlib.pyplot as plt
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    results = report.results[::-1]  # matplotlib counts upwards
    figure, axes = plt.subplots(
        figsize=(9, 0.72 * len(results) + 1.15), layout=ConstrainedLayoutEngine(w_pad=0.12)
    )
    for place, result in enumerate(results):
        one = result.outcome.headline
        for offset, value, colour in (
            (0.19, one.stock.median, STOCK),
            (-0.19, one.warmcc.median, WARM),
        ):
            axes.barh(place + offset, value, 0.34, color=colour)
            axes.annotate(
                seconds(value), (value, place + offset), xytext=(5, 0), textcoords="offset points",
                va="center", fontsize=9, color=INK,
            )  # fmt: skip
        axes.annotate(
            ratio(one.ratio), (1.02, place), xycoords=axes.get_yaxis_transform(), ha="left",
            va="center", fontsize=15, fontweight="bold", color=WARM if one.ratio >= 1 else INK,
        )  # fmt: skip
    medians = [
        series.median
        for one in results
        for series in (one.outcome.headline.stock, one.outcome.headline.warmcc)
    ]
    axes.set_xscale("log")
    axes.set_xlim(min(medians) / 3, max(medians) * 5)  # room for the labels
    axes.set_ylim(-0.6, len(results) - 0.4)
    ticks = [
        10.0**power for power in range(-4, 4) if min(medians) / 3 <= 10.0**power <= max(medians) * 2
    ]
    axes.set_xticks(
        ticks, [f"{tick:g} s" if tick >= 1 else f"{tick * 1000:g} ms" for tick in ticks]
    )
    axes.set_yticks(range(len(results)), [result.title for result in results], fontsize=10.5)
    axes.minorticks_off()
    axes.tick_params(length=0, colors=INK)
    axes.grid(axis="x", color=INK, alpha=0.25, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    handles = [mpl.patches.Patch(color=colour) for colour in (STOCK, WARM)]
    figure.legend(
        handles, ["stock torch", "warmcc"], loc="outside upper center", ncols=2, frameon=False,
        labelcolor=INK, fontsize=11,
    )  # fmt: skip
    axes.set_xlabel(
        f"median time, logarithmic · {report.machine['cpu']}, {report.machine['cores']} cores · "
        f"torch {report.machine['torch']} · {report.machine['taken'][:10]}",
        fontsize=8.5, color=INK, labelpad=8,
    )  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{NAME}.{suffix}" for suffix in ("png", "svg")]
    figure.savefig(paths[0], dpi=160, transparent=True)
    figure.savefig(paths[1], transparent=True, metadata={"Date": None})
    plt.close(figure)
    return paths
