"""What a live extension is built from: files, and the arguments with which they are built.

With ``functions``, files are inline sources as ``load_inline`` takes them, with stock's headers in
front and the functions bound; without, they are the sources of a ``load`` and bind themselves.
Either is built as often as the files change.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from warmcc.client.calls import api
from warmcc.client.calls import arguments as args
from warmcc.errors import RequestError
from warmcc.protocol import Diagnostic
from warmcc.request import Request

CUDA = (".cu", ".cuh")
_QUOTED = re.compile(r"^[ \t]*#[ \t]*include[ \t]*\"", re.M)
_PLACE = re.compile(r"\b(cpp_sources|cuda_sources)\[(\d+)\](?=[:(])")
_BINDS_ITSELF = re.compile(
    r"\b(?:PYBIND11_MODULE|NB_MODULE|PyMODINIT_FUNC|PyInit_\w+|TORCH_EXTENSION_NAME)\b"
)


@dataclass(frozen=True)
class Recipe:
    """``sources`` are absolute paths.
    ``arguments`` are those of ``load`` or ``load_inline`` beyond name, sources and functions."""

    name: str
    sources: tuple[str, ...]
    functions: tuple[str, ...] | None
    arguments: Mapping[str, Any]
    texts: Mapping[str, str] = field(default_factory=dict)  # in place of what is in files

    @classmethod
    def of(
        cls, name: str, sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        functions: str | Sequence[str] | None, arguments: Mapping[str, Any],
    ) -> Recipe:  # fmt: skip
        """Make a recipe.
        Raises TypeError for an unknown argument, RequestError for sources that cannot be
        built."""
        listed = [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)
        paths = tuple(os.path.abspath(path) for path in listed)
        if not paths:
            raise RequestError("no sources to watch")
        call = api.load if functions is None else api.load_inline
        known = set(inspect.signature(call).parameters) - {
            "name", "sources", "functions", "cpp_sources", "cuda_sources", "sycl_sources",
            "build_directory", "newer", "verbose", "is_standalone",
        }  # fmt: skip
        if unknown := [key for key in arguments if key not in known]:
            raise TypeError(
                f"a live extension takes no argument {unknown[0]!r}; it takes "
                f"{', '.join(sorted(known))}"
            )
        names = (
            (functions,)
            if isinstance(functions, str)
            else None
            if functions is None
            else tuple(functions)
        )
        return cls(name, paths, names, arguments)

    def with_text(self, path: str, text: str) -> Recipe:
        """The recipe with the text of a file that is not saved yet.
        Sources that bind themselves are compiled as units of their own: this one alone
        then, as a library. Raises RequestError."""
        if path not in self.sources:
            raise RequestError(f"{path} is not one of the sources")
        if self.functions is not None:
            return replace(self, texts={**self.texts, path: text})
        known = {
            name: self.arguments[name] for name in self.arguments if name != "is_python_module"
        }
        alone = {**known, "no_implicit_headers": True, "is_python_module": False}
        return replace(self, sources=(path,), functions=(), arguments=alone, texts={path: text})

    def _text(self, path: str) -> str:
        return self.texts[path] if path in self.texts else Path(path).read_text(encoding="utf-8")

    def request(self) -> Request:
        """The request for the files as they are now.
        Raises OSError, UnicodeDecodeError, RequestError."""
        given: dict[str, Any] = {"name": self.name, "build_directory": None}
        if self.functions is None:
            for path in self.sources:
                with open(path, "rb"):
                    pass
            given["sources"] = list(self.sources)
            call: Any = api.load
            given["is_python_module"] = self.is_module()
        else:
            texts = {path: self._text(path) for path in self.sources}
            plain = [text for path, text in texts.items() if not path.endswith(CUDA)]
            of_cuda = [text for path, text in texts.items() if path.endswith(CUDA)]
            given["cpp_sources"] = plain or [self._declarations("\n".join(of_cuda))]
            given |= {"cuda_sources": of_cuda, "functions": list(self.functions) or None}
            call = api.load_inline
        defaults = {
            name: parameter.default
            for name, parameter in inspect.signature(call).parameters.items()
            if parameter.default is not inspect.Parameter.empty
        }
        try:
            request = args.to_request(call.__name__, {**defaults, **given, **self.arguments})
        except args.NotCarried as error:
            raise RequestError(
                f"a live extension cannot be built with this argument: {error}"
            ) from None
        if any(_QUOTED.search(text) for text in (*request.cpp_sources, *request.cuda_sources)):
            # What is included in quotes is looked for beside the files, as it is without
            # functions=.
            beside = list(dict.fromkeys(os.path.dirname(path) for path in self.sources))
            request = msgspec.structs.replace(
                request, extra_include_paths=[*beside, *request.extra_include_paths]
            )
        return request

    def is_module(self) -> bool:
        """Whether Python imports what is built. Files without a binding are built as a library."""
        if "is_python_module" in self.arguments:
            return bool(self.arguments["is_python_module"])
        return self.functions is not None or any(
            _BINDS_ITSELF.search(Path(path).read_text(encoding="utf-8", errors="replace"))
            for path in self.sources
        )

    def _declarations(self, text: str) -> str:
        """What the binding needs to know of functions that are defined in CUDA files only."""
        found = []
        for name in self.functions or ():
            match = re.search(
                rf"^[ \t]*((?:[\w:<>,&*]+[ \t\n]+)+?{re.escape(name)}\s*\([^;{{}}]*\))\s*\{{",
                text,
                re.M,
            )
            if match is None:
                files = ", ".join(os.path.basename(path) for path in self.sources)
                raise RequestError(
                    f"{files} does not define {name}(); add a .cpp file that declares it"
                )
            found.append(f"{match[1]};")
        return "\n".join(found)

    # ------------------------------------------------------------------ in terms of files

    def _parts(self) -> dict[str, str]:
        """Stock's words for inline sources, and the files that they are."""
        of_cuda = [path for path in self.sources if path.endswith(CUDA)]
        plain = [path for path in self.sources if not path.endswith(CUDA)]
        named = {f"cpp_sources[{index}]": path for index, path in enumerate(plain)}
        return named | {f"cuda_sources[{index}]": path for index, path in enumerate(of_cuda)}

    def in_files(self, text: str) -> str:
        """A compiler's text with the paths of files in place of ``cuda_sources[0]``."""
        parts = self._parts()
        return (
            text
            if self.functions is None
            else _PLACE.sub(lambda match: parts.get(match[0], match[0]), text)
        )

    def of_files(self, diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
        parts = {} if self.functions is None else self._parts()
        return tuple(
            msgspec.structs.replace(one, file=parts.get(one.file, one.file)) for one in diagnostics
        )
