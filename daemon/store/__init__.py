"""The store: results of builds, on disk, by content.

    <root>/                                0700, its owner's alone
      results/<kind>/<aa>/<key>            manifests; kind: artifact, unit, step, kernel
      objects/<aa>/<sha256>                object files, and what steps wrote
      artifacts/<aa>/<sha256>/<name>       finished .so files, executables, cubins, 0755
      headers/<aa>/<sha256>                header sets (payload: see closure/header_sets.py)
      staging/<pid>-<start>-<random>       what the process with that start time is writing
      quarantine/<path>-<random>           what did not match its digest; its path with - for /

Keys and digests are 64 lower-case hex digits, ``<aa>`` the first two of them. Nothing else is a
name here but ``<name>``, which is a plain file name. The key comes from the caller; everything else
is named by the SHA-256 of its content.

A manifest is

    manifest = sha256(payload) payload                     the 32 raw bytes, then the rest of the
    file
    payload  = msgpack {version: 1, kind, key, results}    newest used first, at most 16
    result   = msgpack {file, name, size, closure, created, meta}

``kind`` and ``key`` are the manifest's own name: one that was moved to another name is damaged. A
manifest of another version is not damaged, only empty; publishing replaces it. ``file`` is the
digest of the content, in ``artifacts`` when ``name`` says so and in ``objects`` when it is empty.
The mtime of a manifest is when it was last used.

Rules. Everything is written in ``staging``, flushed, and renamed into place; a published file is
never written again, and no file has a second name (what comes in is copied). Every read checks a
digest (a process that has checked one takes the file's inode, size and times for it from then on);
what does not match is moved to ``quarantine`` and is a miss. Files that no manifest names are left
by a crash at worst, and go with the next prune. One process writes; readers take no lock.
"""

from warmcc.daemon.store.manifest import REQUEST, Kind, Result
from warmcc.daemon.store.staging import staging_tree
from warmcc.daemon.store.store import Store

__all__ = ["REQUEST", "Kind", "Result", "Store", "staging_tree"]
