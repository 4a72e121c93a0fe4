"""Staging folders, and disks that are full, read-only or forbidden: a clear error, and nothing half
done.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.shelf import GIB, Bench, key
from warmcc.daemon.closure.closure import Closure
from warmcc.daemon.store import Store
from warmcc.errors import DaemonError


def test_staging(bench: Bench) -> None:
    one, other = bench.store.staging(), bench.store.staging()
    assert one != other and one.is_dir() and one.stat().st_mode & 0o777 == 0o700
    (one / "deep/er").mkdir(parents=True)
    bench.again()  # this process is alive, so its folders stay
    assert one.exists()
    for wrong in (bench.store.root, bench.store.root / "objects", bench.folder, one / "deep"):
        with pytest.raises(ValueError, match="not a staging folder"):
            bench.store.discard(wrong)
    bench.store.discard(one)
    assert not one.exists() and other.exists()
    # a process id comes back, its start time does not
    os.rename(other, other.with_name(f"{os.getpid()}-1-abc"))
    (bench.store.root / "staging" / "stray").touch()
    bench.again()
    assert list((bench.store.root / "staging").iterdir()) == []


def test_a_store_that_was_removed_comes_back(bench: Bench) -> None:
    bench.publish("toy")
    shutil.rmtree(bench.store.root)
    assert bench.find("toy") is None
    assert bench.store.entries() == []
    bench.publish("toy")
    assert bench.find("toy") == b"toy"
    assert bench.store.root.stat().st_mode & 0o777 == 0o700
    assert bench.store.staging().is_dir()
    assert bench.store.verify() == {"checked": 2, "ok": 2, "damaged": 0, "removed": 0}


def test_a_root_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for root in (tmp_path / "file", tmp_path / "file/store", Path("/proc/store")):
        with pytest.raises(DaemonError, match=r"cannot be written|not a folder"):
            Store(root, GIB)
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(DaemonError, match="open to others"):
        Store(tmp_path / "open", GIB)


def as_plain_user(program: str) -> None:
    """Run ``program(folder)`` in a child without root's rights, in a folder of its own; it must not
    raise.
    """
    folder = Path("/tmp") / f"warmcc-store-{os.getpid()}-{time.monotonic_ns()}"
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            folder.mkdir(mode=0o700)
            globals()[program](folder)
            status = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(status)
    try:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        for path in folder.rglob("*"):
            if path.is_dir():
                path.chmod(0o700)
        shutil.rmtree(folder)


def unwritable_root(folder: Path) -> None:
    root = folder / "store"
    Store(root, GIB)
    root.chmod(0o500)
    (root / "staging").chmod(0o500)
    with pytest.raises(
        DaemonError, match=r"cannot be written: Permission denied\nSet WARMCC_CACHE_DIR"
    ):
        Store(root, GIB)
    (folder / "no").mkdir(mode=0o500)
    with pytest.raises(DaemonError, match="cannot be written"):
        Store(folder / "no/store", GIB)


def unwritable_folders(folder: Path) -> None:
    bench = Bench(folder)
    bench.publish("before")
    before = bench.files()
    for name in ("artifacts", "results/artifact", "staging"):
        (bench.store.root / name).chmod(0o500)
        with pytest.raises(PermissionError):
            bench.publish("toy")
        (bench.store.root / name).chmod(0o700)
        assert bench.files() == before
        assert list((bench.store.root / "staging").iterdir()) == []
    for path in bench.store.root.rglob("*"):  # a store that became read-only still serves
        path.chmod(0o500)
    assert bench.find("before") == b"before"
    assert usage_is_true_by_counting(bench)


def unreadable_file(folder: Path) -> None:
    bench = Bench(folder)
    _, path = bench.publish("toy")
    path.chmod(0)
    assert bench.find("toy") is None
    bench.publish("toy")
    bench.manifest("toy").chmod(0)
    assert bench.find("toy") is None
    assert bench.store.quarantined == 2


def file_too_large(folder: Path) -> None:
    import resource

    bench = Bench(folder)
    bench.publish("before")
    before = bench.files()
    usage = bench.store.usage()
    (folder / "made").write_bytes(b"x" * 100_000)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
    tree = bench.store.staging()
    with pytest.raises(OSError, match="File too large"):
        bench.store.publish("artifact", key("toy"), folder / "made", "toy.so", Closure(), {})
    with pytest.raises(OSError, match="File too large"):
        bench.store.put_headers(b"x" * 60_000)
    (folder / "made").write_bytes(b"y" * 1000)  # the file fits, its manifest does not
    with pytest.raises(OSError, match="File too large"):
        bench.store.publish(
            "artifact", key("toy"), folder / "made", "toy.so", Closure(), {"text": "x" * 60_000}
        )
    bench.store.discard(tree)
    assert bench.files() == before
    assert list((bench.store.root / "staging").iterdir()) == []
    assert bench.store.usage() == usage
    assert bench.find("before") == b"before"


def usage_is_true_by_counting(bench: Bench) -> bool:
    return int(bench.store.usage()["bytes"]) == sum(path.stat().st_size for path in bench.files())


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning"
)  # of fork beside threads: the child starts none
@pytest.mark.parametrize(
    "program", ["unwritable_root", "unwritable_folders", "unreadable_file", "file_too_large"]
)
def test_refusals_of_the_disk(program: str) -> None:
    as_plain_user(program)


FULL_DISK = """if True:
    import os, sys
    from pathlib import Path
    from warmcc import digest
    from warmcc.daemon.closure.closure import Closure, Closures
    from warmcc.daemon.closure.header_watch import HeaderWatch
    from warmcc.daemon.store import Store

    disk, made = Path(sys.argv[1]), Path(sys.argv[2])
    store = Store(disk / "store", 1 << 30, grace=0.0)
    closures = Closures(store, HeaderWatch(store.get_headers))
    names = [digest.of_bytes(b"%d" % number) for number in range(200)]
    tree = store.staging()
    (tree / "object").write_bytes(b"in the tree")
    published, failed = [], 0
    for number, name in enumerate(names):
        made.write_bytes(os.urandom(20_000))
        try:
            store.publish("unit", name, made, "", Closure(), {})
            published.append(name)
        except OSError as error:
            assert error.errno == 28, error
            failed += 1
    assert published and failed
    assert [name for name in names if store.find("unit", name, closures)] == published
    assert [path.name for path in (disk / "store/staging").iterdir()] == [tree.name]
    store.discard(tree)
    assert store.verify() == {"checked": 2 * len(published), "ok": 2 * len(published),
                              "damaged": 0, "removed": 0}
    assert store.usage()["objects"]["count"] == len(published)
    assert store.clear()["bytes"] == 0
    store.publish("unit", names[0], made, "", Closure(), {})
