"""``%%warmcc`` in a real kernel: functions appear, are replaced, and errors point at the cell's
lines.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.daemons import Daemon

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")


def run(cells: list[str], *, fails: bool = False) -> list[str]:
    """What each cell has printed or raised."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    nbclient.NotebookClient(notebook, timeout=120, allow_errors=fails).execute()
    return ["".join(map(_text, cell.outputs)) for cell in notebook.cells]


def _text(output: Any) -> str:
    if output.output_type == "error":
        return "\n".join(output.traceback)
    return str(output.get("text", "") or output.get("data", {}).get("text/plain", ""))


@pytest.mark.slow
def test_functions_appear_and_are_replaced(client: Daemon) -> None:
    said = run(
        [
            "%load_ext warmcc",
            "%%warmcc\nstatic int twice(int n) { return 2 * n; }\n"
            "int f(int n) { return twice(n); }\n"
            "at::Tensor g(at::Tensor x) { return x + 1; }",
            "import torch\n(f(4), g(torch.ones(1)).item(), 'twice' in globals())",
            "%%warmcc\nint f(int n) { return 3 * n; }",
            "f(4)",
            "%%warmcc own\n#include <torch/extension.h>\n"
            'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.attr("x") = 5; }',
            "own.x",
        ]
    )
    assert (said[2], said[4], said[6]) == ("(8, 2.0, False)", "12", "5")


@pytest.mark.slow
def test_errors_point_at_the_cells_lines(client: Daemon) -> None:
    said = run(
        [
            "%load_ext warmcc",
            "%%warmcc\nint f() {\n  return nothing;\n}",
            "%%warmcc\nint x;",
            "%%warmcc a-b\nint x;",
        ],
        fails=True,
    )
    assert "cell.cpp:3:10: error: " in said[1]
    assert "Traceback" not in said[1]
    assert "defines no function" in said[2]
    assert "invalid extension name" in said[3]
