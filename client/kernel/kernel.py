"""``warmcc.kernel``: a CUDA kernel without torch's C++, to be called with tensors and numbers."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from warmcc.client.kernel import c_types, requests, signature
from warmcc.client.kernel.launch_words import dims, stream_handle
from warmcc.client.kernel.signature import Signature, SignatureError, choose

if TYPE_CHECKING:
    from warmcc.client.kernel.compiling import Compiled
    from warmcc.client.kernel.loaded import Loaded
    from warmcc.client.kernel.native import Native

Codes = dict[tuple[Any, ...], "tuple[dict[str, Compiled], dict[int, Loaded]]"]
_MOST_OTHERS = 256
Dims = int | Sequence[int]
Grid = Dims | Callable[..., Dims]


def kernel(
    source: str | os.PathLike[str], name: str | None = None, *, grid: Grid | None = None,
    block: Dims | None = None, cluster: Dims | None = None, shared: int = 0,
    cooperative: bool = False, constants: Mapping[str, Any] | None = None,
    options: Iterable[str] = (), include_dirs: Iterable[str | os.PathLike[str]] = (),
    arch: str | None = None, compiler: Literal["nvrtc", "nvcc"] = "nvrtc",
    signature: str | None = None, strided: Iterable[str] = (),
) -> CudaKernel:  # fmt: skip
    """A CUDA kernel from its source, without torch's headers.

    ``source`` is the text, or a ``pathlib.Path`` of a file. ``name`` is a kernel in it (it may be
    left out if there is one only), or a name expression of a template: ``"add<float, 4>"``.
    ``grid``, ``block`` and ``cluster`` are a number or up to three, and the defaults of each call;
    ``grid`` may be a function of the kernel's arguments. ``shared`` is dynamic shared memory in
    bytes. ``constants`` become macros (``-DNAME=value``), ``options`` go to the compiler.

    ``arch`` is like ``"sm_90"``, by default that of the current GPU with all its features
    (``sm_90a``); ``compute_90`` gives PTX. ``signature`` is the kernel's declaration, where its
    definition is in a header or behind macros. ``strided`` names the pointers whose tensors need
    not be contiguous.

    Nothing is compiled before the first call (or ``compile``). Raises SignatureError (a ValueError)
    for a kernel that the source does not have, TypeError, RequestError.
    """
    text, path = requests.text(source)
    chosen, bound = choose(text, name, signature)
    unknown = set(strided) - {one.name for one in chosen.parameters}
    if isinstance(strided, str) or unknown:
        raise SignatureError(
            f"strided: {chosen.name} has no parameter {sorted(unknown or strided)}"
        )
    if compiler not in ("nvrtc", "nvcc"):
        raise ValueError(f"compiler is 'nvrtc' or 'nvcc', not {compiler!r}")
    settings = {
        "grid": grid, "block": block, "cluster": cluster, "shared": shared,
        "cooperative": cooperative,
    }  # fmt: skip
    if isinstance(options, str) or isinstance(include_dirs, (str, os.PathLike)):
        raise TypeError("options and include_dirs are lists of strings")
    build: dict[str, Any] = {
        "constants": dict(constants or {}), "options": list(options),
        "include_dirs": list(include_dirs), "arch": arch, "compiler": compiler,
    }  # fmt: skip
    requests.defines(build["constants"])
    return CudaKernel(text, path, chosen, bound, frozenset(strided), settings, build)


def _import_loading() -> None:
    """What a call needs after the daemon's answer; a hit takes some ten milliseconds."""
    import warmcc.client.kernel.loaded  # noqa: F401


