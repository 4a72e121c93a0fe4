"""``warmcc.load`` and ``load_inline`` as a user calls them: results, errors, and the stock path
behind them.
"""

from __future__ import annotations

import pickle
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import warmcc
from tests.support.calls import module_source
from tests.support.daemons import Daemon
from tests.support.users import TINY, tiny
from warmcc.client.connection import session
from warmcc.errors import (
    DaemonError,
    DaemonUnavailable,
    RequestError,
    WarmccWarning,
)


@pytest.fixture
def client(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    """The shared daemon, spoken to by this process; a stock path taken is an error."""
    for name, value in daemon.environment.items():
        monkeypatch.setenv(name, value)
    yield daemon
    session.forget()


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


def test_flags_with_line_ends_are_built_by_the_daemon(client: Daemon) -> None:
    """Public code has them, and stock takes them off."""
    before = client.status()["requests"]
    text = module_source(0, "lines").replace("FromLong(0)", "FromLong(A)")
    call = {"extra_cflags": ["-DA=6\n\n"], "extra_ldflags": ["-lm\n"], "no_implicit_headers": True}
    assert warmcc.load_inline("lines", text, **call).answer() == 6
    after = client.status()["requests"]
    assert after["declined"] == before["declined"] and after["misses"] == before["misses"] + 1
