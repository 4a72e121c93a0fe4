"""What a daemon that runs for months keeps stays within bounds."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.calls import interpreter, request
from warmcc.daemon.cuda.warm import host_pch
from warmcc.daemon.cuda.warm.start import Starter
from warmcc.daemon.pch import matching, pch, plugin, profiles
from warmcc.daemon.pch.plugin import Plugins
from warmcc.daemon.plan import requested
from warmcc.daemon.system import bounds
from warmcc.daemon.system.background import Background
from warmcc.daemon.system.bounds import OTHER, REASONS, Reasons, forget_oldest, prune, write_kept
from warmcc.daemon.system.counters import Counters
from warmcc.daemon.system.runner import Runner
from warmcc.daemon.toolchain import Toolchain, Toolchains

MONTH = 31 * 86400.0


def test_reasons_are_counted_and_bounded() -> None:
    reasons = Counters().declined
    for number in range(3 * REASONS):
        reasons[f"reason {number}"] += 1
        reasons["reason 7"] += 1
    assert len(reasons) == REASONS + 1
    assert (reasons["reason 7"], reasons[OTHER], sum(reasons.values())) == (301, 200, 600)
    assert all(
        isinstance(one, Reasons) for one in vars(Counters()).values() if not isinstance(one, int)
    )


def test_texts_of_the_user_are_in_no_reason() -> None:
    reasons = Reasons()
    for number in range(5):
        reasons[f"No space left on device (/home/me/.cache/warmcc/store/staging/1-{number})"] += 1
        reasons[f"unsupported flags: -DKEY=secret{number}\nsecret"] += 1
        reasons["x" * 5000] += 1
    assert dict(reasons) == {
        "No space left on device (…)": 5, "unsupported flags: -DKEY=…": 5, "x" * 200: 5,
    }  # fmt: skip


def test_the_oldest_is_forgotten() -> None:
    kept = dict.fromkeys(range(5))
    forget_oldest(kept, 3)
    assert list(kept) == [3, 4]


def test_nothing_is_left_of_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "lean.json").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_kept(tmp_path / "lean.json", "{}")
    assert [path.name for path in tmp_path.iterdir()] == ["lean.json"]


def aged(folder: Path, ages: dict[str, float]) -> Path:
    for name, age in ages.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "file").write_text(name)
        os.utime(folder / name, (time.time() - age,) * 2)
    return folder


def test_what_was_not_used_for_long_goes(tmp_path: Path) -> None:
    folder = aged(
        tmp_path / "kept", {"used": 2 * MONTH, "new": 0.0, "last week": 7 * 86400.0, "old": MONTH}
    )
    assert prune(folder, "*", [folder / "used"]) == [folder / "old"]
    assert sorted(path.name for path in folder.iterdir()) == ["last week", "new", "used"]


def test_the_last_used_ones_stay(tmp_path: Path) -> None:
    folder = aged(
        tmp_path / "kept", {str(day): day * 86400.0 for day in range(1, 21)} | {"used": MONTH}
    )
    (folder / "link").symlink_to("/tmp")
    os.utime(folder / "link", (time.time() - MONTH,) * 2, follow_symlinks=False)
    prune(folder, "*", [folder / "used"])
    assert {path.name for path in folder.iterdir()} == {
        *map(str, range(1, bounds.KEPT + 1)),
        "used",
    }
    prune(folder / "nowhere", "*", [])


def test_what_cannot_be_removed_is_tried_again(tmp_path: Path) -> None:
    folder = aged(tmp_path / "kept", {"some": 0.0})
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        bounds.remove(folder)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert folder.exists(), "it could be removed without a descriptor"
    (tmp_path / "file").touch()
    bounds.remove(tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def toolchain() -> Toolchain:
    environment = requested.build_environment(request())
    return asyncio.run(Toolchains().identify(environment, "c++", interpreter()))


def test_overlays_of_torches_that_are_gone_go(tmp_path: Path, toolchain: Toolchain) -> None:
    """But for those that stand in front of torch's headers in a level that runs."""
    overlays = aged(tmp_path / "overlays", dict.fromkeys(("unused", "of a level"), MONTH))
    unused: Any = None
    with contextlib.closing(Runner()) as runner:
        starter = Starter(tmp_path, runner, 1 << 30, 60.0, unused)
        level: Any = SimpleNamespace(front=[str(overlays / "of a level")])
        profile: Any = SimpleNamespace(levels=[level])
        starter.profiles = lambda: [profile]
        made = asyncio.run(starter.overlays.get(toolchain))
        assert sorted(overlays.iterdir()) == sorted([made, overlays / "of a level"])
        os.utime(made, (time.time() - MONTH,) * 2)
        assert asyncio.run(starter.overlays.get(toolchain)) == made
        assert time.time() - made.stat().st_mtime < MONTH / 2, "it counts as used"