class CudaKernel:
    """A kernel to call: ``k(x, y, n, grid=…, block=…)``, or ``k[grid, block](x, y, n)``.

    Arguments are checked against the kernel's signature: tensors of torch on the current GPU (or
    objects of DLPack or ``__cuda_array_interface__``), addresses (int), None (a null pointer),
    numbers. Each call may name ``grid``, ``block``, ``cluster``, ``shared``, ``cooperative`` and
    ``stream`` (default: torch's current one). The launch does not wait. A grid of 0 launches
    nothing. A type of a template that is not named is that of the first tensor whose pointer has
    it.

    Raises TypeError and ValueError for arguments, LaunchError (a WarmccError) for what the driver
    refuses; at the first call also what ``compile`` raises.
    """

    def __init__(
        self, text: str, path: str | None, chosen: Signature, bound: dict[str, str],
        strided: frozenset[str], settings: dict[str, Any], build: dict[str, Any],
        codes: Codes | None = None,
    ) -> None:  # fmt: skip
        self._text = text
        self._path = path
        self._signature = chosen
        self._bound = bound
        self._strided = strided
        self._build = build
        # Shared by all kernels that are made from this one: by architecture, and by device
        self._codes: Codes = {} if codes is None else codes
        which = (*sorted(bound.items()), None, *sorted(map(str, build["constants"].items())))
        self._compiled, self._loaded = self._codes.setdefault(which, ({}, {}))
        self._device: Callable[[], int] = self._first_device
        self._others: dict[object, CudaKernel] = {}  # those with other defaults, by [grid, block]
        self.__name__ = chosen.name
        self._set(settings)
        # Types of the template that the tensors of a call tell: which of them does
        self._told = signature.told_by_arguments(chosen, bound)
        self._deduced: dict[tuple[object, ...], CudaKernel] = {}  # shared with _with's
        self._chosen: dict[tuple[object, ...], CudaKernel] = {}  # the same, with these defaults

    def _set(self, settings: dict[str, Any]) -> None:
        """Take the defaults of a launch. Raises TypeError, ValueError."""
        self._settings = settings
        self._grid, self._shared = settings["grid"], settings["shared"]
        self._block = None if settings["block"] is None else dims(settings["block"], "block")
        self._plain = settings["cluster"] is None and not settings["cooperative"]
        # What launches a plain call on the device of the last one, or None: Python does
        self._native: Native | None = None

    def __repr__(self) -> str:
        bound = "".join(f" with {name} = {value}" for name, value in self._bound.items())
        return f"<warmcc kernel {self._signature}{bound}>"

    @property
    def expression(self) -> str:
        """The name expression: ``add``, or ``add<float, 4>``.
        Raises SignatureError where arguments of its template are missing."""
        return signature.expression(self._signature, self._bound)

    @property
    def signature(self) -> Signature:
        """Its parameters with their types. Raises SignatureError."""
        _ = self.expression
        return self._signature.bound(self._bound)

    def specialize(self, **values: Any) -> CudaKernel:
        """The same kernel with these arguments of its template, or constants (``-DNAME=value``).
        A type is written as C++ has it, or as a dtype: ``k.specialize(T=torch.float32, N=4)``.
        Raises TypeError."""
        own = {one.name for one in self._signature.templates}
        bound = {
            name: requests.literal(value) for name, value in values.items() if name in own
        }  # fmt: skip
        constants = {name: value for name, value in values.items() if name not in own}
        requests.defines(constants)
        build = {**self._build, "constants": {**self._build["constants"], **constants}}
        return self._like({**self._bound, **bound}, self._settings, build)

    def _like(
        self, bound: dict[str, str], settings: dict[str, Any], build: dict[str, Any]
    ) -> CudaKernel:
        return CudaKernel(
            self._text, self._path, self._signature, bound, self._strided, settings, build,
            self._codes,
        )  # fmt: skip

    def __getitem__(self, launch: Any) -> CudaKernel:
        """The same kernel with ``[grid, block]``, or ``[grid, block, shared]``, as defaults."""
        try:
            return self._others[launch]
        except (KeyError, TypeError):
            pass
        words = launch if isinstance(launch, tuple) else (launch,)
        if not 2 <= len(words) <= 3:
            raise TypeError(f"{self.__name__}[grid, block] or [grid, block, shared] is expected")
        other = self._with(dict(zip(("grid", "block", "shared"), words, strict=False)))
        if not callable(words[0]):  # a function is a new one each time
            if len(self._others) >= _MOST_OTHERS:
                self._others.clear()
            with contextlib.suppress(TypeError):
                self._others[launch] = other
        return other

    def _with(self, settings: dict[str, Any]) -> CudaKernel:
        """The same kernel, with what it has compiled and loaded, and other defaults."""
        other = object.__new__(CudaKernel)
        other.__dict__.update(self.__dict__)
        other._set({**self._settings, **settings})
        other._native = self._native if other._plain else None
        other._chosen, other._others = {}, {}
        return other

    # ------------------------------------------------------------------ compiling

    def compile(self, arch: str | None = None) -> Compiled:
        """Compile now, without a GPU if an architecture is named.
        Raises CompileError (with ``diagnostics``), SignatureError, RequestError, WarmccError."""
        from warmcc.client.kernel import compiling

        arch = arch or self._build["arch"] or requests.architecture()
        known = self._compiled.get(arch)
        if known is None:
            request = self._request(arch)
            known = self._compiled[arch] = compiling.compiled(request, _import_loading)
        return known

    def _request(self, arch: str) -> Any:
        build = self._build
        return requests.request(
            self._text, self._path, self._signature.name, build["compiler"],
            options=[*requests.defines(build["constants"]), *build["options"]],
            include_dirs=build["include_dirs"], names=[self.expression], arch=arch,
        )  # fmt: skip

    def _prepared(self, device: int) -> Loaded:
        arch = self._build["arch"] or requests.architecture()
        compiled = self.compile(arch)
        from warmcc.client.kernel import loaded

        one = loaded.Loaded(
            compiled.image, self.expression, compiled.names[self.expression],
            self.signature, device, self._strided, may_be_native=bool(compiled.path),
        )  # fmt: skip
        self._loaded[device] = one
        return one

    def _first_device(self) -> int:
        """The current device, once CUDA is started in torch."""
        import torch

        found: int = torch.cuda.current_device()
        self._device = torch._C._cuda_getDevice
        return found

    # ------------------------------------------------------------------ calling

    def __call__(
        self, *args: Any, grid: Grid | None = None, block: Dims | None = None,
        cluster: Dims | None = None, shared: int | None = None, cooperative: bool | None = None,
        stream: Any = None,
    ) -> None:  # fmt: skip
        """Launch it. The class says with what."""
        native = self._native
        if native is not None and stream is cluster is cooperative is None:
            native(
                self, args, self._grid if grid is None else grid,
                self._block if block is None else block,
                self._shared if shared is None else shared,
            )  # fmt: skip
        elif self._told:
            self._for(args)(
                *args, grid=grid, block=block, cluster=cluster, shared=shared,
                cooperative=cooperative, stream=stream,
            )  # fmt: skip
        else:
            self._launch(args, grid, block, shared, cluster, cooperative, stream)

    def _launch(
        self, args: tuple[Any, ...], grid: Any, block: Any, shared: int | None,
        cluster: Any = None, cooperative: bool | None = None, stream: Any = None,
    ) -> None:  # fmt: skip
        """Launch it with Python's launcher, which knows all, unless the native one is new here."""
        device = self._device()
        one = self._loaded.get(device) or self._prepared(device)
        wanted: Any = self._grid if grid is None else grid
        if callable(wanted):
            if len(args) != one.count:
                raise one.checks.count(args)
            wanted = wanted(*args)
        if block is None:
            block = self._block
        if shared is None:
            shared = self._shared
        if shared > one.shared:
            one.allow_shared(shared)
        attributes = count = 0
        if not self._plain or cluster is not None or cooperative is not None:
            settings = self._settings
            attributes, count = one.attributes_for(
                settings["cluster"] if cluster is None else cluster,
                settings["cooperative"] if cooperative is None else cooperative,
            )
        elif (native := one.native()) is not self._native:
            self._native = native
            self(*args, grid=wanted, block=block, shared=shared, stream=stream)
            return
        handle = one.stream(device) if stream is None else stream_handle(stream)
        one.launch(args, wanted, block, shared, handle, attributes, count)

    def _for(self, args: tuple[Any, ...]) -> CudaKernel:
        """The kernel for the dtypes of the tensors in these arguments. Raises TypeError."""
        key = tuple(
            getattr(args[index], "dtype", None) if index < len(args) else None
            for index in self._told.values()
        )
        found = self._chosen.get(key)
        if found is None:
            if key not in self._deduced:
                self._deduced[key] = self.specialize(**self._types(key))
            found = self._chosen[key] = self._deduced[key]._with(self._settings)
        return found

    def _types(self, dtypes: tuple[object, ...]) -> dict[str, object]:
        """The types of the template that tensors with these dtypes tell. Raises TypeError."""
        types = dict(zip(self._told, dtypes, strict=True))
        for name, dtype in types.items():
            if str(dtype) not in c_types.OF_DTYPES:
                raise TypeError(
                    f"{self._signature}: {name} is told by argument {self._told[name] + 1}, "
                    f"which is no tensor with a type of C++; say specialize({name}=...)"
                )
        return types

    @property
    def attributes(self) -> dict[str, int]:
        """What it takes on the current GPU: ``registers`` of a thread, bytes of ``shared``,
        ``local`` and ``const`` memory, ``max_threads`` of a block, ``architecture``."""
        device = self._device()
        return (self._loaded.get(device) or self._prepared(device)).attributes()

    def blocks_per_processor(self, block: Dims | None = None, shared: int = 0) -> int:
        """How many of its blocks one multiprocessor holds at a time; a cooperative launch may have
        as many for each."""
        device = self._device()
        one = self._loaded.get(device) or self._prepared(device)
        bx, by, bz = dims(self._settings["block"] if block is None else block, "block")
        return one.blocks_per_processor(bx * by * bz, shared)

    def as_torch_op(self, name: str, *, mutates: Iterable[str] | None = None, **launch: Any) -> Any:
        """Register it with torch as the operator ``name`` (``"ns::name"``), so that it works under
        ``torch.compile``; the operator is returned, and is ``torch.ops.ns.name`` too.

        ``mutates`` names the tensors that the kernel writes (default: all pointers that are not
        const); ``launch`` is what a call takes: ``grid``, ``block``. Raises SignatureError,
        ValueError, and what torch raises for the name.
        """
        from warmcc.client.kernel import torch_op

        unknown = set(launch) - set(self._settings)
        if unknown:
            raise TypeError(f"as_torch_op() takes no argument {sorted(unknown)[0]!r}")
        return torch_op.register(self._with(launch), name, mutates)
