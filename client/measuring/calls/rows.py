"""The rows of one measurement: the call as it is typed, and what it is made of."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from warmcc.client.measuring.calls.clock import Row
from warmcc.client.measuring.calls.probes import NoProbe, Probes
from warmcc.errors import WarmccError

# In the order of the table
ORDER = (
    "python", "pybind11", "warmcc", "torch.ops", "dispatcher", "allocation", "launch",
    "warmcc.kernel", "synchronise", "call", "call, no_grad", "call, inference_mode",
    "call, with grad", "call, synchronised",
)  # fmt: skip
_EMPTY: tuple[Any, ...] = (
    lambda: None, lambda _a: None, lambda _a, _b: None, lambda _a, _b, _c: None,
    lambda _a, _b, _c, _d: None, lambda _a, _b, _c, _d, _e: None,
)  # fmt: skip


class Rows:
    """``made`` are the rows, ``notes`` say which are missing and why, ``device`` is the one of the
    arguments or results. The function is called once. Raises what it raises."""

    def __init__(
        self, function: Any, arguments: Sequence[Any], keywords: Mapping[str, Any], torch: Any
    ) -> None:
        self._function, self._arguments, self._keywords = function, arguments, keywords
        self._torch = torch
        self.made: list[Row] = []
        self.notes: list[str] = []
        inputs = _tensors([*arguments, *keywords.values()], torch)
        results = _tensors([function(*arguments, **keywords)], torch)
        self.cuda = any(one.is_cuda for one in (*inputs, *results))
        self.device = torch.cuda.get_device_name() if self.cuda else "cpu"
        self._settle = torch.cuda.synchronize if self.cuda else None
        self._add_empty()
        self._add_work(inputs, results)
        self._add_calls(inputs)

    def ordered(self) -> list[Row]:
        """The rows in the order of the table."""
        return sorted(self.made, key=lambda row: ORDER.index(row.name))

    def mark(self, name: str) -> contextlib.AbstractContextManager[Any]:
        """An NVTX range, which Nsight Systems shows."""
        if not self.cuda:
            return contextlib.nullcontext()
        found: contextlib.AbstractContextManager[Any] = self._torch.cuda.nvtx.range(name)
        return found

    def add_probes(self) -> None:
        """Rows of empty functions with the same arguments."""
        try:
            probes = Probes(self._arguments, self._keywords, self._torch)
        except (NoProbe, WarmccError) as reason:
            self.notes.append(f"no rows of bindings: {str(reason).partition(chr(10))[0]}")
            return
        if self.cuda:
            self._add_kernel(probes)
        self.notes += probes.notes
        for name, function in probes.functions().items():
            about = f"an empty function with these arguments, bound by {name}"
            self.made.append(Row(name, about, function, self._arguments))
        self.made.append(
            Row(
                "dispatcher", "the dispatcher reaches an empty operator, without Python",
                probes.reach, [self._arguments], measured=lambda: probes.reach(self._arguments),
            )
        )  # fmt: skip

    def _add_kernel(self, probes: Probes) -> None:
        if (launch := probes.kernel()) is not None:
            about = "an empty kernel with these arguments, by warmcc.kernel"
            self.made.append(
                Row("warmcc.kernel", about, launch, self._arguments, settle=self._settle)
            )

    def _add_empty(self) -> None:
        count = len(self._arguments)
        if self._keywords or count >= len(_EMPTY):
            function: Any = lambda *_, **__: None  # noqa: E731
        else:
            function = _EMPTY[count]
        about = "an empty function of Python with these arguments"
        self.made.append(Row("python", about, function, self._arguments, self._keywords))

    def _add_work(self, inputs: list[Any], results: list[Any]) -> None:
        """What a function does besides computing."""
        torch = self._torch
        dense = [one.detach() for one in results if one.layout == torch.strided]
        held = [one for one in inputs if one.layout == torch.strided]
        known = {one.untyped_storage().data_ptr() for one in held}
        new = [one for one in dense if one.untyped_storage().data_ptr() not in known]
        if new:
            about = f"torch.empty_like for {len(new)} results"

            def allocate() -> None:
                for one in new:
                    torch.empty_like(one)

            self.made.append(
                Row("allocation", about, allocate if len(new) > 1 else torch.empty_like,
                    [] if len(new) > 1 else new, settle=self._settle)
            )  # fmt: skip
        if self.cuda:
            self.made += [
                Row("launch", "a kernel that does nothing (torch.cuda._sleep)", torch.cuda._sleep,
                    [1], settle=self._settle),
                Row("synchronise", "torch.cuda.synchronize with nothing to wait for",
                    torch.cuda.synchronize),
            ]  # fmt: skip

    def _add_calls(self, inputs: list[Any]) -> None:
        torch = self._torch
        self._add("call", "the call, as it is typed")
        self._add("call, no_grad", "the same under torch.no_grad", around=torch.no_grad)
        self._add(
            "call, inference_mode", "the same under torch.inference_mode",
            around=torch.inference_mode,
        )  # fmt: skip
        if any(one.is_floating_point() for one in inputs):
            arguments = [_with_grad(one, torch) for one in self._arguments]
            keywords = {name: _with_grad(one, torch) for name, one in self._keywords.items()}
            about = "the same with tensors that require a gradient"
            self.made.append(
                Row("call, with grad", about, self._function, arguments, keywords,
                    settle=self._settle)
            )  # fmt: skip
        if self.cuda:
            function, synchronize = self._function, torch.cuda.synchronize

            def wait(*arguments: Any, **keywords: Any) -> None:
                function(*arguments, **keywords)
                synchronize()

            self.made.append(
                Row("call, synchronised", "the same, until the GPU has done it", wait,
                    self._arguments, self._keywords)
            )  # fmt: skip

    def _add(self, name: str, about: str, **given: Any) -> None:
        self.made.append(
            Row(name, about, self._function, self._arguments, self._keywords,
                settle=self._settle, **given)
        )  # fmt: skip


def _tensors(values: Sequence[Any], torch: Any) -> list[Any]:
    """The tensors among values and in their lists."""
    found = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += _tensors(value, torch)
    return found


def _with_grad(value: Any, torch: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if not value.is_floating_point():
            return value
        return value.detach().clone(memory_format=torch.preserve_format).requires_grad_(True)
    if isinstance(value, (list, tuple)):
        return type(value)(_with_grad(one, torch) for one in value)
    return value
