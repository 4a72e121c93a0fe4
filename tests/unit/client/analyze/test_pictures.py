"""The page and the trace of an analysis, without a browser."""

from __future__ import annotations

import itertools
import json
import re

import pytest

from tests.support.analyses import NASTY, analysis
from warmcc.client.analyze import pictures


def test_the_page_needs_no_other_file() -> None:
    text = pictures.page(analysis())
    assert not re.search(r"""(?:src|href)\s*=|@import|url\(""", text)
    assert set(re.findall(r"https?://[^\"' ]+", text)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"@[A-Z]+@", text), "a place that was not filled"


def test_text_from_outside_is_text() -> None:
    text = pictures.page(analysis())
    assert text.count("<script") == 2 and text.count("</script>") == 2
    data = json.loads(re.findall(r'id="data">(.*?)</script>', text, re.S)[0])
    assert NASTY in data["rows"][1][0][6]


def test_tables_have_what_pictures_show() -> None:
    text = pictures.page(analysis())
    assert "<caption>Dearest headers of main.cpp</caption>" in text
    assert "<td>cc1plus</td><td>1.20</td><td>6.80</td>" in text


def test_processes_stand_below_those_that_started_them() -> None:
    rows = pictures._rows(analysis().build.processes)
    place = {one.pid: number for number, row in enumerate(rows) for one in row}
    assert place[12] > place[11] > place[10] and place[14] > place[10]
    for row in rows:
        assert all(a.end <= b.start for a, b in itertools.pairwise(row))


@pytest.mark.parametrize("most", [5, 3000])
def test_small_headers_are_a_part_of_their_parents(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "_MOST_BOXES", most)
    found = analysis()
    (unit,) = json.loads(re.findall(r'id="data">(.*?)</script>', pictures.page(found), re.S)[0])[
        "units"
    ]
    assert len(unit["nodes"]) <= 40 and (most > 40 or len(unit["nodes"]) < 20)
    total = sum(one.reading for one in found.units[0].headers)
    assert sum(node[3] for node in unit["nodes"]) == pytest.approx(total)
    assert all(node[2] < place for place, node in enumerate(unit["nodes"]))


def test_a_trace_has_both_sides_on_one_axis() -> None:
    found = pictures.chrome(analysis())
    events = [one for one in found["traceEvents"] if one["ph"] == "X"]
    assert {one["pid"] for one in events} == {1, 2}
    (compiler,) = (one for one in events if one["name"] == "cc1plus")
    assert (compiler["ts"], compiler["dur"]) == (1_200_000, 6_800_000)
    json.dumps(found)
