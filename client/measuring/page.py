"""Pages that need no other file: facts, a picture, tables."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape


def page(
    title: str, facts: Sequence[str], picture: str, tables: Sequence[Sequence[Sequence[str]]]
) -> str:
    """A page. ``picture`` is HTML or SVG; the first row of each table is its head."""
    said = "".join(f"<p>{escape(line)}</p>\n" for line in facts)
    shown = "".join(_table(one) for one in tables)
    return f"{_HEAD.format(title=escape(title))}{said}{picture}{shown}</body></html>\n"


def _table(rows: Sequence[Sequence[str]]) -> str:
    def line(row: Sequence[str], cell: str) -> str:
        cells = "".join(f"<{cell}>{escape(text)}</{cell}>" for text in row)
        return f"<tr>{cells}</tr>\n"

    head, body = line(rows[0], "th"), "".join(line(row, "td") for row in rows[1:])
    return f'<div class="table"><table>\n{head}{body}</table></div>\n'


_HEAD = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 15px/1.45 system-ui, sans-serif; margin: 1.2rem; }}
h1 {{ font-size: 1.2rem; overflow-wrap: anywhere; }}
p {{ margin: .2rem 0; }}
svg {{ max-width: 100%; height: auto; margin: 1rem 0; }}
.table {{ overflow-x: auto; }}
table {{ border-collapse: collapse; margin: 1rem 0; font: 13px monospace; }}
th, td {{ text-align: left; padding: .15rem .8rem .15rem 0; white-space: nowrap; }}
th {{ border-bottom: 1px solid; }}
</style></head><body>
<h1>{title}</h1>
"""
