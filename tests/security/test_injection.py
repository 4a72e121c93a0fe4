"""Requests that try to have a command of theirs run: in names, flags, paths, variables and
interpreters, through the shell, through ninja and through programs that the daemon calls. Each
would leave a marker file, and none may.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from tests.support.attacks import ATTACKS, LIBRARY, Attack, numbers
from tests.support.calls import Connection, interpreter, request
from tests.support.daemons import Daemon
from warmcc.protocol import Built, Declined, Failed, Refused

Context = zmq.Context[zmq.Socket[bytes]]


# In a daemon of one's own these are the caller's to choose: that it runs them is what was asked
# for.
ONES_OWN = ("a planted", "variable CXX")


@pytest.fixture(scope="module")
def own() -> Iterator[Daemon]:
    yield from running(shared=False)


@pytest.fixture(scope="module")
def shared() -> Iterator[Daemon]:
    yield from running(shared=True)


def running(**settings: Any) -> Iterator[Daemon]:
    daemon = Daemon(pch=False, cuda_warm=False, **settings)
    try:
        yield daemon.start()
        daemon.stop()
    finally:
        daemon.discard()


def put(attack: Attack, daemon: Daemon, context: Context, folder: Path) -> Any:
    """The answer to an attack, and none may have run its command."""
    folder.mkdir()
    outside = sorted(Path("/tmp").iterdir())
    fields = {
        "name": "attack", "module_name": "attack", "is_python_module": False,
        "cpp_sources": [LIBRARY], "environment": {"PATH": os.environ["PATH"]},
        **attack(f"touch {folder}/marker", folder),
    }  # fmt: skip
    fresh = f"int {daemon.folder.name}_{next(numbers)};\n".replace(
        "-", "_"
    )  # nothing of it is in the store
    fields["cpp_sources"] = [text + fresh for text in fields["cpp_sources"]]
    wanted = request(**fields)
    connection = Connection(daemon, context)
    answer = connection.build(wanted)
    assert isinstance(answer, (Built, Failed, Declined, Refused)), answer
    assert not (folder / "marker").exists(), f"its command ran: {answer}"
    assert "internal error" not in getattr(answer, "reason", ""), answer
    assert [
        path for path in Path("/tmp").iterdir() if path.name == "marker" and path not in outside
    ] == []
    return answer


def plain(connection: Connection) -> None:
    wanted = request(
        name="plain", module_name="plain", is_python_module=False, cpp_sources=[LIBRARY],
        environment={"PATH": os.environ["PATH"]},
    )  # fmt: skip
    answer = connection.build(wanted)
    assert isinstance(answer, Built), answer


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_command_of_a_callers_runs_in_a_shared_daemon(
    attack: str, shared: Daemon, context: Context, tmp_path: Path
) -> None:
    put(ATTACKS[attack], shared, context, tmp_path / "folder")
    plain(Connection(shared, context))


@pytest.mark.slow
@pytest.mark.parametrize(
    "attack", [attack for attack in ATTACKS if not attack.startswith(ONES_OWN)]
)
def test_no_command_in_a_text_runs_in_ones_own_daemon(
    attack: str, own: Daemon, context: Context, tmp_path: Path
) -> None:
    put(ATTACKS[attack], own, context, tmp_path / "folder")
    plain(Connection(own, context))


# ---------------------------------------------------------------------- what stock makes of it

STOCK = """
def load_inline(name, build_directory, **_):
    with open(build_directory + "/main.cpp", "w") as file:
        file.write("int nothing;\\n")
    with open(build_directory + "/build.ninja", "w") as file:
        file.write({ninja!r}.replace("SCRATCH", build_directory))
load = load_inline
"""
PLAN = """ninja_required_version = 1.3
cxx = c++
cflags = -fPIC
post_cflags =
ldflags = -shared
rule compile
  command = $cxx -MMD -MF $out.d $cflags -c $in -o $out $post_cflags
rule link
  command = $cxx $in $ldflags -o $out
