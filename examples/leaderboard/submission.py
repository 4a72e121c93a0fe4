"""What users send in, and what they get back."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SIZE = 256 << 10  # bytes of a source
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_FLAGS = re.compile(r"// (flags|ldflags):(.*)")


class Refused(Exception):
    """A submission that is not evaluated, and why."""


@dataclass(frozen=True)
class Submission:
    """One source of a user. ``language`` is ``cpp`` or ``cuda``; ``flags`` and ``ldflags`` are for
    the compiler and the linker. The daemon decides which of these it accepts."""

    user: str
    name: str
    source: str
    language: str = "cpp"
    flags: list[str] = field(default_factory=list)
    ldflags: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for what, text in (("user", self.user), ("name", self.name)):
            if not isinstance(text, str) or not _NAME.fullmatch(text):
                raise Refused(f"the {what} must be 1 to 64 letters, digits, '-' or '_'")
        if self.language not in ("cpp", "cuda"):
            raise Refused("the language must be cpp or cuda")
        if len(self.source) > SIZE:
            raise Refused(f"the source is larger than {SIZE >> 10} KiB")

    @property
    def extension(self) -> str:
        """The name to build it under: that of its content, so that the same text is built once."""
        content = json.dumps([self.language, self.source, self.flags, self.ldflags])
        return f"s{hashlib.sha256(content.encode()).hexdigest()[:24]}"


@dataclass
class Report:
    """What became of a submission.

    ``status`` is one of

    - ``compiled``: a bundle was made, and it has not run
    - ``passed``, ``wrong``: it ran, and its results were right, or not
    - ``compile error``, ``refused``: it was not built; ``log`` says why
    - ``time limit``, ``memory limit``, ``process limit``, ``output limit``, ``size limit``,
      ``crashed``: it was stopped while it was built or ran, or ended by itself
    - ``failed``: the evaluator could not do its work, so this says nothing of the submission

    ``tests`` has ``{"name", "passed", "detail"}`` for each test that ran. ``seconds`` is the time
    of one call as measured in the process of the submission, which can forge it;
    ``seconds_outside`` is a bound that it cannot go below (see ``run.py``).
    """

    user: str
    name: str
    status: str
    log: str = ""
    diagnostics: list[dict[str, Any]] = field(default_factory=list)
    tests: list[dict[str, Any]] = field(default_factory=list)
    seconds: float | None = None
    seconds_outside: float | None = None
    output: str = ""

    def line(self) -> str:
        return json.dumps(dataclasses.asdict(self))


def read(path: Path, user: str) -> Submission:
    """A submission from a file, ``NAME.cpp`` or ``NAME.cu``. Its first lines may name flags:
    ``// flags: -O3 -DN=4``, ``// ldflags: -lm``. Raises Refused, OSError."""
    given: dict[str, list[str]] = {"flags": [], "ldflags": []}
    # A link, a pipe or a device in a folder that users write to is not opened as a source
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Refused("the source is not a file")
        data = file.read(SIZE + 1)
    source = data.decode(errors="replace")
    for line in source.splitlines():
        if not (found := _FLAGS.fullmatch(line)):
            break
        given[found[1]] += found[2].split()
    language = "cuda" if path.suffix == ".cu" else "cpp"
    return Submission(user, path.stem, source, language, **given)


def in_folder(folder: Path) -> Iterator[Submission | Report]:
    """The submissions of ``FOLDER/USER/NAME.cpp`` and ``.cu``; a report for each that cannot be
    read. Raises OSError for the folder itself."""
    for user in sorted(one for one in folder.iterdir() if one.is_dir() and not one.is_symlink()):
        for path in sorted([*user.glob("*.cpp"), *user.glob("*.cu")]):
            yield _read_or_refused(path, user.name)


def _read_or_refused(path: Path, user: str) -> Submission | Report:
    try:
        return read(path, user)
    except (Refused, OSError) as error:
        said = error.strerror if isinstance(error, OSError) else error
        return Report(user, path.stem, "refused", log=str(said))
