"""``%load_ext warmcc``, then ``%%warmcc``: a notebook's cell in C++ or CUDA becomes functions."""

from __future__ import annotations

import argparse
import shlex
import types
from typing import Any, NoReturn

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, magics_class

from warmcc.client.integrations.cell_functions import defined
from warmcc.client.live.build import build
from warmcc.client.live.recipe import Recipe
from warmcc.client.live.reload.versions import Versions
from warmcc.client.live.report.readable import readable
from warmcc.errors import CompileError


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}\n{self.format_usage()}")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="%%warmcc", add_help=False)
    parser.add_argument("name", nargs="?", default="cell", help="the extension's name")
    parser.add_argument("--cuda", action="store_true", help="the cell is CUDA")
    parser.add_argument(
        "--functions",
        default="",
        metavar="F,G",
        help="functions to bind (default: all that the cell defines)",
    )
    parser.add_argument(
        "--cflags", default="", metavar="'-O3 …'", help="flags for the C++ compiler"
    )
    parser.add_argument("--cuda-cflags", default="", metavar="'…'", help="flags for nvcc")
    parser.add_argument("--ldflags", default="", metavar="'…'", help="flags for the linker")
    return parser


class CellError(CompileError):
    """A cell that does not build.
    The notebook shows what the compiler said, in the cell's lines, and no traceback."""

    def _render_traceback_(self) -> list[str]:
        return [readable(self)]


@magics_class
class WarmccMagics(Magics):
    """The magic ``%%warmcc``."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self._shell = shell
        self._versions: dict[str, Versions] = {}

    @cell_magic
    def warmcc(self, line: str, cell: str) -> None:
        """Build the cell and put its functions into the notebook; running it again replaces them.
        ``%%warmcc [name] [--cuda] [--functions F,G] [--cflags '…'] [--cuda-cflags '…']
        [--ldflags '…']``

        Build the cell and put its functions into the notebook. Running it again replaces them.
        """
        asked = _parser().parse_args(shlex.split(line))
        if not asked.name.isidentifier():
            raise UsageError(f"invalid extension name: {asked.name!r}")
        functions = asked.functions.split(",") if asked.functions else defined(cell)
        binds_itself = "PYBIND11_MODULE" in cell
        if not functions and not binds_itself:
            raise UsageError(
                "the cell defines no function that can be bound; name one with --functions"
            )
        recipe = self._recipe(asked, cell, [] if binds_itself else functions)
        import torch  # noqa: F401  (its libraries must be there before the extension's)

        try:
            built = build(recipe)
        except CompileError as error:
            raise CellError(str(error), error.diagnostics) from None
        versions = self._versions.setdefault(asked.name, Versions(asked.name, keep=0))
        module = versions.add(built, is_module=True).module
        assert module is not None
        self._shell.user_ns[asked.name] = module
        self._shell.user_ns.update(
            {
                name: value
                for name, value in vars(module).items()
                if isinstance(value, types.BuiltinFunctionType)
            }
        )

    @staticmethod
    def _recipe(asked: Any, cell: str, functions: list[str]) -> Recipe:
        """The cell as a source whose lines are the notebook's: the magic stands in its first."""
        place = f"{asked.name}{'.cu' if asked.cuda else '.cpp'}"
        flags = {
            "extra_cflags": asked.cflags,
            "extra_cuda_cflags": asked.cuda_cflags,
            "extra_ldflags": asked.ldflags,
        }
        arguments = {key: shlex.split(text) for key, text in flags.items() if text}
        return Recipe(asked.name, (place,), tuple(functions), arguments, texts={place: f"\n{cell}"})


def load_ipython_extension(ipython: Any) -> None:
    """Called by ``%load_ext warmcc``."""
    ipython.register_magics(WarmccMagics)
