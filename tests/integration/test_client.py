"""``warmcc.load`` and ``load_inline`` as a user calls them: results, errors, and the stock path
behind them.
"""

from __future__ import annotations

import pickle
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import zmq

import warmcc
from tests.calls import module_source
from tests.daemons import Daemon
from warmcc import protocol
from warmcc.client import notices
from warmcc.client.connection import session
from warmcc.errors import (
    DaemonError,
    DaemonTimeout,
    DaemonUnavailable,
    RequestError,
    VersionMismatch,
    WarmccWarning,
)

TINY: dict[str, Any] = {"no_implicit_headers": True}


@pytest.fixture
def client(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    """The shared daemon, spoken to by this process; a stock path taken is an error."""
    for name, value in daemon.environment.items():
        monkeypatch.setenv(name, value)
    yield daemon
    session.forget()


@pytest.fixture
def nobody(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Path]:
    """No daemon, and none to be started; stock builds below ``tmp_path``."""
    runtime = tmp_path_factory.mktemp("r")
    runtime.chmod(0o700)
    monkeypatch.setenv("WARMCC_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("WARMCC_AUTOSTART", "0")
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "stock"))
    monkeypatch.delenv("WARMCC_FALLBACK", raising=False)
    notices._given.clear()
    session.forget()
    yield runtime
    session.forget()


def tiny(name: str, answer: int = 42, **more: Any) -> Any:
    return warmcc.load_inline(name, module_source(answer, name), **{**TINY, **more})


def test_a_module_comes_back_and_works(client: Daemon) -> None:
    module = tiny("tiny_one")
    assert (module.__name__, module.answer()) == ("tiny_one", 42)
    assert tiny("tiny_one").answer() == 42


def test_variants_have_stocks_names_and_an_old_one_comes_back(client: Daemon) -> None:
    sources = [
        module_source(number, "NAME").replace("PyInit_NAME", "PY_INIT").replace(
            "#include <Python.h>",
            "#include <Python.h>\n#define CAT(a, b) CAT_(a, b)\n#define CAT_(a, b) a##b\n"
            "#define PY_INIT CAT(PyInit_, TORCH_EXTENSION_NAME)",
        )
        for number in (1, 2)
    ]  # fmt: skip
    before = client.status()["compiles"]
    seen = [
        warmcc.load_inline("variant", text, **TINY) for text in (sources[0], sources[1], sources[0])
    ]
    assert [Path(module.__file__).stem for module in seen] == ["variant", "variant_v1", "variant"]
    assert [module.answer() for module in seen] == [1, 2, 1]
    assert client.status()["compiles"] == before + 2


def test_a_compile_error_every_time_and_no_name_is_used_up(client: Daemon) -> None:
    for _ in range(2):
        with pytest.raises(RuntimeError, match="Error building extension 'broken'") as caught:
            warmcc.load_inline("broken", "int f( { }\n", **TINY)
        assert isinstance(caught.value, warmcc.CompileError)
        (first, *_) = caught.value.diagnostics
        assert (first.file, first.line, first.severity) == ("cpp_sources[0]", 1, "error")
        again = pickle.loads(pickle.dumps(caught.value))
        assert str(again) == str(caught.value)
    assert tiny("broken").__name__ == "broken"


def test_the_callers_lists_stay_as_they_were(client: Daemon) -> None:
    sources, flags = [module_source(3, "lists")], ["-DX"]
    warmcc.load_inline("lists", sources, extra_cflags=flags, **TINY)
    assert (sources, flags) == ([module_source(3, "lists")], ["-DX"])


def test_many_threads_share_one_build(client: Daemon) -> None:
    before = client.status()["compiles"]
    answers: list[int] = []

    def call() -> None:
        answers.append(tiny("threads", 8).answer())
        session.forget()

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [8] * 8
    assert client.status()["compiles"] == before + 1


