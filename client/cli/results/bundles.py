"""``warmcc pack``, ``unpack``, ``bundles`` and ``keygen``: artifacts for another machine."""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmcc.client.cli.display.output import as_json, size, table, talk
from warmcc.errors import BundleError, RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from warmcc.client.bundles.layout import Entry
    from warmcc.client.bundles.unpacking import Bundle


def add_pack(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "warmcc pack OUT NAME|KEY|PACKAGE… [--sign KEY] [--json]\n"
        "       warmcc pack OUT --record [--sign KEY] [--json] -- COMMAND"
    )
    parser.add_argument(
        "--record", action="store_true",
        help="run the command behind `--`, and pack what it loads and builds",
    )  # fmt: skip
    parser.add_argument(
        "--sign", metavar="KEY", help="the private key's file (default: the setting bundle_key)"
    )
    # With OUT, or argparse would take away the first "--"
    parser.add_argument(
        "words", nargs=argparse.REMAINDER, metavar="OUT",
        help="the bundle (.tar.gz, .tar.xz, .tar.zst, .tar), then names of extensions, keys as"
        " `warmcc cache ls` shows them, or folders that `warmcc prebuild` has written",
    )  # fmt: skip


def cmd_pack(arguments: argparse.Namespace) -> int:
    from warmcc.client.bundles import packing

    out, words, sign = _words(arguments)
    if arguments.record:
        packed, code = _recorded(out, words, sign)
        if packed is None:
            return code
    else:
        packed = packing.pack(out, words, key=sign)
    weight = os.path.getsize(packed.path)
    if arguments.json:
        as_json({**packed._asdict(), "bytes": weight})
    else:
        signed = f", signed with {packed.signer}" if packed.signer else ", not signed"
        talk(
            f"packed {len(packed.artifacts)} artifacts into {packed.path} ({size(weight)}, "
            f"bundle {packed.id[:12]}{signed})"
        )
    return 0


def _words(arguments: argparse.Namespace) -> tuple[str, list[str], str | None]:
    """The bundle's file, the names or the command, and the key. argparse leaves options behind the
    file among the words."""
    given = list(arguments.words)
    end = given.index("--") if "--" in given else len(given)
    before, command = given[:end], given[end + 1 :]
    names, sign = [], arguments.sign
    while before:
        word = before.pop(0)
        option, _, value = word.partition("=")
        if not word.startswith("-"):
            names.append(word)
        elif word == "--record":
            arguments.record = True
        elif word == "--json":
            arguments.json = True
        elif option == "--sign" and (value or before):
            sign = value or before.pop(0)
        else:
            raise RequestError(f"pack has no option {option}; see: warmcc pack --help")
    if not names:
        raise RequestError("name the bundle's file: warmcc pack OUT NAME")
    if arguments.record and (names[1:] or not command):
        raise RequestError("name the command alone: warmcc pack OUT --record -- python script.py")
    if command and not arguments.record:
        raise RequestError("a command is run only with --record; for names leave out the --")
    return names[0], command or names[1:], sign


def _recorded(out: str, words: list[str], sign: str | None) -> tuple[Bundle | None, int]:
    """Run a command, and pack what it got; its exit code where it has failed."""
    from warmcc.client.bundles import archive, packing, recording
    from warmcc.client.install import children

    archive.suffix_of(out)
    with tempfile.TemporaryDirectory(prefix="warmcc-record-") as folder:
        environment = {
            **children.environment(), recording.VARIABLE: folder, children.INDUCTOR: "1",
            **{name: os.path.join(folder, place) for name, place in recording.CACHES.items()},
        }  # fmt: skip
        try:
            code = subprocess.run(words, env=environment).returncode
        except OSError as error:
            raise RequestError(f"{words[0]} cannot be run: {error.strerror}") from None
        if code:
            talk(f"warmcc: the command failed with exit code {code}; nothing was packed")
            return None, code if code > 0 else 128 - code
        try:
            return packing.write(out, recording.recorded(Path(folder)), sign), 0
        except OSError as error:
            raise BundleError(f"{error.filename or out}: {error.strerror or error}") from None


