"""What stock torch gets to see, and what a user is told of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import warmcc
from tests.support.calls import module_source
from tests.support.scripted import serving
from tests.support.users import tiny
from warmcc.client.connection import session
from warmcc.errors import WarmccWarning
from warmcc.protocol import Build, Cancel, Declined, Fallback, Stock

pytestmark = pytest.mark.usefixtures("fresh_client")


def answering(answer: Callable[[Build], Any]) -> Callable[[Any], Iterator[Any]]:
    def script(message: Any) -> Iterator[Any]:
        if isinstance(message, Build):
            yield answer(message)

    return script


@pytest.fixture
def stock_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    monkeypatch.delenv("WARMCC_FALLBACK")
    return tmp_path


def test_what_is_broken_is_told_once_at_the_callers_line(
    stock_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = module_source(5, "broken_daemon")
    declined = answering(lambda message: Declined(message.id, "it is broken", False))
    with serving(declined, monkeypatch), pytest.warns(WarmccWarning) as caught:
        for _ in range(2):
            module = warmcc.load_inline("broken_daemon", source, no_implicit_headers=True)
            assert module.answer() == 5
        session.forget()
    (one,) = caught
    assert one.filename == __file__, "where the call is"
    assert (
        "could not build 'broken_daemon': it is broken\nStock torch builds this extension instead"
        in str(one.message)
    )


def test_stock_gets_the_callers_own_values_and_the_daemon_counts_it(
    stock_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(answering(lambda _: None), monkeypatch) as daemon:
        with pytest.raises(TypeError, match="brand_new"):
            warmcc.load_inline("newer", "", brand_new=1)
        assert daemon.wait_for(Fallback).reason == "not carried: unknown parameter brand_new"
        with pytest.raises(AttributeError, match="insert"):
            warmcc.load_inline("kinds", ("int x;",))  # type: ignore[arg-type]
        assert "cpp_sources of type tuple" in daemon.wait_for(Fallback).reason
        session.forget()
        assert not any(isinstance(message, (Build, Cancel)) for message in daemon.received)


def test_a_request_that_is_too_large_is_told_and_not_sent(
    stock_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        serving(answering(lambda _: None), monkeypatch) as daemon,
        pytest.warns(WarmccWarning, match="message_size"),
    ):
        assert tiny("large", before="//" + "x" * (33 << 20) + "\n").answer() == 42
        assert daemon.wait_for(Fallback).reason == "larger than message_size"
        session.forget()
        assert not any(isinstance(message, Build) for message in daemon.received)


def test_disabled_means_not_even_a_connection(
    stock_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARMCC_DISABLE", "1")
    monkeypatch.setenv("WARMCC_TIMEOUT", "nonsense")
    with serving(answering(lambda _: None), monkeypatch) as daemon:
        assert tiny("disabled_client").answer() == 42
        assert daemon.received == []


def test_stock_keeps_the_callers_lists_and_forgets_a_failed_build(
    stock_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch.utils import cpp_extension

    monkeypatch.setenv("WARMCC_DISABLE", "1")
    sources, flags = [module_source(4, "lists_of_stock")], ["-Wl,-O1"]
    call: dict[str, Any] = {"extra_ldflags": flags, "no_implicit_headers": True}
    assert warmcc.load_inline("lists_of_stock", sources, **call).answer() == 4
    assert (sources, flags) == ([module_source(4, "lists_of_stock")], ["-Wl,-O1"])
    entry = cpp_extension.JIT_EXTENSION_VERSIONER.entries["lists_of_stock"]
    for _ in range(2):
        with pytest.raises(RuntimeError, match="Error building extension 'lists_of_stock_v1'"):
            warmcc.load_inline("lists_of_stock", ["#error stop"], **call)
    assert cpp_extension.JIT_EXTENSION_VERSIONER.entries["lists_of_stock"] == entry
    assert cpp_extension.FileBaton.__module__ == "torch.utils.file_baton"


def test_an_exception_of_stock_has_no_history(
    stock_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARMCC_RUNTIME_DIR", str(stock_folder / "nobody"))
    with (
        pytest.warns(WarmccWarning),
        pytest.raises(RuntimeError, match="Error building extension") as caught,
    ):
        warmcc.load_inline("history", "#error stop", no_implicit_headers=True)
    assert not isinstance(caught.value.__cause__, warmcc.WarmccError)
    assert not isinstance(caught.value.__context__, warmcc.WarmccError)


def test_what_the_daemon_leaves_to_stock_by_design_is_no_news(
    stock_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARMCC_FALLBACK", "0")  # not a failure of the service either
    declined = answering(lambda message: Declined(message.id, "not yet", True))
    with serving(declined, monkeypatch) as daemon, warnings.catch_warnings():
        warnings.simplefilter("error", WarmccWarning)
        assert tiny("by_design", 5).answer() == 5
        session.forget()
        with pytest.raises(RuntimeError, match="Error building extension"):
            tiny("by_design_wrong", before="#error stop\n")
        session.forget()
        told = [daemon.wait_for(Stock).builds for _ in range(4)]
    assert told == [True, False] * 2, "what nobody waits for gives way to it meanwhile"
    assert (stock_folder / "by_design/by_design.so").exists()