def test_the_build_directory_gets_copies(client: Daemon, tmp_path: Path) -> None:
    module = tiny("placed", build_directory=str(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {"placed.so", "main.cpp", "build.ninja"}
    assert (tmp_path / "main.cpp").read_text() == module_source(42, "placed")
    assert f"compile {tmp_path}/main.cpp" in (tmp_path / "build.ninja").read_text()
    copy = tmp_path / "placed.so"
    assert copy.stat().st_ino != Path(module.__file__).stat().st_ino
    stamp = copy.stat().st_ctime_ns
    tiny("placed", build_directory=str(tmp_path))
    assert copy.stat().st_ctime_ns == stamp, "an equal copy was written again"
    copy.write_bytes(b"something else")
    tiny("placed", build_directory=str(tmp_path))
    assert copy.read_bytes() == Path(module.__file__).read_bytes()


def test_verbose_prints_commands_to_descriptor_1(
    client: Daemon, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        tiny("wordy", 5, verbose=True)
        assert "-DTORCH_EXTENSION_NAME=wordy" in capfd.readouterr().out
    tiny("wordy", 5)
    assert capfd.readouterr() == ("", "")


def test_latin_1_in_a_file_is_compiled(client: Daemon, tmp_path: Path) -> None:
    source = tmp_path / "latin.cpp"
    source.write_bytes("// Grüße\n".encode("latin-1") + module_source(6, "latin").encode())
    assert warmcc.load("latin", [source]).answer() == 6


@pytest.mark.parametrize("name", ["", "a/b", "..", "a\nb", "two words"])
def test_names_that_can_name_no_file(client: Daemon, name: str) -> None:
    with pytest.raises(RequestError, match="name"):
        tiny(name)


BAD: list[tuple[type[BaseException], Callable[[Path], Any]]] = [
    (ImportError, lambda _: warmcc.load_inline("not-an-identifier", "", **TINY)),
    (RuntimeError, lambda folder: tiny("a\0b", build_directory=str(folder))),
    (FileNotFoundError, lambda folder: tiny("nowhere", build_directory=str(folder / "nowhere"))),
    (FileNotFoundError, lambda folder: warmcc.load("nowhere", [str(folder / "nowhere.cpp")])),
    (ValueError, lambda folder: warmcc.load("both", [str(folder)], is_standalone=True)),
    (AssertionError, lambda _: warmcc.load("none", [])),
    (ValueError, lambda folder: tiny("functions", functions=5, build_directory=str(folder))),
    (TypeError, lambda folder: tiny("future", some_new_parameter=1, build_directory=str(folder))),
    (AttributeError, lambda folder: warmcc.load_inline("kind", 5, build_directory=str(folder))),  # type: ignore[arg-type]
    (
        UnicodeEncodeError,
        lambda folder: warmcc.load_inline("text", "// \ud800", build_directory=str(folder)),
    ),
    (
        RuntimeError,
        lambda _: warmcc.load_inline("missing", "#include <Python.h>", functions="nowhere", **TINY),
    ),
    (ImportError, lambda _: warmcc.load_inline("empty", "", **TINY)),
    (RuntimeError, lambda _: tiny("flags", extra_cflags=["-fno-such-flag"])),
    (RuntimeError, lambda _: tiny("library", extra_ldflags=["-lno_such_library"])),
]


@pytest.mark.parametrize("number", range(len(BAD)))
def test_bad_input_is_one_clear_error(client: Daemon, tmp_path: Path, number: int) -> None:
    """Of the type that stock raises; the daemon lives, and nothing stays in staging."""
    kind, call = BAD[number]
    with pytest.raises(kind) as caught:
        call(tmp_path)
    assert str(caught.value)
    assert client.status()["flights"] == []
    assert list((client.cache_dir / "store" / "staging").iterdir()) == []


def test_a_request_over_the_limit_names_the_limit(client: Daemon) -> None:
    with pytest.raises(DaemonError, match="message_size"):
        warmcc.load_inline("large", "//" + "x" * (50 << 20), **TINY)


def test_without_a_daemon_stock_builds_with_one_warning(nobody: Path) -> None:
    with pytest.warns(
        WarmccWarning, match="daemon is not running|cannot start the warmcc daemon"
    ) as caught:
        assert tiny("by_stock").answer() == 42
        assert tiny("by_stock_too").answer() == 42
    assert len(caught) == 1


def test_stock_repeats_a_compile_error_and_no_lock_hangs_it(nobody: Path, tmp_path: Path) -> None:
    folder = tmp_path / "stock" / "stale"
    folder.mkdir(parents=True)
    (folder / "lock").touch()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            with pytest.raises(RuntimeError, match="Error building extension"):
                warmcc.load_inline("stale", "int f( { }\n", **TINY)
        assert tiny("stale").answer() == 42
    assert any("left behind" in str(warning.message) for warning in caught)
    assert not (folder / "lock").exists()


def test_the_stock_path_can_be_an_error_or_the_only_one(
    nobody: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARMCC_FALLBACK", "0")
    with pytest.raises(DaemonUnavailable, match="warmcc start"):
        tiny("strict")
    monkeypatch.setenv("WARMCC_DISABLE", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tiny("disabled").answer() == 42


def test_unknown_flags_of_nvcc_go_to_stock_and_are_counted(client: Daemon) -> None:
    reason = "unsupported nvcc flags: --no-such-flag"
    before = client.status()["requests"]["declined"].get(reason, 0)
    # Whatever stock says to it: no CUDA here, no architecture to build for, or nvcc's own error.
    with pytest.raises((RuntimeError, OSError, IndexError)):
        warmcc.load_inline(
            "cuda",
            "",
            cuda_sources="#error stop\n",
            extra_cuda_cflags=["--no-such-flag"],
            no_implicit_headers=True,
        )
    assert client.status()["requests"]["declined"][reason] == before + 1


class Scripted(threading.Thread):
    """A daemon that misbehaves as told: it answers each message by what ``script`` gives."""

    def __init__(self, runtime: Path, script: Callable[[Any], list[bytes]]) -> None:
        super().__init__(daemon=True)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger = 0
        self._socket.bind(f"ipc://{runtime}/daemon.sock")
        self._script = script
        self._ended = False

    def run(self) -> None:
        while not self._ended:
            if self._socket.poll(20):
                identity, _, body = self._socket.recv_multipart()
                for answer in self._script(protocol.decode_client_message(body)):
                    self._socket.send_multipart([identity, protocol.MAGIC, answer])
        self._context.destroy(linger=0)

    def end(self) -> None:
        self._ended = True
        self.join()


def welcome_then(answers: list[bytes]) -> Callable[[Any], list[bytes]]:
    greeting = protocol.encode(protocol.Welcome(1, "0", 1, []))
    return lambda message: [greeting] if isinstance(message, protocol.Hello) else answers


MISBEHAVIOUR: dict[str, tuple[Callable[[Any], list[bytes]], type[DaemonError]]] = {
    "does not greet": (lambda _: [], DaemonTimeout),
    "greets with nonsense": (lambda _: [b"\xc1"], DaemonError),
    "speaks another version": (
        lambda _: [protocol.encode(protocol.Refused([9], "9.0", "too old"))],
        VersionMismatch,
    ),
    "falls silent": (welcome_then([]), DaemonTimeout),
    "answers with nonsense": (welcome_then([b"\x01"]), DaemonError),
    "answers something else": (
        welcome_then([protocol.encode(protocol.Report(1, {}))]),
        DaemonError,
    ),
}


@pytest.mark.parametrize("how", MISBEHAVIOUR)
def test_a_daemon_that(how: str, nobody: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script, kind = MISBEHAVIOUR[how]
    monkeypatch.setenv("WARMCC_TIMEOUT", "0.5")
    daemon = Scripted(nobody, script)
    daemon.start()
    try:
        monkeypatch.setenv("WARMCC_FALLBACK", "0")
        name = how.replace(" ", "_")
        with pytest.raises(kind):
            tiny(name)
        monkeypatch.delenv("WARMCC_FALLBACK")
        with pytest.warns(WarmccWarning):
            assert tiny(name).answer() == 42
    finally:
        session.forget()
        daemon.end()


def test_a_slow_daemon_that_shows_life_is_waited_for(
    nobody: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARMCC_TIMEOUT", "0.4")
    failed = protocol.encode(protocol.Failed(1, "ValueError", "at last"))
    alive = protocol.encode(protocol.Progress(1, "compiling", 1.0))

    def script(message: Any) -> list[bytes]:
        if isinstance(message, protocol.Hello):
            return [protocol.encode(protocol.Welcome(1, "0", 1, []))]
        time.sleep(0.3)
        return [alive, failed]

    daemon = Scripted(nobody, script)
    daemon.start()
    with pytest.raises(ValueError, match="at last"):
        tiny("slow")
    session.forget()
    daemon.end()


def test_a_folder_that_others_may_enter_is_not_trusted(nobody: Path) -> None:
    nobody.chmod(0o755)
    with pytest.warns(WarmccWarning, match="not private to you"):
        assert tiny("untrusted").answer() == 42


def test_a_daemon_is_started_when_none_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Daemon()
    for name, value in {**one.environment, "WARMCC_AUTOSTART": "1", "WARMCC_PREWARM": ""}.items():
        monkeypatch.setenv(name, value)
    session.forget()
    try:
        assert tiny("started", 9).answer() == 9
        with session.Session(autostart=False) as connection:
            pid = connection.welcome.pid
            connection.ask(protocol.Stop)
        psutil.Process(pid).wait(10) if psutil.pid_exists(pid) else None
    finally:
        session.forget()
        one.discard()


def test_a_daemon_that_cannot_write_hands_over_to_stock(
    fresh_daemon: Callable[..., Daemon], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A full disk, by a limit on the size of files: the extension is built by stock, nothing
    half-written is kept.
    """
    daemon = fresh_daemon(pch=False, ccache=False)
    for name, value in daemon.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("WARMCC_FALLBACK")
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    session.forget()
    notices._given.clear()
    assert tiny("before").answer() == 42
    own = psutil.Process(daemon.pid)
    limits = own.rlimit(psutil.RLIMIT_FSIZE)
    own.rlimit(psutil.RLIMIT_FSIZE, (2000, limits[1]))
    with pytest.warns(WarmccWarning, match="could not build"):
        assert tiny("full").answer() == 42
    own.rlimit(psutil.RLIMIT_FSIZE, limits)
    assert list((daemon.cache_dir / "store" / "staging").iterdir()) == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tiny("after").answer() == 42
    session.forget()
