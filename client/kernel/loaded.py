"""A kernel that is loaded for one GPU: its launcher, and what the driver knows of it."""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING, Any

from warmcc.client.kernel import driver as cuda
from warmcc.client.kernel import launcher
from warmcc.client.kernel.arguments import Arguments
from warmcc.client.kernel.driver import LaunchError, driver
from warmcc.client.kernel.launch_words import dims
from warmcc.client.kernel.signature import Signature

if TYPE_CHECKING:
    from warmcc.client.kernel import native

MANY = 50  # launches by Python, after which the others are native
_ALWAYS = 48 << 10  # bytes of shared memory that need no permission
_PORTABLE = 8  # blocks of a cluster that every GPU with clusters runs


class Loaded:
    """One kernel on one device. ``shared`` is the dynamic shared memory that it may take now, and
    ``launch`` Python's launcher. Raises LaunchError, SignatureError."""

    def __init__(
        self, image: bytes, name: str, lowered: str, signature: Signature, device: int,
        strided: frozenset[str], *, may_be_native: bool,
    ) -> None:  # fmt: skip
        import torch

        self._driver = driver()
        self._name = name
        self._device = device
        self._driver.enter(device)
        self._kernel = self._driver.load(image, name, lowered)
        self.count = len(signature.parameters)
        self.checks = Arguments(signature, device, strided)
        self.stream = torch._C._cuda_getCurrentRawStream
        self.shared = _ALWAYS - self._attribute(cuda.SHARED)
        self._attributes: dict[tuple[Any, bool], tuple[Any, int, int]] = {}
        sizes = launcher.sized(signature, self._driver.sizes(self._kernel))
        handle = launcher.Handle(self._kernel, self._driver.launches(), self._failed)
        self.launch = launcher.make(signature, sizes, self.checks, handle, device, strided)
        self._parts = (signature, sizes, handle, device, strided)
        self._left = MANY if may_be_native else sys.maxsize
        self._native: native.Native | None = None

    def native(self) -> native.Native | None:
        """Count a launch by Python, and give the native launcher, once it is there."""
        self._left -= 1
        if self._left < 0:
            from warmcc.client.kernel import native

            self._left = sys.maxsize
            native.when_there(self._become_native)
        return self._native

    def _become_native(self, module: Any) -> None:
        import torch

        from warmcc.client.kernel import native

        says = (torch._C._cuda_getDevice, self.stream)
        self._native = native.make(module, *self._parts, says)

    def _attribute(self, which: int) -> int:
        return self._driver.attribute(self._kernel, which, self._device)

    def attributes(self) -> dict[str, int]:
        return {name: self._attribute(which) for name, which in cuda.ATTRIBUTES.items()}

    def blocks_per_processor(self, threads: int, shared: int) -> int:
        if shared > self.shared:
            self.allow_shared(shared)
        return self._driver.blocks_per_processor(self._kernel, threads, shared)

    def allow_shared(self, size: int) -> None:
        """Let a launch take so many bytes of dynamic shared memory. Raises LaunchError."""
        try:
            self._driver.allow(self._kernel, cuda.MAX_DYNAMIC_SHARED, size, self._device)
        except LaunchError as error:
            import torch

            limit = getattr(
                torch.cuda.get_device_properties(self._device),
                "shared_memory_per_block_optin", 0,
            )  # fmt: skip
            static = self._attribute(cuda.SHARED)
            raise LaunchError(
                f"{self._name}: {size} bytes of dynamic shared memory beside {static} static ones "
                f"are more than a block may have on cuda:{self._device} ({limit}): {error}"
            ) from None
        self.shared = size

    def attributes_for(self, cluster: Any, cooperative: bool) -> tuple[int, int]:
        """The address and the number of a launch's attributes. Raises TypeError, ValueError."""
        sizes = None if cluster is None else dims(cluster, "cluster")
        key = (sizes, bool(cooperative))
        if key not in self._attributes:
            if sizes is not None and sizes[0] * sizes[1] * sizes[2] > _PORTABLE:
                self._driver.allow(self._kernel, cuda.NON_PORTABLE_CLUSTER, 1, self._device)
            buffer = cuda.launch_attributes(sizes, bool(cooperative))
            address = 0 if buffer is None else ctypes.addressof(buffer)
            size = 0 if buffer is None else len(buffer) // cuda.ATTRIBUTE_SIZE
            self._attributes[key] = (buffer, address, size)
        _, address, count = self._attributes[key]
        return address, count

    def _failed(
        self, code: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int,
        count: int, *, last: bool = False,
    ) -> None:  # fmt: skip
        """Make a second attempt possible, or raise LaunchError."""
        if not last and self._driver.has_no_context(code):
            self._driver.enter(self._device)
            return
        hints = []
        threads, most = bx * by * bz, self._attribute(cuda.MAX_THREADS)
        if threads > most:
            hints.append(f"a block has {threads} threads, and this kernel may have {most}")
        if not threads:
            hints.append("a block has no threads")
        if max(gy, gz) > 65535 or gx > 0x7FFFFFFF:
            hints.append("a grid has at most 2147483647 × 65535 × 65535 blocks")
        if count:
            hints.append(
                "a cooperative grid must fit on the GPU at once, and a grid must be a multiple of "
                "its clusters"
            )
        said = "; ".join(hints) or "an earlier kernel may have failed"
        raise LaunchError(
            f"{self._name} was not launched with grid ({gx}, {gy}, {gz}), block ({bx}, {by}, "
            f"{bz}), {shared} bytes of shared memory: {self._driver.said(code)} ({said})"
        )
