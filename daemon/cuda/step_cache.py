"""Steps of CUDA units that are kept by what they read: PTX by the text that a front end compiled,
machine code by PTX.

One more architecture, or an edit of host code that leaves the PTX as it was, does not have the
others made again.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec

from warmcc import digest
from warmcc.daemon.closure.closure import Closure, Closures
from warmcc.daemon.store import Store

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[str, bytes]).decode


class StepCache:
    """Finds and keeps the files that steps wrote; ``found`` counts by program. All methods block,
    and belong in a thread."""

    def __init__(self, store: Store, closures: Closures) -> None:
        self._store = store
        self._closures = closures
        self.found: Counter[str] = Counter()

    @staticmethod
    def key(words: list[str], read: list[Path], *identity: str) -> str:
        """Of a step that runs these words and reads these files; ``identity`` is what else goes in.
        Raises OSError.
        """
        return digest.of_value(["step", words, [digest.of_file(path) for path in read], *identity])

    def find(self, key: str, folder: Path, program: str) -> bool:
        """Put what the step wrote into a folder, if it is known. Raises OSError."""
        found = self._store.find("step", key, self._closures)
        if found is None:
            return False
        for name, content in _decode(found[1].read_bytes()).items():
            (folder / name).write_bytes(content)
        self.found[program] += 1
        return True

    def keep(self, new: dict[str, dict[str, bytes]], folder: Path, maker: str) -> None:
        """Keep what steps wrote: contents by name, by key. ``folder`` is for scratch. Raises
        OSError.
        """
        packed = folder / "step"
        for key, files in new.items():
            packed.write_bytes(_encode(files))
            self._store.publish("step", key, packed, "", Closure.union([]), {"makers": [maker]})
