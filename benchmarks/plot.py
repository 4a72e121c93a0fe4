"""The README's picture: stock beside warmcc, a pair of bars per scenario, on a logarithmic scale."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.__main__ import seconds

WARM, STOCK, INK = "#e4572e", "#8d99ae", "#6b7280"  # readable on light and on dark


def draw(report: dict[str, Any], folder: Path) -> None:
    """Write benchmarks.png and benchmarks.svg into ``folder``."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    results = [result for result in report["results"] if result["ratio"]][::-1]
    figure, axes = plt.subplots(figsize=(8, 0.8 * len(results) + 1.1))
    for place, result in enumerate(results):
        ours, theirs = (result["medians"][name] for name in result["ratio_of"])
        for offset, value, colour in ((0.2, theirs, STOCK), (-0.2, ours, WARM)):
            axes.barh(place + offset, value, 0.36, left=0, color=colour)
            axes.text(value * 1.15, place + offset, seconds(value), va="center", fontsize=9, color=INK)
        axes.text(1.0, place, f"{result['ratio']:.3g}×", transform=axes.get_yaxis_transform(), ha="right", va="center",
                  fontsize=13, fontweight="bold", color=WARM)  # fmt: skip
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.set_xlim(low / 1.5, high * 12)
    axes.set_yticks(range(len(results)), [result["title"] for result in results], fontsize=10, color=INK)
    axes.tick_params(axis="x", colors=INK, labelsize=8)
    axes.set_xlabel("seconds (median, logarithmic)", fontsize=9, color=INK)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(INK)
    handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in (STOCK, WARM)]
    figure.legend(
        handles, ["stock torch", "warmcc"], loc="lower right", ncol=2, frameon=False, labelcolor=INK, fontsize=9
    )
    figure.tight_layout()
    folder.mkdir(parents=True, exist_ok=True)
    for suffix in ("png", "svg"):
        figure.savefig(folder / f"benchmarks.{suffix}", dpi=150, transparent=True)
    plt.close(figure)
