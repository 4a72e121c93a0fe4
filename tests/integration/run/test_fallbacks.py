"""Python itself runs what no zygote is right for, says why, and the output is python's."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest

from tests.support.zygotes import PYTHON, Zygotes
from warmcc import runs

SAYS = "warmcc: python runs it: "


def why(zygotes: Zygotes, *words: str, **variables: str) -> str:
    """The reason that is told; the rest is python's."""
    done = zygotes.warm(*words, **variables)
    plain = zygotes.plain(*words, **variables)
    first, _, rest = done.stderr.partition("\n")
    assert first.startswith(SAYS), done.stderr
    assert (done.returncode, done.stdout, rest) == (plain.returncode, plain.stdout, plain.stderr)
    return first.removeprefix(SAYS)


@pytest.mark.parametrize(
    "words",
    [
        ("-O", "-c", "print(__debug__)"), ("-X", "utf8", "-c", "import sys; print(sys.flags)"),
        ("-W", "error", "-c", "import warnings; warnings.warn('x')"), ("-V",), ("-m",), ("-c",),
        ("-I", "-c", "import sys; print(sys.flags)"), ("-u", "-c", "print(1)"), ("-mtimeit", "-h"),
        ("-cprint(1)",), ("-Z",), ("",),
    ],
)  # fmt: skip
def test_options_are_python_s(started: Zygotes, words: tuple[str, ...]) -> None:
    assert why(started, *words) == f"{words[0]} is an option of python"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PYTHONOPTIMIZE", "1"), ("PYTHONWARNINGS", "error"), ("PYTHONDEVMODE", "1"),
        ("PYTHONINSPECT", "1"), ("PYTHONTRACEMALLOC", "1"), ("PYTHONSAFEPATH", "1"),
        ("LD_PRELOAD", "libm.so.6"),
    ],
)  # fmt: skip
def test_variables_for_python_or_the_loader(started: Zygotes, name: str, value: str) -> None:
    assert why(started, "-c", "import sys; print(sys.flags)", **{name: value}) == f"{name} is set"


def test_a_relative_pythonpath(started: Zygotes) -> None:
    assert "relative to the working" in why(started, "-c", "0", PYTHONPATH="/tmp:here")
    assert "relative to the working" in why(started, "-c", "0", PYTHONPATH="/tmp:")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OMP_NUM_THREADS", "1"), ("MKL_NUM_THREADS", "1"), ("TORCH_LOGS", "dynamo"),
        ("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64"), ("LD_LIBRARY_PATH", "/none"),
        ("LC_TIME", "C"), ("TZ", "Asia/Tokyo"), ("PYTHONHASHSEED", "4"),
        ("MALLOC_ARENA_MAX", "2"), ("CUBLAS_WORKSPACE_CONFIG", ":16:8"),
    ],
)  # fmt: skip
def test_variables_that_are_read_at_import(fresh: Zygotes, name: str, value: str) -> None:
    """One differs: there is another zygote for it, or none yet."""
    (fresh.runtime / runs.FOLDER).mkdir(mode=0o700)
    (fresh.runtime / runs.FOLDER / runs.STARTING).touch(mode=0o600)
    text = "import time, os, torch; print(time.tzname, torch.get_num_threads(), hash('a') != 0)"
    first = fresh.environment
    digests = []
    for extra in ({}, {name: value}):
        fresh.environment = {**first, "WARMCC_RUN_ZYGOTES": "0"}  # none starts
        assert "no zygote is there" in why(fresh, "-c", text, **extra)
        facts = {path.stem for path in (fresh.runtime / runs.FOLDER).glob(f"*{runs.FACTS}")}
        digests.append(facts)
    assert len(digests[1] - digests[0]) == 1


def test_variables_that_do_not_matter_do_not(started: Zygotes) -> None:
    done = started.warm(
        "-c", "import os; print(os.environ['CUDA_VISIBLE_DEVICES'], os.environ['OTHER'])",
        CUDA_VISIBLE_DEVICES="", OTHER="x",
    )  # fmt: skip
    assert (done.stdout, done.stderr) == (" x\n", "")


def test_a_variable_that_python_code_reads_at_import(started: Zygotes) -> None:
    reason = why(started, "-c", "import os; print(os.environ['HOME'])", HOME="/none")
    assert reason == "HOME differs from its value when it was read at import"