build main.o: compile SCRATCH/main.cpp
build attack.so: link main.o
default attack.so
"""
# What is changed of the plan, whether only a shared daemon minds, and what is said of it.
PLANS = {
    "nothing": ("", "", False, ""),
    "a command in cflags": ("-fPIC", "-fPIC ;touch {marker}", False, "the shell would read ';'"),
    "a command in ldflags": ("-shared", "-shared $$(touch {marker})", False,
        "the shell would read '$'"),
    "a command in cxx": ("c++", "c++ ;touch {marker};", False, "the shell would read ';'"),
    "a variable of ninja's": ("-fPIC", "-fPIC '$cxx'", False, "ninja would read '$c'"),
    "a variable twice": ("post_cflags =", "cflags = ;touch {marker}", False, "sets cflags twice"),
    "a rule": ("rule link", "rule evil\n  command = touch {marker}\nrule link", False,
        "unknown rule evil"),
    "a command": ("$cxx $in $ldflags -o $out", "touch {marker}", False,
        "unknown command of rule link"),
    "a setting of a rule": ("rule link", "rule link\n  rspfile = {marker}", False,
        "unknown setting rspfile"),
    "another line": ("default", "include {marker}\ndefault", False, "unknown line"),
    "another compiler": ("cxx = c++", "cxx = {marker}", False, "was not found"),
    "a compiler that is there": ("cxx = c++", "cxx = true", False, "torch would call true"),
    "another target": ("attack.so", "{marker}", False, "torch's plan makes"),
    "an option for an object": ("main.o", "-fplugin.o", False, "the file name '-fplugin.o'"),
    "a file of options": ("main.o", "@main.o", False, "the file name '@main.o'"),
    "a bar": ("SCRATCH/main.cpp", "/x|{marker}", False, "the file name"),
    "a build line without a rule": ("build attack.so: link main.o", "build attack.so:", False,
        "unknown build line"),
    "a plug-in": ("-fPIC", "-fPIC -fplugin={marker}", True, "refuses the flag -fplugin="),
    "a script for the linker": ("-shared", "-shared -Wl,-T,{marker}", True,
        "refuses the flag -Wl,-T,"),
    "a wrapper": ("post_cflags =", "post_cflags = -wrapper {marker}", True,
        "refuses the flag -wrapper"),
}  # fmt: skip


class Site:
    """A Python with a torch that writes a plan, in which ``{marker}`` stands for a file."""

    def __init__(self, folder: Path, plan: str) -> None:
        self.marker = folder / "marker"
        old, new, *_ = PLANS[plan]
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        site = folder / "lib" / version / "site-packages"
        (site / "torch" / "utils").mkdir(parents=True)
        (folder / "bin").mkdir()
        (folder / "bin" / "python").symlink_to(os.path.realpath(sys.executable))
        (folder / "pyvenv.cfg").write_text(
            f"home = {os.path.dirname(os.path.realpath(sys.executable))}\n"
        )
        for name, text in (("__init__", "from torch import cuda\n"), ("version", "")):
            (site / "torch" / f"{name}.py").write_text(f"__version__ = '2.0'\n{text}")
        (site / "torch" / "cuda.py").write_text("def is_available():\n    return False\n")
        ninja = PLAN.replace(old, new.format(marker=self.marker), 1 if old == "cxx = c++" else -1)
        (site / "torch" / "utils" / "__init__.py").touch()
        (site / "torch" / "utils" / "cpp_extension.py").write_text(STOCK.format(ninja=ninja))
        self.interpreter = msgspec.structs.replace(
            interpreter(), executable=str(folder / "bin" / "python"), torch_dir=str(site / "torch")
        )


@pytest.fixture(scope="module", params=[pytest.param("own", marks=pytest.mark.slow), "shared"])
def mode_and_sites(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Daemon, dict[str, Site]]]:
    """A daemon that knows the Pythons of all plans."""
    root = tmp_path_factory.mktemp(request.param)
    sites = {}
    for number, plan in enumerate(PLANS):
        (root / str(number)).mkdir()
        sites[plan] = Site(root / str(number), plan)
    known = [site.interpreter.executable for site in sites.values()]
    for daemon in running(shared=request.param == "shared", interpreters=known, ccache=False):
        yield request.param, daemon, sites


@pytest.mark.parametrize("plan", PLANS)
def test_a_plan_is_not_taken_on_trust(
    plan: str, mode_and_sites: tuple[str, Daemon, dict[str, Site]], context: Context
) -> None:
    """A torch that writes something else into its build.ninja than was asked for: however it got
    there.
    """
    mode, daemon, sites = mode_and_sites
    _, _, only_shared, said = PLANS[plan]
    site = sites[plan]
    wanted = request(
        name="attack", module_name="attack", is_python_module=False, cpp_sources=["int nothing;\n"],
        interpreter=site.interpreter, environment={"PATH": os.environ["PATH"]},
    )  # fmt: skip
    answer = Connection(daemon, context).build(wanted)
    assert not site.marker.exists()
    if not said:
        assert isinstance(answer, Built), answer
    elif mode == "shared" or not only_shared:
        assert said in (answer.message if isinstance(answer, Failed) else answer.reason), answer


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sources", ["/a\n.cpp"]), ("extra_cflags", ["-O2\t"]), ("extra_ldflags", ["\r"]),
        ("extra_cuda_cflags", ["\x0b"]),
        ("extra_include_paths", ["/a\nb"]), ("build_directory", "/a\x7f"), ("functions", ["f\0"]),
        ("functions", {"f": "g\x1b"}), ("environment", {"LANG": "a\nb"}), ("cpp_sources", ["a\0b"]),
        ("cuda_sources", ["a\x01"]), ("extra_sycl_cflags", ["\n"]),
        ("interpreter", msgspec.structs.replace(interpreter(), torch_dir="/a\nb")),
    ],
)  # fmt: skip
def test_no_field_has_control_characters(
    field: str, value: Any, own: Daemon, context: Context
) -> None:
    answer = Connection(own, context).build(request(**{field: value}))
    assert isinstance(answer, Declined) and answer.reason == f"a control character in {field}", (
        answer
    )


@pytest.mark.parametrize(
    "changes", [{"with_sycl": True}, {"sycl_sources": ["int x;"]}, {"sources": ["/x.sycl"]}]
)
def test_no_sycl_compiler_is_run(changes: dict[str, Any], own: Daemon, context: Context) -> None:
    """Stock looks for one on PATH, and runs it, to plan the build: it does so in the caller's own
    process.
    """
    answer = Connection(own, context).build(request(**changes))
    assert isinstance(answer, Declined) and answer.reason == "SYCL sources", answer


def test_sources_have_lines(own: Daemon, context: Context) -> None:
    """And tabs, form feeds and what else is white space to a compiler."""
    source = 'extern "C" int\tlines()\r\n{\f return\v 7; }\n'
    wanted = request(
        name="lines", module_name="lines", is_python_module=False, cpp_sources=[source]
    )
    assert isinstance(Connection(own, context).build(wanted), Built)