def test_preludes_of_hosts_that_are_in_use_stay(tmp_path: Path) -> None:
    """Units without torch have many small ones; those of torch are older, and serve."""
    names = [f"{number:02}" for number in range(host_pch.KEPT + 3)]
    for age, name in enumerate(reversed(names)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "profile").touch()
        os.utime(tmp_path / name / "profile", (time.time() - age,) * 2)
    unused: Any = None
    hosts = host_pch.Hosts(tmp_path, unused, unused, steps=unused, timeout=1.0, in_use=set)
    hosts._prune({tmp_path / "00"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00", *names[3:]]
    (tmp_path / "begun by a daemon that was killed").mkdir()
    hosts.open()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00", *names[3:]]


def test_plugins_of_compilers_that_are_gone_go(
    tmp_path: Path, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "finish.cc"  # which makes a plugin fast to compile
    source.write_text(
        'int plugin_is_GPL_compatible; extern "C" int plugin_init(void*, void*) { return 0; }\n'
    )
    monkeypatch.setattr(plugin, "SOURCE", source)

    async def tried(*_: Any) -> tuple[list[str], list[str]]:
        return [], []

    monkeypatch.setattr(Plugins, "_options", tried)
    root = aged(tmp_path / "plugins", {"unused": MONTH, "last week": 7 * 86400.0})
    with contextlib.closing(Runner()) as runner:
        finish = asyncio.run(Plugins(root, runner).finish(toolchain, []))
        assert finish is not None
        made = finish.plugin.parent
        assert sorted(root.iterdir()) == sorted([made, root / "last week"])
        os.utime(made, (time.time() - MONTH,) * 2)
        asyncio.run(Plugins(root, runner).finish(toolchain, []))
        assert time.time() - made.stat().st_mtime < MONTH / 2, "it counts as used"


def test_a_plugin_is_made_once_for_all_who_ask(
    tmp_path: Path, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []

    async def make(self: Plugins, _: Toolchain) -> pch.Finish:
        made.append(tmp_path / f"{len(made)}.so")
        await asyncio.sleep(0)
        made[-1].touch()
        return pch.Finish([f"-fplugin={made[-1]}"], "", [])

    async def several(plugins: Plugins) -> list[pch.Finish | None]:
        return await asyncio.gather(*(plugins.finish(toolchain, []) for _ in range(4)))

    monkeypatch.setattr(Plugins, "_make", make)
    with contextlib.closing(Runner()) as runner:
        plugins = Plugins(tmp_path, runner)
        assert len({found.plugin for found in asyncio.run(several(plugins)) if found}) == 1
        made[0].unlink()
        assert asyncio.run(plugins.finish(toolchain, [])), "again, once it is gone"
    assert len(made) == 2


def test_profiles_that_could_not_be_built_are_forgotten(
    tmp_path: Path, toolchain: Toolchain
) -> None:
    async def many() -> int:
        builder: Any = pch.PchBuilder(tmp_path, None, None, ninja_path="", timeout=1.0)  # type: ignore[arg-type]
        made = profiles.Profiles(
            builder,
            builder,
            root=tmp_path / "gone",
            size_limit=0,
            background=Background(),
            finisher=None,
        )
        wanted = matching.Wanted(toolchain, [], [], {}, {})
        for number in range(3 * profiles._FAILED):
            made.prewarm(wanted, (f"header{number}.h",))  # no folder can be made for any of them
            await made.built()
        assert {one.state for one in made.by_id.values()} == {pch.State.FAILED}
        return len(made.by_id)

    assert asyncio.run(many()) == profiles._FAILED + 1