def test_a_package_that_looks_for_a_prefix(started: Zygotes) -> None:
    """tqdm, which torch imports where it is installed, lists the environment for its own names."""
    done = started.warm("-c", "import sys, torch; print('tqdm' in sys.modules)", OTHER="x")
    assert (done.stdout, done.stderr) == ("True\n", "")
    assert "no zygote is there" in why(started, "-c", "pass", TQDM_NCOLS="40")


def test_warmcc_disable(started: Zygotes) -> None:
    assert why(started, "-c", "0", WARMCC_DISABLE="1") == "WARMCC_DISABLE is 1"


@pytest.mark.parametrize(
    "name", ["torch.py", "numpy/__init__.py", "typing_extensions.py", "random.py"]
)
def test_a_module_beside_the_script_hides_another(started: Zygotes, name: str) -> None:
    """Also one of the standard library."""
    shutil.rmtree(started.where / "own", ignore_errors=True)
    started.script("print('hidden')\n", f"own/{name}")
    started.script("import torch\nprint(torch)\n", "own/run.py")
    entry = name.partition("/")[0]
    done = started.warm("own/run.py")
    assert f"{entry} in own hides a module that is imported here" in done.stderr
    assert done.stdout == started.plain("own/run.py").stdout
    link = started.where / f"linked_{entry}"
    link.symlink_to("own/run.py")
    assert f"{entry} in own hides" in started.warm(link.name).stderr
    shutil.move(started.where / "own" / "run.py", started.where / "own" / "__main__.py")
    assert f"{entry} in own hides" in started.warm("own").stderr


def test_a_module_in_the_working_directory(started: Zygotes) -> None:
    started.script("x = 'mine'\n", "typing_extensions.py")
    try:
        for words in (
            ("-c", "import typing_extensions as t; print(t.x)"),
            ("-m", "typing_extensions"),
        ):
            assert "typing_extensions.py in . hides" in why(started, *words)
    finally:
        (started.where / "typing_extensions.py").unlink()


@pytest.mark.parametrize(
    "text",
    [
        "import os\nos.environ['OMP_NUM_THREADS'] = '1'\n"
        "import torch\nprint(torch.get_num_threads())",
        "import sys\nsys.path.insert(0, '/none')\nimport torch",
        "import sys\nsys.path = ['/none', *sys.path]",
        "import sys\nsys.path[:0] = ['/none']",
        "import sys\nsys.meta_path.append(None)",
    ],
)
def test_a_script_that_changes_what_an_import_means(started: Zygotes, text: str) -> None:
    assert "changes where" in (reason := why(started, "-c", text)) or "OMP_NUM_THREADS" in reason
    assert "changes where" in (reason := why(started, started.script(text))) or "OMP_" in reason


def test_an_archive(started: Zygotes) -> None:
    started.script("print(__name__)\n", "app/__main__.py")
    shutil.make_archive(str(started.where / "app"), "zip", started.where / "app")
    assert why(started, "app.zip") == "app.zip is an archive"


def test_limits_niceness_and_processors(started: Zygotes) -> None:
    """What a fork would inherit from the zygote, and a new process from its launcher."""
    text = "import os, resource, torch; print(os.nice(0), resource.getrlimit(resource.RLIMIT_NOFILE), torch.get_num_threads())"  # noqa: E501
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for prefix in (
        ["nice", "-n", "3"], ["prlimit", f"--nofile={soft - 1}:{hard}"], ["taskset", "-c", "0"],
        ["unshare", "--user", "--map-root-user"],
    ):  # fmt: skip
        if shutil.which(prefix[0]) is None or subprocess.run([*prefix, "true"]).returncode != 0:
            continue
        outputs = [
            subprocess.run(
                [*prefix, *command], cwd=started.where, capture_output=True, text=True,
                env={**started.environment, "WARMCC_RUN_ZYGOTES": "0"},
            )
            for command in (started.command("-c", text), [PYTHON, "-c", text])
        ]  # fmt: skip
        assert "no zygote is there" in outputs[0].stderr, prefix
        assert outputs[0].stdout == outputs[1].stdout != "", prefix


