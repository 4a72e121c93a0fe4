"""A package that ``warmcc prebuild`` has written: a function for each variant of an extension.

``run_config_0``, ``run_config_1`` … are the variants, and ``variants`` has them by their names
(``variants["tile=64,stages=2"]``); calling one calls its function. ``metadata`` says how each was
built. A variant is checked and loaded when it is first called; importing this imports nothing.
"""

from __future__ import annotations

import _thread
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_PREFIX = "run_config_"
_loading = _thread.allocate_lock()


class Variant:
    """One variant. ``key`` is its name, ``parameters`` its values by name, and ``metadata`` says
    how it was built."""

    def __init__(self, metadata: dict[str, Any]) -> None:
        self.metadata = metadata
        self.key: str = metadata["key"]
        self.parameters: dict[str, Any] = metadata["parameters"]
        self._loaded: tuple[ModuleType, Any] | None = None

    def __call__(self, *given: Any, **named: Any) -> Any:
        return (self._loaded or self._load())[1](*given, **named)

    @property
    def function(self) -> Any:
        """The function that a call calls. Raises ImportError where it cannot be loaded here."""
        return (self._loaded or self._load())[1]

    @property
    def module(self) -> ModuleType:
        """The extension, with all of its functions. Raises ImportError."""
        return (self._loaded or self._load())[0]

    def _load(self) -> tuple[ModuleType, Any]:
        with _loading:  # of two threads one loads it
            loaded = self._loaded or self._checked()
            self._loaded = loaded
        return loaded

    def _checked(self) -> tuple[ModuleType, Any]:
        import importlib.machinery
        import importlib.util

        module, path = self.metadata["module"], os.path.join(_FOLDER, self.metadata["file"])
        if problem := _problem() or self._damage(path):
            raise ImportError(f"{__name__}: {self.key} cannot be loaded: {problem}")
        loader = importlib.machinery.ExtensionFileLoader(module, path)
        spec = importlib.util.spec_from_file_location(module, path, loader=loader)
        assert spec is not None
        made = importlib.util.module_from_spec(spec)
        loader.exec_module(made)
        entry = _read()["entry"]
        if not hasattr(made, entry):
            raise ImportError(
                f"{__name__}: {self.key} has no function {entry!r}; build the package with another "
                "entry: warmcc prebuild"
            )
        return made, getattr(made, entry)

    def _damage(self, path: str) -> str:
        import hashlib

        try:
            with open(path, "rb") as file:
                found = hashlib.sha256(file.read()).hexdigest()
        except OSError as error:
            return f"{path}: {error.strerror}; install the package again"
        is_same = found == self.metadata["digest"]
        return "" if is_same else f"{path} is damaged; install the package again"

    def __repr__(self) -> str:
        return f"<variant {self.key} of {__name__}>"


def _problem() -> str:
    """Why nothing of the package can be loaded in this process."""
    import importlib.machinery
    import platform

    needs, advice = _read()["needs"], "build the package again for it: warmcc prebuild"
    abi = importlib.machinery.EXTENSION_SUFFIXES[0]
    if (abi, platform.machine()) != (needs["abi"], needs["machine"]):
        return (
            f"it was built for Python {needs['abi']} on {needs['machine']}, and this one is {abi} "
            f"on {platform.machine()}; {advice}"
        )
    try:
        import torch
        import torch.version as version
    except ImportError as error:
        return f"it needs torch {needs['torch']}: {error}"
    there = (needs["torch"], needs["torch_git"], needs["cuda"], needs["cxx11_abi"])
    here = (
        str(torch.__version__), str(version.git_version or ""), str(version.cuda or ""),
        bool(torch._C._GLIBCXX_USE_CXX11_ABI),
    )  # fmt: skip
    if here == there:
        return ""
    shown = [f"torch {one[0]}" for one in (there, here)]
    if shown[0] == shown[1]:
        shown = [f"torch {one[0]} ({one[1][:8]}, CUDA {one[2]})" for one in (there, here)]
    return f"it was built for {shown[0]}, and this is {shown[1]}; {advice}"


def _read() -> dict[str, Any]:
    """The metadata, which is read once."""
    known = globals()
    if "metadata" not in known:
        import json

        with open(os.path.join(_FOLDER, "metadata.json"), encoding="utf-8") as file:
            known["metadata"] = json.load(file)
    found: dict[str, Any] = known["metadata"]
    return found


def _all() -> dict[str, Variant]:
    """The variants by their keys, which are made once."""
    known = globals()
    with _loading:  # of two threads one makes them
        if "variants" not in known:
            made = {one["key"]: Variant(one) for one in _read()["variants"]}
            for variant in made.values():
                known[f"{_PREFIX}{variant.metadata['number']}"] = variant
            known["variants"] = made
    found: dict[str, Variant] = known["variants"]
    return found


def __getattr__(name: str) -> Any:
    if name == "metadata":
        return _read()
    if name == "variants" or (name.startswith(_PREFIX) and "variants" not in globals()):
        _all()
        if name in globals():
            return globals()[name]
    if name == "__all__":
        return __dir__()
    if name.startswith(_PREFIX):
        failed = [one for one in _read()["failed"] if f"{_PREFIX}{one['number']}" == name]
        if failed:
            raise AttributeError(f"{__name__}.{name} ({failed[0]['key']}) did not build")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    numbers = [one["number"] for one in _read()["variants"]]
    return ["metadata", "variants", *(f"{_PREFIX}{number}" for number in numbers)]
