"""Write the package: ``__init__.py`` (in_package.py), ``metadata.json``, and the shared objects."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from warmcc.client.prebuild import in_package
from warmcc.client.prebuild.draft import Draft, replacing
from warmcc.client.prebuild.plan import FORMAT, Job, Plan
from warmcc.errors import PrebuildError
from warmcc.version import __version__

METADATA = "metadata.json"
_COMMON = ("machine", "abi", "torch", "torch_git", "cuda", "cxx11_abi")
_FLAGS = (
    "extra_cflags", "extra_cuda_cflags", "extra_ldflags", "extra_include_paths", "functions",
    "architectures", "no_implicit_headers", "with_cuda", "with_pytorch_error_handling",
)  # fmt: skip
_OF_BUILD = ("digest", "artifact", "outcome", "seconds", "steps", "kernels")


def check_target(target: Path) -> None:
    """Raises PrebuildError for a folder that a package must not replace."""
    is_free = not os.path.lexists(target)
    is_package = target.is_dir() and not target.is_symlink() and (target / METADATA).is_file()
    if not is_free and not is_package:
        raise PrebuildError(
            f"{target} exists, and is no package of variants; remove it, or choose another output"
        )


def write(
    plan: Plan, records: Mapping[int, dict[str, Any]], failed: Mapping[int, str], draft: Draft,
    target: Path,
) -> dict[str, Any]:  # fmt: skip
    """Write the package of what was built, in the place of an older one; gives its metadata.
    Raises PrebuildError, OSError."""
    check_target(target)
    built = [job for job in plan.jobs if job.number in records]
    metadata: dict[str, Any] = {
        "format": FORMAT, "made_by": f"warmcc {__version__}", "name": plan.name,
        "version": plan.version, "entry": plan.entry, "needs": _needs(built, records),
        "toolchain": _toolchain(records),
        "variants": [_variant(job, records[job.number]) for job in built],
        "failed": [
            {**_shown(job), "error": failed[job.number]}
            for job in plan.jobs if job.number in failed
        ],
    }  # fmt: skip
    with replacing(target, draft.folder) as folder:
        (folder / "objects").mkdir()
        for one in metadata["variants"]:
            data = draft.results.get(one["digest"])
            if data is None:
                raise PrebuildError(
                    f"the object of {one['key']!r} in {draft.folder} was damaged meanwhile; run it "
                    "again"
                )
            (folder / one["file"]).write_bytes(data)
        (folder / "__init__.py").write_bytes(Path(in_package.__file__).read_bytes())
        text = json.dumps(metadata, indent=1, ensure_ascii=False)
        (folder / METADATA).write_text(text + "\n", encoding="utf-8")
    return metadata


def _shown(job: Job) -> dict[str, Any]:
    return {"number": job.number, "key": job.key, "parameters": job.parameters}


def _variant(job: Job, record: dict[str, Any]) -> dict[str, Any]:
    given = {name: job.arguments[name] for name in _FLAGS if job.arguments.get(name)}
    return {
        **_shown(job), "module": job.module, "file": f"objects/{job.module}.so", "source": job.id,
        "arguments": given, **{name: record[name] for name in _OF_BUILD},
        "architectures": record["needs"]["architectures"],
    }  # fmt: skip


def _needs(built: list[Job], records: Mapping[int, dict[str, Any]]) -> dict[str, Any]:
    """What the package needs of the process that loads it: all variants the same. Raises
    PrebuildError."""
    found: dict[str, Any] = {}
    for job in built:
        needs = {name: records[job.number]["needs"][name] for name in _COMMON}
        if found and needs != found:
            name = next(name for name in _COMMON if needs[name] != found[name])
            raise PrebuildError(
                f"variant {job.key!r} was built for another {name} ({needs[name]}) than the first "
                f"({found[name]}); give all workers the same Python and torch"
            )
        found = needs
    return found


def _toolchain(records: Mapping[int, dict[str, Any]]) -> dict[str, list[str]]:
    """The compilers; of workers that have different ones, all."""
    found: dict[str, set[str]] = {}
    for record in records.values():
        for name, version in record["toolchain"].items():
            found.setdefault(name, set()).add(version)
    return {name: sorted(versions) for name, versions in sorted(found.items())}
