"""Many clients at once, each asking for one extension after another out of a common set: what
overload looks like.
"""

from __future__ import annotations

import random
import statistics
import time
from dataclasses import dataclass, field

import zmq

from tests.support.calls import Connection, module_source, request
from tests.support.daemons import Daemon
from warmcc.protocol import Built, Output, Progress, decode_daemon_message


@dataclass
class Load:
    """``built`` holds the paths that were answered for each source (by what its module answers),
    ``finished`` the seconds after which each client had all its answers, ``waits`` those of each
    request."""

    built: dict[int, set[str]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    finished: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    @property
    def unfairness(self) -> float:
        """How long the last client took, relative to the median one."""
        return max(self.finished) / statistics.median(self.finished)


def put(daemon: Daemon, *, clients: int, requests: int, sources: int, seed: int = 1) -> Load:
    """Each of ``clients`` asks for ``requests`` of ``sources`` distinct extensions, in an order of
    its own.
    """
    chance = random.Random(seed)
    wanted = {
        1000 + number: request(cpp_sources=[module_source(1000 + number)])
        for number in range(sources)
    }
    load = Load()
    with zmq.Context() as context:
        connections = [Connection(daemon, context) for _ in range(clients)]
        poller = zmq.Poller()
        left: dict[zmq.Socket[bytes], list[int]] = {}
        asked: dict[zmq.Socket[bytes], float] = {}
        by_socket = {connection.socket: connection for connection in connections}
        began = time.monotonic()
        for place, connection in enumerate(connections):
            own = [1000 + (place * requests + number) % sources for number in range(requests)]
            chance.shuffle(own)
            left[connection.socket] = own
            poller.register(connection.socket, zmq.POLLIN)
            asked[connection.socket] = time.monotonic()
            connection.ask(wanted[own[-1]])
        while left:
            ready = poller.poll(120_000)
            assert ready, f"{len(left)} clients wait without a word:\n{daemon.log()[-3000:]}"
            for socket, _ in ready:
                answer = decode_daemon_message(socket.recv_multipart()[1])
                if isinstance(answer, (Progress, Output)):
                    continue
                own = left[socket]
                if isinstance(answer, Built):
                    load.built.setdefault(own[-1], set()).add(answer.path)
                else:
                    load.wrong.append(str(answer)[:300])
                load.waits.append(time.monotonic() - asked[socket])
                own.pop()
                if own:
                    asked[socket] = time.monotonic()
                    by_socket[socket].ask(wanted[own[-1]])
                else:
                    load.finished.append(time.monotonic() - began)
                    poller.unregister(socket)
                    del left[socket]
        for connection in connections:
            connection.close()
    return load
