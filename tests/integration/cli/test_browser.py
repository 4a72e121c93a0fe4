"""The page of ``warmcc analyze --html`` in a real browser, at two widths: it draws, it fits, and it
can be used with a mouse and with keys."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.analyses import analysis
from warmcc.client.analyze import pictures

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome", "chromium-headless-shell")
OUTER = """<!DOCTYPE html><title>waiting</title>
<iframe id="page" style="width:{width}px;height:900px;border:0" srcdoc="{page}"></iframe>
<script>
const frame = document.getElementById("page");
frame.addEventListener("load", () => {{
  const inner = frame.contentDocument, view = frame.contentWindow;
  const found = {{ errors: view.errors }};
  const boxes = (place) => inner.querySelectorAll(place + " rect").length;
  const map = "#units .picture";
  const name = () => inner.querySelector(map + " g").getAttribute("aria-label");
  found.flame = boxes("#flame");
  found.map = boxes(map);
  found.overflow = inner.documentElement.scrollWidth - inner.documentElement.clientWidth;
  found.before = name();
  const tabbed = [...inner.querySelectorAll(map + " g[tabindex]")];
  found.tabbed = tabbed.length;
  tabbed[1].dispatchEvent(new view.KeyboardEvent("keydown", {{ key: "Enter" }}));
  found.inside = name();
  inner.querySelector(map + " g").dispatchEvent(new view.MouseEvent("click"));
  found.outside = name();
  const bySize = inner.querySelector("input[value=size]");
  bySize.click();
  found.size = name();
  found.told = inner.querySelector("#units .told").textContent;
  document.title = JSON.stringify(found);
}});
</script>"""


def browser() -> str:
    """A program of Chromium's kind; of playwright's, where none is installed."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        kept = Path.home() / ".cache" / "ms-playwright"
        places = [*kept.glob("chromium*/chrome-linux*/chrome"),
                  *kept.glob("chromium*/chrome-*/headless_shell")]  # fmt: skip
        found = next((str(path) for path in places), None)
    if found is None:
        pytest.skip("there is no browser: apt-get install chromium")
    return found


def looked_at(page: str, width: int, folder: Path) -> dict[str, Any]:
    """What the page is like in a window of this width."""
    watched = page.replace(
        "<head>",
        "<head><script>errors = []; onerror = (text) => { errors.push(text); };</script>",
        1,
    )
    place = folder / f"{width}.html"
    place.write_text(OUTER.format(width=width, page=html.escape(watched)))
    done = subprocess.run(
        [browser(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         f"--user-data-dir={folder / 'profile'}", "--window-size=1600,1000",
         "--virtual-time-budget=5000", "--dump-dom", place.as_uri()],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    title = re.search(r"<title>(.*?)</title>", done.stdout, re.S)
    assert title is not None and title[1] != "waiting", done.stdout[-1000:] + done.stderr[-2000:]
    found: dict[str, Any] = json.loads(html.unescape(title[1]))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("width", [380, 1300])
def test_the_page_draws_fits_and_can_be_used(width: int, tmp_path: Path) -> None:
    found = looked_at(pictures.page(analysis()), width, tmp_path)
    assert found["errors"] == []
    assert found["flame"] >= 6 and found["map"] > 5
    assert found["overflow"] <= 0
    assert found["tabbed"] > 1
    assert found["before"].startswith("main.cpp") and found["outside"] == found["before"]
    assert found["inside"].startswith("t/"), "the chosen header is the whole picture"
    assert " kB " in found["size"] and found["told"]