"""


def test_a_full_disk(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    command = 'mount -t tmpfs -o size=1m,mode=700 tmpfs "$1" || exit 77; shift; exec "$@"'
    try:
        done = subprocess.run(
            ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", command, "sh",
                str(tmp_path / "disk"),
             sys.executable, "-c", FULL_DISK, str(tmp_path / "disk"), str(tmp_path / "made")],
            capture_output=True, text=True,
        )  # fmt: skip
    except FileNotFoundError:
        pytest.skip("no unshare here")
    if done.returncode == 77 or "unshare:" in done.stderr:
        pytest.skip(f"no filesystem of its own for a test here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr


def test_what_cannot_be_removed_from_staging_goes_later(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy whose content is there already is not needed; that it cannot be removed is no reason
    to fail.
    """
    real = os.unlink

    def fails(path: str | Path, **more: Any) -> None:
        if "/staging/" in str(path):
            raise PermissionError(errno.EACCES, "not now", str(path))
        real(path, **more)

    bench.publish("one", b"the same")
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", fails)
        patch.setattr(Path, "unlink", fails)
        bench.publish("two", b"the same")
    assert bench.find("two") == b"the same"
    bench.store.discard(
        bench.store.staging()
    )  # the next one that removes anything removes what was left
    assert list((bench.store.root / "staging").iterdir()) == []
