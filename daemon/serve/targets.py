"""What the daemon warms up for: a language, a Python and an environment."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.machinery
import importlib.util
import os
import sys
from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import Literal

import msgspec

from warmcc import digest, status
from warmcc.daemon.plan import requested
from warmcc.daemon.toolchain import Toolchain, cuda
from warmcc.request import KEYED_ENVIRONMENT, PASSED_ENVIRONMENT, Interpreter, Request, one_name

NAME = "warmcc_prewarm"
_CUDA_SOURCE = "__global__ void nothing() {}\n"
_COUNTED = 1000  # environments whose requests are counted
_LEARNED = 4  # targets that requests may add: each takes minutes of a processor
_SOURCE = f"at::Tensor {NAME}(at::Tensor x) {{ return x; }}\n"


class State(Enum):
    """How far a target is."""

    WAITING = "waiting"
    WARMING = "warming up"
    WARM = "warm"
    FAILED = "failed"


@dataclasses.dataclass
class Target:
    """Something to warm up for, and how far it is."""

    language: Literal["C++", "CUDA"]
    interpreter: Interpreter
    environment: dict[str, str]
    learned: bool
    state: State = State.WAITING
    why_failed: str = ""
    compiler: str = ""
    serves: str = ""  # the key of the requests that it serves, once their toolchain is known
    # What most calls need is there, and the next target may begin.
    mostly_warm: asyncio.Event = dataclasses.field(
        default_factory=asyncio.Event, compare=False, repr=False
    )

    def request(self, flags: str = "") -> Request:
        """A request as it will come from there."""
        return Request(
            call="load_inline", name=NAME, module_name=NAME, interpreter=self.interpreter,
            environment=self.environment, extra_cflags=flags.split(), cpp_sources=[_SOURCE],
            functions=[NAME], cuda_sources=[_CUDA_SOURCE] if self.language == "CUDA" else [],
            extra_cuda_cflags=flags.split() if self.language == "CUDA" else [],
        )  # fmt: skip

    def key(self, toolchain: Toolchain) -> str:
        """What tells it apart: all that the units which extensions share are kept under.
        Workers with a GPU each are one target."""
        cpp = [
            self.interpreter,
            toolchain.digest,
            requested.compile_environment(self.request(), nvcc=False),
        ]
        if self.language == "C++" or toolchain.cuda is None:
            return digest.of_value([self.language, *cpp])
        variables = requested.compile_environment(self.request(), nvcc=True)
        architectures = self.environment.get("TORCH_CUDA_ARCH_LIST")
        return digest.of_value(
            [self.language, *cpp, toolchain.cuda.digest, variables, architectures]
        )

    def unlike(self, other: Target) -> str:
        """Why what is warm here does not serve the requests of ``other``."""
        if self.interpreter.executable != other.interpreter.executable:
            return f"its callers use another Python: {other.interpreter.executable}"
        if self.interpreter != other.interpreter:
            return f"its callers use another torch: {other.interpreter.torch_dir}"
        ours, theirs = (
            requested.keyed_environment(self.request()),
            requested.keyed_environment(other.request()),
        )
        if names := sorted(
            name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)
        ):
            return (
                f"its callers' environment has another {names[0]}: {theirs.get(names[0], 'none')}"
            )
        if self.compiler != other.compiler:
            return f"its callers use another compiler: {other.compiler}"
        return "a compiler or torch has changed since"

    def has_nvcc(self) -> bool:
        return cuda.nvcc(self.environment) is not None

    def report(self, served: int, last: Target | None) -> status.Target:
        """A row of ``warmcc status``.
        ``served`` is how many requests it served, ``last`` what the last one needed."""
        unused = self.state is State.WARM and not served and last is not None
        state = self.state.value + (f": {self.why_failed}" if self.why_failed else "")
        return status.Target(
            self.language, self.interpreter.executable, self.compiler,
            requested.keyed_environment(self.request()), self.learned, state, served,
            self.unlike(last) if unused and last is not None else "",
        )  # fmt: skip


def own() -> list[Target]:
    """The Python and the environment that this daemon runs on, if it has torch."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return []
    interpreter = Interpreter(
        one_name(sys.executable),
        importlib.machinery.EXTENSION_SUFFIXES[0],
        os.path.dirname(spec.origin),
    )
    known = (*KEYED_ENVIRONMENT, *PASSED_ENVIRONMENT)
    environment = {name: os.environ[name] for name in known if name in os.environ}
    return [
        Target("C++", interpreter, environment, False),
        Target("CUDA", interpreter, environment, False),
    ]


def of(request: Request) -> list[Target]:
    """The targets that would have served a request."""
    interpreter = msgspec.structs.replace(request.interpreter, torch_loaded=None)
    targets = [Target("C++", interpreter, request.environment, True)]
    if requested.with_cuda(request):
        targets.append(Target("CUDA", interpreter, request.environment, True))
    return targets


class Targets:
    """All targets, and what requests needed; ``on_new`` is called with what they add."""

    def __init__(self, on_new: Callable[[Target], None]) -> None:
        self._on_new = on_new
        self._known: set[str] = set()
        self._asked: Counter[str] = Counter()
        self._last: dict[str, Target] = {}  # what the last request of each language needed
        self.all: list[Target] = []

    def saw(self, request: Request, toolchain: Toolchain) -> None:
        """After a request that had to be built, warm up for the next one from its environment."""
        if request.name == NAME or request.call == "compile":  # with flags of setuptools'
            return
        for target in of(request):
            key = target.serves = target.key(toolchain)
            target.compiler = toolchain.version
            self._last[target.language] = target
            if key in self._asked or len(self._asked) < _COUNTED:
                self._asked[key] += 1
            if key not in self._known and sum(known.learned for known in self.all) < _LEARNED:
                self._known.add(key)
                self._on_new(target)

    def identified(self, target: Target, toolchain: Toolchain) -> None:
        """The toolchain of a target is known: requests that it serves need no other."""
        target.compiler = toolchain.version
        target.serves = target.key(toolchain)
        self._known.add(target.serves)

    def report(self) -> list[status.Target]:
        """One row for each target, for ``warmcc status``."""
        return [
            one.report(self._asked[one.serves], self._last.get(one.language)) for one in self.all
        ]
