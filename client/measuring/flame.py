"""A flame picture: nested boxes, each as wide as what it stands for. As SVG, and as a part of a
page; there, a click makes a box as wide as the picture.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape

_LEAST = 1 / 5000  # of the whole: smaller boxes are left out
_WIDTH, _ROW = 1200, 19  # of the SVG, in pixels
_LETTER = 6.6


@dataclass
class Frame:
    """A box. ``value`` contains that of ``children``; ``note`` is shown when one points to it."""

    name: str
    value: float
    note: str = ""
    children: list[Frame] = field(default_factory=list)


@dataclass(frozen=True)
class Box:
    """Where a frame is: ``left`` and ``width`` as parts of the whole, ``depth`` counted in rows."""

    left: float
    width: float
    depth: int
    frame: Frame


def boxes(root: Frame) -> Iterator[Box]:
    """All that are wide enough to be seen, a box before those in it.

    >>> inner = Frame("a", 1.0), Frame("b", 2.0)
    >>> [(box.frame.name, box.left, box.depth) for box in boxes(Frame("all", 4.0, "", [*inner]))]
    [('all', 0.0, 0), ('a', 0.0, 1), ('b', 0.25, 1)]
    """
    waiting = [Box(0.0, 1.0, 0, root)]
    while waiting:
        box = waiting.pop()
        yield box
        left, inside = box.left, []
        for child in box.frame.children:
            width = child.value / root.value if root.value else 0.0
            width = min(width, box.left + box.width - left)
            if width >= _LEAST:
                inside.append(Box(left, width, box.depth + 1, child))
            left += max(0.0, width)
        waiting += reversed(inside)


def svg(title: str, root: Frame) -> str:
    """A picture that stands by itself."""
    found = list(boxes(root))
    height = (max(box.depth for box in found) + 3) * _ROW
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}"'
        f' height="{height}" font-family="monospace" font-size="11">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="4" y="14" font-size="13">{escape(title)}</text>',
    ]
    for box in found:
        left, width = box.left * _WIDTH, box.width * _WIDTH
        top = (box.depth + 1) * _ROW + 4
        label = box.frame.name
        if len(label) > (most := int((width - 6) / _LETTER)):
            label = label[: most - 1] + "…" if most > 2 else ""
        parts.append(
            f"<g><title>{escape(_tip(box.frame))}</title>"
            f'<rect x="{left:.2f}" y="{top}" width="{max(width - 0.4, 0.2):.2f}"'
            f' height="{_ROW - 1}" fill="{colour(box.frame.name)}"/>'
            + (f'<text x="{left + 3:.2f}" y="{top + 13}">{escape(label)}</text>' if label else "")
            + "</g>"
        )
    return "\n".join([*parts, "</svg>", ""])


def html(root: Frame) -> str:
    """The picture as a part of a page."""
    found = list(boxes(root))
    height = (max(box.depth for box in found) + 1) * _ROW
    drawn = "".join(
        f'<div style="left:{box.left:.4%};width:{box.width:.4%};top:{box.depth * _ROW}px;'
        f'background:{colour(box.frame.name)}" data-l="{box.left:.6f}" data-w="{box.width:.6f}"'
        f' title="{escape(_tip(box.frame))}">{escape(box.frame.name)}</div>\n'
        for box in found
    )
    return f'{_STYLE}<div class="flame" style="height:{height}px">\n{drawn}</div>\n{_SCRIPT}'


def folded(lines: Sequence[str], name: str = "all") -> Frame:
    """A tree from lines such as ``main;f;g 12``, as tools for flame graphs write them.

    >>> (one,) = folded(["f;g 2", "f 1"]).children
    >>> (one.name, one.value, [child.name for child in one.children])
    ('f', 3.0, ['g'])
    """
    root = Frame(name, 0.0)
    places: dict[tuple[int, str], Frame] = {}
    for line in lines:
        stack, _, count = line.rpartition(" ")
        value = float(count)
        root.value += value
        at = root
        for part in stack.split(";"):
            if (child := places.get((id(at), part))) is None:
                child = places[id(at), part] = Frame(part, 0.0)
                at.children.append(child)
            child.value += value
            at = child
    return root


def colour(name: str) -> str:
    """The same for all parts of a package, and readable behind black text."""
    hue = zlib.crc32(name.partition(".")[0].encode()) % 360
    return f"hsl({hue},60%,78%)"


def _tip(frame: Frame) -> str:
    return f"{frame.name}: {frame.note}" if frame.note else frame.name


_STYLE = """<style>
.flame { position: relative; margin: 1rem 0; overflow: hidden; }
.flame div { position: absolute; height: 18px; box-sizing: border-box; padding: 0 3px;
  font: 11px/18px monospace; color: #000; overflow: hidden; white-space: nowrap;
  text-overflow: ellipsis; border-right: 1px solid #fff8; cursor: pointer; }
.flame div:hover { filter: brightness(.9); }
</style>
"""
_SCRIPT = """<script>
const all = [...document.querySelectorAll(".flame div")];
for (const one of all) one.onclick = () => {
  const left = +one.dataset.l, width = +one.dataset.w;
  for (const box of all) {
    const from = Math.max(0, (+box.dataset.l - left) / width);
    const to = Math.min(1, (+box.dataset.l + +box.dataset.w - left) / width);
    box.style.display = to - from > 1e-6 ? "" : "none";
    box.style.left = from * 100 + "%";
    box.style.width = (to - from) * 100 + "%";
  }
};
</script>
"""
