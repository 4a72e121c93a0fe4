"""warmcc behind torch's own names: in a process, for the commands that it runs, in an environment
of Python. Each script is a process of its own, with a real daemon and a real torch.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import textwrap
import venv
from pathlib import Path

import pytest

from tests.support.calls import module_source
from tests.support.daemons import Daemon
from warmcc.client.install import children
from warmcc.client.install import venv as enabling

# What a package does: it imports torch's names, and builds with them.
PACKAGE = """
from torch.utils import cpp_extension
from torch.utils.cpp_extension import load, load_inline

def inline(name, source, **more):
    return load_inline(name, source, no_implicit_headers=True, **more)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "package.py").write_text(PACKAGE)
    (tmp_path / "tiny.cpp").write_text(module_source(7, "files"))
    return tmp_path


def run(
    daemon: Daemon | None, folder: Path, script: str, *words: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a script in ``folder``, by ``words``; without a daemon, none can be started."""
    environment = {**os.environ, "TORCH_EXTENSIONS_DIR": str(folder / "extensions")}
    environment.pop("WARMCC_FALLBACK", None)
    if daemon is not None:
        environment |= {**daemon.environment, "WARMCC_FALLBACK": "0"}
    (folder / "script.py").write_text(textwrap.dedent(script))
    argv = [*(words or (sys.executable,)), "script.py"]
    return subprocess.run(
        argv, cwd=folder, env=environment | variables, capture_output=True, text=True, timeout=280
    )


def requests(daemon: Daemon) -> int:
    """How many the daemon has had."""
    counts = daemon.status()["requests"]
    return int(counts["hits"] + counts["misses"])


def good(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_names_that_were_imported_before_lead_to_warmcc(daemon: Daemon, folder: Path) -> None:
    before = requests(daemon)
    script = f"""
        import inspect, os, package, warmcc
        from package import cpp_extension
        names = ("load", "load_inline", "_jit_compile")
        torchs = {{name: getattr(cpp_extension, name) for name in names}}
        signature = inspect.signature(package.load_inline)
        with warmcc.install():
            assert package.load is cpp_extension.load is not torchs["load"]
            assert inspect.signature(package.load_inline) == signature
            assert package.inline("names", {module_source(5, "names")!r}).answer() == 5
            folder = cpp_extension._get_build_directory("files", False)
            assert package.load("files", ["tiny.cpp"]).answer() == 7
            assert os.path.exists(os.path.join(folder, "files.so"))
            with warmcc.install():
                pass
            assert cpp_extension.load is not torchs["load"], "the first one goes on"
        assert all(getattr(cpp_extension, name) is torchs[name] for name in torchs)
        assert package.load is torchs["load"] and package.load_inline is torchs["load_inline"]
        warmcc.uninstall()
    """
    good(run(daemon, folder, script))
    assert requests(daemon) == before + 2


def test_the_function_that_torchs_two_are_made_of(daemon: Daemon, folder: Path) -> None:
    """As gsplat calls it: by position, with torch's own list of parameters."""
    script = """
        import inspect, os, warmcc
        warmcc.install()
        from torch.utils import cpp_extension
        wanted = {"name": "files", "sources": ["tiny.cpp"], "build_directory": os.getcwd(),
                  "verbose": False, "is_python_module": True, "is_standalone": False}
        names = inspect.signature(cpp_extension._jit_compile).parameters
        positional = [wanted.get(name) for name in names if name != "keep_intermediates"]
        assert cpp_extension._jit_compile(*positional, keep_intermediates=True).answer() == 7
        assert os.path.exists("files.so")
        try:
            cpp_extension._jit_compile("files")
        except TypeError as error:
            assert "missing" in str(error)
        else:
            raise AssertionError
    """
    before = requests(daemon)
    good(run(daemon, folder, script))
    assert requests(daemon) == before + 1


@pytest.mark.parametrize("disable", ["0", "1"])
def test_the_way_back_to_stock(folder: Path, disable: str) -> None:
    """Stock calls itself by the names that were replaced."""
    script = f"""
        import package, sys, warmcc
        warmcc.install()
        assert package.inline("back", {module_source(6, "back")!r}).answer() == 6
        assert package.load("files", ["tiny.cpp"]).answer() == 7
    """
    done = run(None, folder, script, WARMCC_DISABLE=disable)
    good(done)
    assert ("Stock torch builds this extension instead" in done.stderr) == (disable == "0")
    assert (folder / "extensions" / "files" / "tiny.o").exists(), "stock built it"


SCRIPT = f"""
    import os, subprocess, sys
    import package
    assert __name__ == "__main__" and sys.path[0] == os.getcwd(), sys.path
    assert package.inline("child", {module_source(8, "child")!r}).answer() == 8
    if sys.argv[1:] != ["child"]:
        print(sys.argv)
        subprocess.run([sys.executable, __file__, "child"], check=True)
        sys.exit(5)
"""


@pytest.mark.parametrize("by", ["module", "exec"])
def test_a_script_that_nobody_edits_and_its_children(daemon: Daemon, folder: Path, by: str) -> None:
    python, warmcc = (sys.executable, "-W", "error::FutureWarning"), (sys.executable, "-m")
    words = {
        "module": (*python, "-m", "warmcc"),
        "exec": (*warmcc, "warmcc.client.cli", "exec", "--", sys.executable),
    }
    before = requests(daemon)
    done = run(daemon, folder, SCRIPT, *words[by])
    assert done.returncode == 5, done.stdout + done.stderr
    assert done.stdout == "['script.py']\n"
    assert requests(daemon) == before + 2


def test_what_cannot_be_run() -> None:
    def exec_(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "warmcc.client.cli", "exec", *words]
        return subprocess.run(argv, capture_output=True, text=True, timeout=60)

    missing, folder, nothing = exec_("/nowhere/at/all", "-x"), exec_("--", "/tmp"), exec_()
    assert (missing.returncode, folder.returncode, nothing.returncode) == (127, 126, 2)
    assert missing.stderr == "warmcc: /nowhere/at/all cannot be run: No such file or directory\n"
    assert "warmcc exec -- python train.py" in nothing.stderr


def test_a_sitecustomize_of_the_users_own_is_run_as_well(folder: Path) -> None:
    (folder / "sitecustomize.py").write_text("import sys\nsys.mine = 1\n")
    code = (
        "import sys, sitecustomize; print(sys.mine, sitecustomize.__file__); "
        "from warmcc.client.install import patches; print(patches.is_installed())"
    )
    for search in (str(folder), f"{children.FOLDER}:{folder}"):
        done = subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": search},
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        installed = children.FOLDER in search
        assert done.stdout == f"1 {folder}/sitecustomize.py\n{installed}\n", done.stderr


def test_an_environment_of_python(tmp_path: Path) -> None:
    place = tmp_path / "environment"
    venv.create(place, with_pip=False)
    packages = place / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    # What is installed for this Python is for that one as well, before warmcc's own file is read
    found = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})"
    (packages / "a.pth").write_text(f"{found}\n")
    code = (
        "import sys; from warmcc.client.install import patches; "
        "print(patches.is_installed(), 'torch' in sys.modules)"
    )

    def installed(**variables: str) -> str:
        return subprocess.run(
            [place / "bin" / "python", "-c", code], env={**os.environ, **variables},
            capture_output=True, text=True, timeout=60, check=True, cwd="/",
        ).stdout  # fmt: skip

    def warmcc(command: str, where: Path) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "warmcc.client.cli", command, "--venv", str(where)]
        return subprocess.run(argv, capture_output=True, text=True, timeout=60)

    assert installed() == "False False\n"
    enabled = warmcc("enable", place)
    good(enabled)
    assert str(packages / enabling.NAME) in enabled.stderr
    assert installed() == "True False\n"
    assert installed(WARMCC_INSTALL="0") == "False False\n"
    good(warmcc("disable", place))
    assert installed() == "False False\n"
    assert "it was not enabled" in warmcc("disable", place).stderr
    refused = warmcc("enable", tmp_path)
    assert refused.returncode == 3
    assert refused.stderr == (
        f"warmcc: {tmp_path} is no virtual environment: it has no pyvenv.cfg\n"
    )