def test_another_environment_has_another_zygote(started: Zygotes, tmp_path: Path) -> None:
    venv.create(tmp_path / "other", symlinks=True)
    found = next((tmp_path / "other" / "lib").glob("python*")) / "site-packages"
    site = next(one for one in sys.path if one.endswith("site-packages"))
    (found / "other.pth").write_text(f"import site; site.addsitedir({site!r})\n")
    done = subprocess.run(
        [tmp_path / "other" / "bin" / "python", "-m", "warmcc.client.run.launch", "--explain",
            "-c", "import sys; print(sys.prefix)"],
        cwd=started.where, env={**started.environment, "WARMCC_RUN_ZYGOTES": "0"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout == f"{tmp_path / 'other'}\n"
    assert "no zygote is there" in done.stderr


def test_changed_packages_end_the_zygote(fresh: Zygotes, tmp_path: Path) -> None:
    """A new file with the name of a module that is imported, before it on the path; one that is
    changed; then a zygote with the new state serves."""
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "own_settings.py").write_text("value = 1\n")
    variables = {
        "PYTHONPATH": str(tmp_path / "first"), "WARMCC_RUN_TORCH": "torch;own_settings",
    }  # fmt: skip
    fresh.start(**variables)
    words = ("-c", "import own_settings; print(own_settings.value)")
    (tmp_path / "first" / "unrelated.py").write_text("")
    assert fresh.warm(*words, **variables).stderr == ""
    (tmp_path / "first" / "own_settings.py").write_text("value = 22\n")
    assert "own_settings.py has changed" in why(fresh, *words, **variables)
    fresh.start(**variables)
    assert fresh.warm(*words, **variables).stdout == "22\n"
    (tmp_path / "first" / "torch").mkdir()  # no package
    assert fresh.warm(*words, **variables).stderr == ""
    (tmp_path / "first" / "numpy.py").write_text("")
    assert f"{tmp_path / 'first'} has changed" in why(fresh, *words, **variables)


def test_a_module_that_cannot_be_shared(fresh: Zygotes, tmp_path: Path) -> None:
    """What a zygote may not have is found, and it is not started again and again."""
    cases = {
        "starts_thread": ("import threading, time\nthreading.Thread(target=time.sleep,"
            " args=(99,), daemon=True).start()", "the import has started 1 threads"),
        "opens_file": ("f = open('/etc/passwd')", "the import has opened /etc/passwd"),
        "reads_all": ("import os\ndict(os.environ)", "reads_all reads the whole environment"),
        "is_broken": ("1 / 0", "ZeroDivisionError: division by zero"),
        "is_away": ("import nothing_here", "No module named 'nothing_here'"),
        "ends": ("import sys; sys.exit(3)", "SystemExit: 3"),
    }  # fmt: skip
    for name, (text, reason) in cases.items():
        (tmp_path / f"{name}.py").write_text(f"{text}\n")
        variables = {"PYTHONPATH": str(tmp_path), "WARMCC_RUN_TORCH": name}
        assert "one starts now" in fresh.warm("-c", "0", **variables).stderr
        deadline = time.monotonic() + 60
        while reason not in (said := fresh.warm("-c", "0", **variables).stderr):
            assert "could not be started" not in said, said
            assert time.monotonic() < deadline, f"{name}: {said}\n{fresh.logs()}"
            time.sleep(0.1)
        assert "one could not be started" in said
    assert fresh.pids() == []


def test_at_most_so_many_zygotes(fresh: Zygotes) -> None:
    """The one that was used least ends."""
    limit = {"WARMCC_RUN_TORCH": "json"}
    pids = []
    for number in "123":
        variables = {**limit, "WARMCC_RUN_ZYGOTES": "2", "TORCH_X": number}
        fresh.start(**variables)
        pids.append(set(fresh.pids()))
    assert [len(one) for one in pids] == [1, 2, 2]
    assert pids[0].isdisjoint(pids[2])


def test_an_idle_zygote_ends(fresh: Zygotes) -> None:
    fresh.start(WARMCC_RUN_TORCH="json", WARMCC_RUN_IDLE="0.2")
    deadline = time.monotonic() + 60
    while fresh.sockets:
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_a_folder_that_others_may_write_to(fresh: Zygotes) -> None:
    folder = fresh.runtime / runs.FOLDER
    folder.mkdir()
    os.chmod(folder, 0o777)
    assert "is open to others" in why(fresh, "-c", "print(1)")
    assert list(folder.iterdir()) == []


def test_a_zygote_that_does_not_answer(fresh: Zygotes) -> None:
    """It is stopped: python runs the program, once, after a limit."""
    fresh.start(WARMCC_RUN_TORCH="json")
    (pid,) = fresh.pids()
    os.kill(pid, 19)
    try:
        variables = {"WARMCC_RUN_TORCH": "json"}
        assert "did not answer within" in why(fresh, "-c", "print('once')", **variables)
    finally:
        os.kill(pid, 18)
    assert fresh.warm("-c", "print('once')", WARMCC_RUN_TORCH="json").stderr == ""
