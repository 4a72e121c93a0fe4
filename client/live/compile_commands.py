"""``compile_commands.json`` for the files of an extension, CUDA included: clangd's input.

clangd is not nvcc: a CUDA file gets clang's own flags for it, with the folders, macros and standard
of the real command.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

from warmcc.client.live.recipe import CUDA, Recipe
from warmcc.protocol import Built

_TAKES_A_WORD = ("-I", "-isystem", "-D", "-U", "-iquote", "-idirafter")


def write(path: str, recipe: Recipe, built: Built) -> None:
    """Put the entries of a recipe's files into ``path``; those of other files stay.
    Raises OSError, ValueError for a file that holds something else."""
    target = Path(path)
    entries = entries_of(recipe, built)
    if target.exists():
        known = json.loads(target.read_text(encoding="utf-8"))
        if not isinstance(known, list):
            raise ValueError(f"{path} is not a list of compile commands")
        ours = {entry["file"] for entry in entries}
        entries = [entry for entry in known if entry.get("file") not in ours] + entries
    text = json.dumps(entries, indent=1) + "\n"
    if not target.exists() or target.read_text(encoding="utf-8") != text:
        draft = target.with_name(f".{target.name}.{os.getpid()}")
        draft.write_text(text, encoding="utf-8")
        draft.replace(target)


def entries_of(recipe: Recipe, built: Built) -> list[dict[str, Any]]:
    """One entry for each source."""
    implicit = recipe.functions is not None and not recipe.arguments.get("no_implicit_headers")
    found = []
    for source in recipe.sources:
        of_cuda = source.endswith(CUDA)
        words = _words(built.commands, of_cuda)
        front = (
            ["-include", "torch/types.h" if of_cuda else "torch/extension.h"] if implicit else []
        )
        if of_cuda:
            home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
            for_gpu = [f"--cuda-gpu-arch=sm_{number}" for number in _architectures(built.commands)]
            words = ["clang++", "-x", "cuda", f"--cuda-path={home}", *for_gpu, *words]
            front += ["-include", "cuda_runtime.h"] if implicit else []
        else:
            words = ["c++", *words]
        found.append(
            {
                "directory": os.path.dirname(source),
                "file": source,
                "arguments": [*words, *front, "-c", source],
            }
        )
    return found


def _architectures(commands: list[str]) -> list[str]:
    """The first that is built for: clangd looks at one."""
    return re.findall(r"arch=compute_(\d+\w?)", " ".join(commands))[:1]


def _words(commands: list[str], of_cuda: bool) -> list[str]:
    """The folders, macros and standard of the command that compiles such a file."""
    for command in commands:
        words = shlex.split(command)
        if " -c " not in command or any("nvcc" in word for word in words[:2]) != of_cuda:
            continue
        kept = []
        for index, word in enumerate(words):
            if word in _TAKES_A_WORD:
                kept += words[index : index + 2]
            elif word.startswith((*_TAKES_A_WORD, "-std=")):
                kept.append(word)
        return kept
    return []