# Around the import of torch's module, of which this is a part
WITHIN = """
    import sys, threading, warmcc

    class Hook:
        def find_spec(self, name, path, target=None):
            module = sys.modules.get("torch.utils.cpp_extension")
            if module is not None and not self.was_called and not hasattr(module, "load"):
                self.was_called = True
                HOOK
        was_called = False

    hook = Hook()
    sys.meta_path.insert(0, hook)
"""
AFTER = """
    from torch.utils import cpp_extension
    assert hook.was_called
    assert hasattr(cpp_extension.load, "__wrapped__") == SERVED
    assert type(cpp_extension.__spec__).__name__ == "ModuleSpec"
    warmcc.uninstall()
    assert not hasattr(cpp_extension.load, "__wrapped__")
    assert not any("warmcc" in type(one).__module__ for one in sys.meta_path)
"""


def test_an_installation_while_torchs_module_is_imported(daemon: Daemon, folder: Path) -> None:
    before = requests(daemon)
    script = f"""{WITHIN.replace("HOOK", "warmcc.install()")}
    from package import load
    assert load("files", ["tiny.cpp"]).answer() == 7
    {AFTER.replace("SERVED", "True")}"""
    good(run(daemon, folder, script))
    assert requests(daemon) == before + 1


@pytest.mark.parametrize(
    ("hook", "served"),
    [
        ("thread = threading.Thread(target=warmcc.install); thread.start(); thread.join()", True),
        ("warmcc.install(); warmcc.uninstall()", False),
        ("warmcc.install(); warmcc.install(); warmcc.uninstall(); warmcc.install()", True),
    ],
)
def test_installations_during_an_import(folder: Path, hook: str, served: bool) -> None:
    good(run(None, folder, WITHIN.replace("HOOK", hook) + AFTER.replace("SERVED", str(served))))


def test_an_import_that_fails_is_waited_for_again(folder: Path) -> None:
    failing = """
    try:
        import torch.utils.cpp_extension
    except ZeroDivisionError:
        pass
    assert "torch.utils.cpp_extension" not in sys.modules
    """
    hook = WITHIN.replace("HOOK", "warmcc.install(); 1 / 0")
    good(run(None, folder, hook + failing + AFTER.replace("SERVED", "True")))