def add_unpack(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the bundle")
    parser.add_argument(
        "--to", metavar="FOLDER", help="where to (default: WARMCC_BUNDLES, or the cache's bundles)"
    )
    parser.add_argument(
        "--list", action="store_true", help="only show what is in it; nothing is unpacked"
    )


def cmd_unpack(arguments: argparse.Namespace) -> int:
    from warmcc.client.bundles import unpacking

    if arguments.list:
        bundle, entries = unpacking.look(arguments.file)
        _show(bundle, entries, json=arguments.json)
        return 0
    bundle = unpacking.unpack(arguments.file, arguments.to)
    if arguments.json:
        as_json(bundle._asdict())
    else:
        talk(f"unpacked {len(bundle.artifacts)} artifacts into {bundle.path}")
        if arguments.to is not None:
            talk(f"calls find them with WARMCC_BUNDLES={os.path.dirname(bundle.path)}")
    return 0


def _show(bundle: Bundle, entries: Iterable[Entry], *, json: bool) -> None:
    if json:
        import msgspec

        as_json({**bundle._asdict(), "entries": [msgspec.to_builtins(one) for one in entries]})
        return
    print(f"bundle {bundle.id[:12]}" + (f", signed with {bundle.signer}" if bundle.signer else ""))
    rows = [("NAME", "SIZE", "TORCH", "GLIBC", "PYTHON", "GPU", "KEY")]
    for entry in entries:
        needs = entry.needs
        rows.append(
            (
                entry.name, size(entry.size), needs.torch, needs.symbols.get("GLIBC", "-"),
                needs.abi.strip(".").removesuffix(".so"), ",".join(needs.architectures) or "-",
                entry.key[:12],
            )
        )  # fmt: skip
    table(rows, right=(1,))


def add_bundles(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", choices=["ls", "rm"], help="ls: list the unpacked ones; rm: remove one"
    )
    parser.add_argument(
        "id", nargs="?", metavar="ID", help="of the one to remove, or its beginning"
    )


def cmd_bundles(arguments: argparse.Namespace) -> int:
    from warmcc import config, paths
    from warmcc.client.bundles import finding, unpacking

    if (arguments.action == "rm") != (arguments.id is not None):
        raise RequestError("rm needs the id of a bundle, and ls takes none: warmcc bundles rm ID")
    if arguments.action == "rm":
        removed = unpacking.remove(arguments.id)
        print(f"removed bundle {removed[:12]}")
        return 0
    found: list[dict[str, Any]] = []
    trusted, failed = config.load().bundle_trust, 0
    for one in unpacking.unpacked():
        folder = paths.bundles_dir() / one
        try:
            entries, reason = finding.read(folder, trusted), ""
        except (BundleError, OSError) as error:
            entries, reason, failed = [], str(error), 1
        names = [entry.name for entry in entries]
        weight = sum({entry.file: entry.size for entry in entries}.values())
        found.append({"id": one, "artifacts": names, "bytes": weight, "refused": reason})
    if arguments.json:
        as_json({"folder": str(paths.bundles_dir()), "bundles": found})
        return failed
    rows = [("BUNDLE", "SIZE", "ARTIFACTS")]
    for row in found:
        told = row["refused"] or ", ".join(row["artifacts"])
        rows.append((row["id"][:12], size(row["bytes"]), told))
    table(rows, right=(1,))
    return failed


def add_keygen(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the private key's, which must not exist")


def cmd_keygen(arguments: argparse.Namespace) -> int:
    from warmcc import signing

    public = signing.make_key(arguments.file)
    if arguments.json:
        as_json({"file": arguments.file, "public": public})
        return 0
    print(public)
    talk(
        f"The private key is in {arguments.file}: to sign, set bundle_key to this path. The line "
        "above is the public key: set bundle_trust to a list with it where bundles are loaded."
    )
    return 0
