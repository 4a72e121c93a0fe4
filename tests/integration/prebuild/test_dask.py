"""Two workers of Dask's, each with a daemon and a store of its own, of which one is killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import warmcc
from tests.support.prebuilding import GIVEN, answers_of, compiled, wanted
from warmcc.client.prebuild.api import Progress

distributed = pytest.importorskip("distributed")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # of Dask and its libraries, not of warmcc
]
TILES, STAGES = list(range(1, 9)), list(range(1, 6))


class Apart(distributed.WorkerPlugin):  # type: ignore[misc]
    """Gives each worker's process a daemon with folders that are its alone."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def setup(self, worker: Any) -> None:
        own = f"{self.folder}/{os.getpid()}"
        quiet = {"PREWARM": "", "PREWARM_IDLE": "", "PREWARM_CUDA": "0", "PCH": "0", "CCACHE": "0"}
        folders = {name: f"{own}/{name[0].lower()}" for name in ("RUNTIME_DIR", "CACHE_DIR")}
        settings = {
            **quiet, **folders, "STATE_DIR": f"{own}/s", "CONFIG": f"{own}/config.toml",
            "AUTOSTART": "1", "IDLE_TIMEOUT": "120",
        }  # fmt: skip
        os.environ.update({f"WARMCC_{name}": value for name, value in settings.items()})
        os.makedirs(f"{own}/r", mode=0o700)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Of the workers' daemons, which end with it. Short: it holds sockets."""
    made = Path(tempfile.mkdtemp(prefix="wcc-", dir="/tmp"))
    yield made
    for own in made.iterdir():
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Exception):
            patch.setenv("WARMCC_RUNTIME_DIR", str(own / "r"))
            from warmcc import protocol
            from warmcc.client.connection.session import Session

            with Session(autostart=False) as session:
                session.ask(protocol.Stop)
    shutil.rmtree(made, ignore_errors=True)


def test_a_worker_is_killed(folder: Path, tmp_path: Path) -> None:
    variants = warmcc.Space({"tile": TILES, "stages": STAGES})
    killed: list[int] = []
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.register_plugin(Apart(str(folder)))
        workers = list(client.run(os.getpid).values())

        def kill(progress: Progress) -> None:
            if progress.done == 10:
                killed.append(workers[0])
                os.kill(workers[0], signal.SIGKILL)

        built = warmcc.prebuild(
            "by_dask", variants, output=tmp_path, executor=client.get_executor(),
            store=str(tmp_path / "store"), on_progress=kill, **GIVEN,
        )  # fmt: skip
    assert killed
    assert answers_of(tmp_path, "by_dask") == wanted(TILES, STAGES)
    assert len(built.variants) == 40 and built.failed == {}
    by_worker = {int(own.name): compiled(own / "s", "by_dask") for own in folder.iterdir()}
    assert len(by_worker) >= 2
    assert all(by_worker[pid] for pid in workers), "both have built"
    times: Counter[str] = sum(by_worker.values(), Counter())
    assert len(times) == 40
    assert times.total() <= 40 + 1, "the dead worker had one in hand"
