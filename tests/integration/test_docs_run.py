"""Every command and every Python example of the documentation runs, page by page, against a warm
daemon. Blocks for CUDA run in ``tests/cuda/test_docs.py``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import pages
from tests.support.daemons import Daemon

# Files that a page mentions and does not show.
FILES = {
    "README.md": {
        "extensions.toml": '[[extension]]\nname = "seeded"\n'
        'cpp_sources = ["at::Tensor f(at::Tensor x) { return x; }"]\nfunctions = ["f"]\n',
        "train.py": "from torch.utils.cpp_extension import load_inline\n"
        'source = "at::Tensor f(at::Tensor x) { return x; }"\n'
        'load_inline("trained", source, functions=["f"])\n',
    },
}
# Names that a page uses and does not define.
GIVEN = {
    "README.md": """
results = {}
candidates = {
    "good": "at::Tensor f(at::Tensor x) { return x * 2; }",
    "broken": "at::Tensor f(at::Tensor x) { return y; }",
}
def score(function):
    import torch
    return float(function(torch.ones(1)))
""",
}


@pytest.mark.spread
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page,
            id=pages.name_of(page),
            marks=[] if pages.name_of(page) == "README.md" else pytest.mark.slow,
        )
        for page in pages.PAGES
        if pages.has_runs(page, cuda=False)
    ],
)
def test_everything_on_the_page_runs(page: Path, warm: Daemon, tmp_path: Path) -> None:
    name = pages.name_of(page)
    pages.run(page, tmp_path, warm, cuda=False, files=FILES.get(name), given=GIVEN.get(name, ""))


def test_a_command_that_fails_fails_the_page(daemon: Daemon, tmp_path: Path) -> None:
    fake = tmp_path / "page.md"
    fake.write_text("```sh\nwarmcc why no_such_name\n```\n")
    with pytest.raises(AssertionError, match="no logged request matches"):
        pages.run(fake, tmp_path / "run", daemon, cuda=False)
    fake.write_text("```python\nassert False, 'seen'\n```\n")
    with pytest.raises(AssertionError, match="seen"):
        pages.run(fake, tmp_path / "again", daemon, cuda=False)
