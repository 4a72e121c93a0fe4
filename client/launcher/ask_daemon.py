"""A compiler's command as a request, and its answer as the compiler would give it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import tempfile

from warmcc.client.calls import arguments as args
from warmcc.client.calls import compilers, objects
from warmcc.client.calls.names import Names
from warmcc.client.connection import ask, session
from warmcc.client.launcher import depfile
from warmcc.client.launcher.command_line import Command, NotOurs
from warmcc.client.loading import loader
from warmcc.errors import WarmccError
from warmcc.protocol import Build, Built, Declined, Failed, Fallback, encode
from warmcc.request import Request

_NOT_COMPILED = 3  # as other commands of warmcc end without a daemon
_CODE = re.compile(r"^FAILED: \[code=(\d+)\]", re.M)
# Those with which nvcc ends: ptxas', and its front ends'
_NVCCS = (
    (re.compile(r"^ptxas (?:error|fatal)", re.M), 255),
    (re.compile(r"^[^\s(][^(\n]*\(\d+\): (?:catastrophic )?error", re.M), 2),
)
_STARTED = re.compile(r"\[\d+/\d+\] ")
# Where the daemon has a compiler put what it needs in between
_STAGING = re.compile(r"/[^\s:,]*/staging/\d+-\d+-[0-9a-f]{16}/tmp(?=/)")


class _Output:
    """What the compilers of the daemon say, as the one called ``name`` would say it."""

    def __init__(self, name: str, request: Request, names: Names) -> None:
        self._name = os.path.basename(name)
        used = request.environment.get("CXX", "c++").split(" ")[0]
        self._used = re.compile(rf"^{re.escape(os.path.basename(used))}: ", re.M)
        self._names = names

    def as_written(self, text: str) -> str:
        text = self._used.sub(f"{self._name}: ", text)
        text = _STAGING.sub(tempfile.gettempdir(), text)
        return self._names.as_written(text)


def compiled(name: str, program: str, command: Command) -> int:
    """The exit code of a command that the daemon has done. ``name`` is the program's, as it is
    written. Raises NotOurs."""
    try:
        names = Names(command.source, command.flags, os.getcwd(), is_cuda=command.is_cuda)
        request = _request(program, command, names)
        answer = ask.ask(request, len(encode(Build(0, request))))
    except (args.NotCarried, UnicodeEncodeError) as reason:
        raise _left(f"launcher: {reason}") from None
    except WarmccError as error:
        raise _left("", str(error)) from None
    output = _Output(name, request, names)
    if isinstance(answer, Declined):
        raise _left("", "" if answer.expected else answer.reason)
    if isinstance(answer, Failed):
        return _failed(answer, output)
    try:
        return _put(command, answer, output)
    except OSError as error:  # which the compiler meets as well, and says in its own words
        raise _left(f"launcher: cannot write the result: {error.strerror}") from None


def _request(program: str, command: Command, names: Names) -> Request:
    """Raises NotCarried."""
    home = None
    if command.is_cuda:
        home = os.path.dirname(os.path.dirname(shutil.which(program) or program))
    environment = objects.environment(home)
    if not command.is_cuda:
        environment["CXX"] = compilers.for_cpp(program, environment.get("CXX", "c++"))
    elif command.host and not compilers.can_be_named(command.host):
        raise args.NotCarried("a host compiler that has no plain name")
    else:
        environment = compilers.with_host(environment, command.host)
    words = [shlex.quote(word).replace("$", "$$") for word in names.flags]
    return objects.request(
        names.source, command.object, words, os.getcwd(), environment, args.interpreter(),
        is_cuda=command.is_cuda, verbose=False,
    )  # fmt: skip


def _left(counted: str, said: str = "") -> NotOurs:
    """Have it counted that the compiler does it, and say why where something is broken: with
    WARMCC_FALLBACK=0 the command ends with that."""
    if counted:
        try:
            session.current(autostart=False).tell(Fallback(counted))
        except WarmccError:
            session.forget()
    if said and os.environ.get("WARMCC_FALLBACK") == "0":
        print(f"warmcc: {said}\nwarmcc: not compiled: WARMCC_FALLBACK is 0", file=sys.stderr)
        sys.exit(_NOT_COMPILED)
    if said:
        print(f"warmcc: {said}\nwarmcc: the compiler itself does it", file=sys.stderr)
    return NotOurs(counted or said)


def _failed(answer: Failed, output: _Output) -> int:
    """Say what the compiler said, and give its exit code. Where it said nothing of an error, it has
    to try: raises NotOurs."""
    if not any("error" in one.severity for one in answer.diagnostics):
        raise _left("launcher: no error is among what the compiler said")
    _, _, text = answer.message.partition("': ")
    sys.stderr.write(output.as_written(compilers_words(text)))
    if (told := _CODE.search(text)) is not None:
        return int(told[1])
    return next((code for pattern, code in _NVCCS if pattern.search(text)), 1)


def _put(command: Command, answer: Built, output: _Output) -> int:
    """Raises OSError, NotOurs."""
    if command.depfile is not None and not answer.depends:
        raise _left("launcher: what was read is not known")
    if command.depfile is not None:
        rule = depfile.text(command, command.depfile, answer.depends)
        with open(command.depfile.path, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(rule)
    loader.put(answer.path, command.object)
    sys.stderr.write(output.as_written(compilers_words(answer.output)))
    return 0


def compilers_words(output: str) -> str:
    """What the compiler said, of what ninja printed: without its commands and its own lines."""
    commands: set[str] = set()
    found = []
    for row in output.splitlines(keepends=True):
        if started := _STARTED.match(row):
            commands.add(row[started.end() :])
        elif not row.startswith(("FAILED: ", "ninja: ")) and row not in commands:
            found.append(row)
    return "".join(found)
