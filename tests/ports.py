"""Ports for the servers of tests, each given to one test only: of this process, of other workers, of other sessions.

To find a port free and let go of it is not enough where several processes look at once. So each port is held by a UDP
socket of its number, which nothing else here uses: that lasts as long as this process, however it ends.
"""

from __future__ import annotations

import socket

#: Below 32768, where the kernel takes ports for clients; a cluster's server has a second one, 10000 above its first.
_PORTS = range(21_000, 22_700)
_BUS = 10_000

_held: list[socket.socket] = []


def claim_port() -> int:
    """Give a port that is free, as is its bus port, and that nobody is given again while this process lives."""
    for port in _PORTS:
        claim = socket.socket(type=socket.SOCK_DGRAM)
        try:
            claim.bind(("127.0.0.1", port))
            for used in (port, port + _BUS):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", used))
        except OSError:
            claim.close()
            continue
        _held.append(claim)
        return port
    raise RuntimeError("too few ports are free")
