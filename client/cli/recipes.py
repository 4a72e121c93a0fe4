"""The arguments that name an extension on the command line: its files, its functions, its flags."""

from __future__ import annotations

import argparse
import os
import re
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warmcc.client.live.recipe import Recipe

_LISTS = {"cflags": "extra_cflags", "cuda_cflags": "extra_cuda_cflags", "ldflags": "extra_ldflags"}


def add_arguments(
    parser: argparse.ArgumentParser, sources: str = "C++ and CUDA sources of one extension"
) -> None:
    """``sources`` says what the words are that stand for files."""
    parser.add_argument("sources", nargs="+", metavar="FILE", help=sources)
    parser.add_argument("--name", help="its name (default: that of the first file)")
    parser.add_argument(
        "--functions",
        metavar="F,G",
        help="functions to bind, as load_inline does (default: the sources bind them)",
    )
    parser.add_argument(
        "--cflags", default="", metavar="'-O3 …'", help="flags for the C++ compiler"
    )
    parser.add_argument("--cuda-cflags", default="", metavar="'…'", help="flags for nvcc")
    parser.add_argument("--ldflags", default="", metavar="'…'", help="flags for the linker")
    parser.add_argument(
        "-I", dest="include", action="append", default=[], metavar="DIR", help="folder of headers"
    )
    parser.add_argument(
        "--no-implicit-headers",
        action="store_true",
        help="with --functions: do not include torch's headers",
    )


def recipe(arguments: argparse.Namespace) -> Recipe:
    """Raises RequestError."""
    from warmcc.client.live.recipe import Recipe

    stem = os.path.splitext(os.path.basename(arguments.sources[0]))[0]
    given: dict[str, object] = {
        key: shlex.split(getattr(arguments, name)) for name, key in _LISTS.items()
    }
    given["extra_include_paths"] = arguments.include
    functions = arguments.functions.split(",") if arguments.functions else None
    if functions is not None and arguments.no_implicit_headers:
        given["no_implicit_headers"] = True
    return Recipe.of(
        arguments.name or re.sub(r"\W", "_", stem), arguments.sources, functions, given
    )
