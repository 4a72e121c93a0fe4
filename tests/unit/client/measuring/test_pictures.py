"""Flame pictures and dots: where boxes are, and that names from outside stay text."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from warmcc.client.measuring import flame, page
from warmcc.client.measuring.calls import dots
from warmcc.client.measuring.flame import Frame

HOSTILE = "</title><script>alert('x')</script>&\"'"


def tree() -> Frame:
    return Frame(
        "all",
        10.0,
        "",
        [Frame("a", 6.0, "note", [Frame("b", 2.0), Frame("c", 4.0)]), Frame("d", 3)],
    )


def test_boxes_stand_beside_each_other_and_inside_their_parents() -> None:
    found = {box.frame.name: (box.left, box.width, box.depth) for box in flame.boxes(tree())}
    assert found == {
        "all": (0.0, 1.0, 0), "a": (0.0, 0.6, 1), "b": (0.0, pytest.approx(0.2), 2),
        "c": (pytest.approx(0.2), pytest.approx(0.4), 2), "d": (pytest.approx(0.6), 0.3, 1),
    }  # fmt: skip


def test_children_that_add_up_to_more_stay_inside() -> None:
    """Rounded times do."""
    root = Frame("all", 1.0, "", [Frame("a", 0.8), Frame("b", 0.4), Frame("c", 0.1)])
    boxes = list(flame.boxes(root))
    assert all(box.left + box.width <= 1 + 1e-9 for box in boxes)
    assert [box.frame.name for box in boxes] == ["all", "a", "b"]


def test_boxes_that_cannot_be_seen_are_left_out() -> None:
    root = Frame("all", 1.0, "", [Frame("tiny", 1e-5), Frame("a", 0.9)])
    assert [box.frame.name for box in flame.boxes(root)] == ["all", "a"]


def test_a_deep_tree_is_no_problem() -> None:
    root = at = Frame("all", 1.0)
    for number in range(3000):
        at.children.append(Frame(f"f{number}", 1.0))
        at = at.children[0]
    assert "f2999" in flame.svg("deep", root)


def test_an_empty_tree_is_one_box() -> None:
    assert [box.width for box in flame.boxes(Frame("all", 0.0, "", [Frame("a", 0.0)]))] == [1.0]


def test_the_svg_is_xml_with_a_tip_for_each_box() -> None:
    root = tree()
    root.children.append(Frame(HOSTILE, 1.0, HOSTILE))
    parsed = ElementTree.fromstring(flame.svg(HOSTILE, root))
    tips = [one.text for one in parsed.iter("{http://www.w3.org/2000/svg}title")]
    assert tips == ["all", "a: note", "b", "c", "d", f"{HOSTILE}: {HOSTILE}"]


def test_a_page_has_no_markup_of_names_and_loads_nothing() -> None:
    root = Frame(HOSTILE, 1.0, HOSTILE)
    text = page.page(HOSTILE, [HOSTILE], flame.html(root), [[(HOSTILE,), (HOSTILE,)]])
    assert text.count("<script>") == 1 and "alert('x')" not in text
    assert not re.search(r"(?:src|href)=|url\(|@import", text)


def test_stacks_are_folded_into_a_tree() -> None:
    root = flame.folded(["main;f;g 3", "main;f 1", "main;h 2"])
    (main,) = root.children
    assert (root.value, main.value) == (6.0, 6.0)
    assert [(one.name, one.value) for one in main.children] == [("f", 4.0), ("h", 2.0)]


def test_dots_are_in_the_order_of_their_times() -> None:
    rows = [
        (name, {"p5": at * 0.9, "p50": at, "p95": at * 1.2})
        for name, at in (("python", 4e-8), (HOSTILE, 1e-6), ("call", 2e-3))
    ]
    parsed = ElementTree.fromstring(dots.svg(HOSTILE, rows))
    places = [float(one.attrib["cx"]) for one in parsed.iter("{http://www.w3.org/2000/svg}circle")]
    assert len(places) == 3 and places == sorted(places)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1.2345e-9, "1.23 ns"), (9.999e-7, "1 µs"), (1e-3, "1 ms"), (0.5, "500 ms"), (12.0, "12 s")],
)
def test_times_in_the_unit_that_fits(seconds: float, text: str) -> None:
    assert dots.shown(seconds) == text
