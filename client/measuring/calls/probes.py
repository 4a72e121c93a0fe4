"""Empty functions with the types of the arguments, bound in each way: what a binding costs alone.

They are built by the daemon as any extension, and kept by their content: the next measurement with
the same types finds them. None gives anything back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from warmcc.errors import WarmccError

_SOURCE = """
{includes}
void {name}({parameters}) {{}}
"""
_PYBIND11 = """
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{
  m.def("{name}", torch::wrap_pybind_function({name}), "");
}}
"""
# ``reach`` calls the operator without Python, and gives seconds per call
_OPERATOR = """
#include <chrono>
TORCH_LIBRARY_FRAGMENT(warmcc_probes, m) {{
  m.def("{name}({schema}) -> ()");
  m.impl("{name}", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN({name}));
}}
double reach({parameters}{comma}int64_t calls) {{
  static auto op = c10::Dispatcher::singleton()
      .findSchemaOrThrow("warmcc_probes::{name}", "")
      .typed<void({types})>();
  const auto began = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < calls; ++i) op.call({names});
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  return took.count() / double(calls);
}}
"""
_CALLS = 2000  # of one call of ``reach``


_IN_OURS = b"warmcc_init"  # the entry point of the casters' unit (daemon/native/casters.cc)


class NoProbe(Exception):
    """Why there are no empty functions for these arguments."""


def kind(value: Any, torch: Any) -> tuple[str, str]:
    """The type of an argument in C++ and in an operator's schema. Raises NoProbe."""
    if isinstance(value, torch.Tensor):
        return "at::Tensor", "Tensor"
    for python, names in (
        (bool, ("bool", "bool")), (int, ("int64_t", "int")), (float, ("double", "float")),
        (str, ("const std::string&", "str")),
    ):  # fmt: skip
        if isinstance(value, python):
            return names
    if isinstance(value, (list, tuple)) and value:
        if all(isinstance(one, torch.Tensor) for one in value):
            return "std::vector<at::Tensor>", "Tensor[]"
        if all(type(one) is int for one in value):
            return "std::vector<int64_t>", "int[]"
    raise NoProbe(f"an argument of type {type(value).__name__} has no empty functions")


class Probes:
    """The empty functions for some arguments; ``notes`` say which is missing, and why.
    Raises NoProbe, WarmccError."""

    def __init__(self, arguments: Sequence[Any], keywords: Mapping[str, Any], torch: Any) -> None:
        if keywords:
            raise NoProbe("empty functions take no keyword arguments")
        kinds = [kind(value, torch) for value in arguments]
        types = [one for one, _ in kinds]
        digest = hashlib.sha256(repr(kinds).encode()).hexdigest()[:8]
        name = f"nothing_{digest}"
        viewed = [_VIEWS.get(one, one) for one in types]  # as an operator's kernel takes them
        self._torch, self.name = torch, name
        self._types, self._arguments = types, arguments
        self.notes: list[str] = []
        self.ours = self._ours(name, types)
        self.pybind11 = self._build("pybind11", name, types, _PYBIND11.format(name=name))
        schema = ", ".join(f"{one} a{number}" for number, (_, one) in enumerate(kinds))
        operator = _OPERATOR.format(
            name=name, schema=schema, parameters=_declared(types), types=", ".join(viewed),
            comma=", " if kinds else "", names=", ".join(f"a{n}" for n in range(len(kinds))),
        )  # fmt: skip
        self._reach = self._build("operator", name, viewed, operator, functions=["reach"])

    def functions(self) -> dict[str, Any]:
        """By the name of the binding."""
        operator = getattr(self._torch.ops.warmcc_probes, self.name)
        found = {"pybind11": getattr(self.pybind11, self.name), "torch.ops": operator.default}
        if self.ours is not None:
            found["warmcc"] = getattr(self.ours, self.name)
        return found

    def kernel(self) -> Any:
        """An empty kernel for these arguments, launched as often as one that is launched natively;
        None where there is none, which is noted."""
        from warmcc.client.kernel import loaded, native
        from warmcc.client.kernel.kernel import kernel

        if odd := [one for one in self._types if one not in _OF_KERNELS]:
            self.notes.append(f"no row of warmcc.kernel: no kernel takes {odd[0]}")
            return None
        declared = _declared([_OF_KERNELS[one] for one in self._types])
        source = f"__global__ void {self.name}({declared}) {{}}\n"
        tensors = [f"a{n}" for n, one in enumerate(self._types) if one == "at::Tensor"]
        try:
            made = kernel(source, grid=1, block=1, strided=tensors)
            made(*self._arguments)
            native.module()
            for _ in range(loaded.MANY):
                made(*self._arguments)
        except (TypeError, ValueError, WarmccError) as error:  # as for a tensor on the processor
            self.notes.append(f"no row of warmcc.kernel: {str(error).partition(chr(10))[0]}")
            return None
        return made

    def reach(self, arguments: Sequence[Any]) -> float:
        """Seconds in which the dispatcher reaches an empty operator, without Python."""
        seconds: float = self._reach.reach(*arguments, _CALLS)
        return seconds

    def _ours(self, name: str, types: Sequence[str]) -> Any:
        """The module with warmcc's binding; None where there is none, which is noted.
        Raises WarmccError."""
        reason = "the daemon is not warm yet, and pybind11 would bind it: wait with `warmcc warm`"
        if _is_warm():
            module = self._build("ours", name, types, functions=[name])
            if _IN_OURS in Path(module.__file__).read_bytes():
                return module
            reason = "pybind11 has bound it; `warmcc status` tells why"
        self.notes.append(f"no row of warmcc's binding: {reason}")
        return None

    def _build(
        self, binding: str, name: str, types: Sequence[str], text: str = "", **given: Any
    ) -> Any:
        """Raises WarmccError."""
        from warmcc.client.calls.api import load_inline

        includes = "#include <torch/library.h>" if binding == "operator" else ""
        source = _SOURCE.format(includes=includes, name=name, parameters=_declared(types)) + text
        try:
            return load_inline(f"warmcc_{name}_{binding}", source, **given)
        except WarmccError:
            raise
        except RuntimeError as error:  # stock torch's, where no daemon builds
            raise WarmccError(str(error)) from None


def _is_warm() -> bool:
    """Raises DaemonError."""
    from warmcc.client.connection.session import Session
    from warmcc.protocol import Status

    with Session(autostart=True) as session:
        status = session.ask(Status).data
    ready = any(profile["state"] == "ready" for profile in status["profiles"])
    return ready and not status["prewarming"]


_VIEWS = {
    "std::vector<at::Tensor>": "at::TensorList", "std::vector<int64_t>": "at::IntArrayRef",
    "const std::string&": "c10::string_view", "at::Tensor": "const at::Tensor&",
}  # fmt: skip


_OF_KERNELS = {
    "at::Tensor": "const void*", "bool": "bool", "int64_t": "long long", "double": "double",
}  # fmt: skip


def _declared(types: Sequence[str]) -> str:
    return ", ".join(f"{one} a{number}" for number, one in enumerate(types))
