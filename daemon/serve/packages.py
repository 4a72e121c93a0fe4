"""What a ``setup.py`` needs warm. Its commands have Python's own flags and name torch's folders by
``-I``, so that nothing that is warm for a call of ``load_inline`` serves them.
"""

from __future__ import annotations

import shlex
import sys
import sysconfig

from warmcc.daemon.plan import one_object, requested
from warmcc.daemon.plan.planner import Trial
from warmcc.daemon.serve.targets import NAME
from warmcc.daemon.toolchain.flags import split
from warmcc.request import Request, one_name

SETUP = "setup.py"  # in front of flags that a package has, among sets of flags
SOURCE = "#include <torch/extension.h>\n"
_NAMES = ("-DTORCH_", "-DPYBIND11_")
_LAST = ("-gencode", "-std=", "-D_GLIBCXX_USE_CXX11_ABI")


def trial(call: Trial, flags: list[str]) -> Trial | None:
    """That of a package's source with these flags of its own, by that of a call of ``load_inline``
    with none; None where torch does not build, or Python's flags are not known here."""
    if call.plan is None or call.request.interpreter.executable != one_name(sys.executable):
        return None
    is_cuda = requested.with_cuda(call.request)
    words = split(call.plan.cuda_cflags if is_cuda else call.plan.cflags)
    quoted = [
        shlex.quote(word).replace("$", "$$")
        for word in words_of_setup(words, flags, [] if is_cuda else _pythons())
    ]
    request = Request(
        call="compile", name=f"{NAME}.o", module_name=f"{NAME}.o",
        interpreter=call.request.interpreter, environment=call.request.environment,
        sources=[f"/{NAME}.cu" if is_cuda else f"/{NAME}.cpp"], build_directory="/",
        is_python_module=False, extra_cflags=[] if is_cuda else quoted,
        extra_cuda_cflags=quoted if is_cuda else [],
    )  # fmt: skip
    return Trial(request, call.toolchain, one_object.plan(request, call.toolchain))


def _pythons() -> list[str]:
    """The flags with which this Python was compiled, which setuptools has in every command."""
    names = ("CFLAGS", "CCSHARED")
    return [word for name in names for word in split(sysconfig.get_config_var(name) or "")]


def words_of_setup(words: list[str], flags: list[str], pythons: list[str]) -> list[str]:
    """Words of ``load_inline`` as torch's ``BuildExtension`` has them, in its order.

    >>> words = "-DTORCH_EXTENSION_NAME=a -isystem /t -isystem /p -fPIC -std=c++20".split()
    >>> words_of_setup(words, ["-O2"], ["-g", "-O3", "-fPIC"])
    ['-g', '-O3', '-fPIC', '-I/t', '-I/p', '-O2', '-DTORCH_EXTENSION_NAME=a', '-std=c++20']
    >>> words_of_setup(["-w", "-std=c++20"], ["-std=c++17"], [])  # torch adds one where none is
    ['-w', '-std=c++17']
    """
    if any(word.startswith("-std=") for word in flags):
        words = [word for word in words if not word.startswith("-std=")]
    folders: list[str] = []
    names: list[str] = []
    last: list[str] = []
    others: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "-isystem":
            folders.append(f"-I{next(rest, '')}")
        elif word.startswith(_NAMES):
            names.append(word)
        elif word.startswith(_LAST):
            last.append(word)
        elif word not in pythons:
            others.append(word)
    return [*pythons, *folders, *others, *flags, *names, *last]
