"""Where the overlay stands in the search for headers."""

from __future__ import annotations

import os

_OF_TORCH = "ATen/core"  # in no folder of headers of the user's (``eligibility.why_not``)


def in_front(words: list[str], folders: list[str]) -> list[str]:
    """The words of a preprocessor that searches these folders before all that are given with
    -isystem, and before torch's, which a setup.py gives with -I.
    """
    for index, word in enumerate(words):
        if word == "-isystem":
            added = [part for folder in folders for part in ("-isystem", folder)]
        elif word.startswith("-I") and os.path.isdir(
            f"{word[2:] or ''.join(words[index + 1 : index + 2])}/{_OF_TORCH}"
        ):
            added = [f"-I{folder}" for folder in folders]
        else:
            continue
        return [*words[:index], *added, *words[index:]]
    return [*words, *(part for folder in folders for part in ("-isystem", folder))]
