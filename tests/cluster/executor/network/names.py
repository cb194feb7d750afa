"""The cluster's name server, a program that answers for the names of Services, and for nothing else.

    python names.py ZONE    answers on UDP port 53, from a JSON file {name: [addresses]} that the cluster rewrites

Like a pod, it is behind a cable, so policies that forget it are noticed. It answers questions of type A (RFC 1035).
"""

from __future__ import annotations

import json
import socket
import struct
import sys
from pathlib import Path

_A = 1
_ANSWER, _UNKNOWN_NAME = 0x8580, 3
#: A pointer to the message's first name, type A, class Internet, a lifetime of 1 s, and 4 bytes of address.
_RECORD = struct.pack("!HHHIH", 0xC00C, _A, 1, 1, 4)


def answer(query: bytes, zone: dict[str, list[str]]) -> bytes:
    """The reply to a query."""
    labels, place = [], 12
    while length := query[place]:
        labels.append(query[place + 1 : place + 1 + length].decode())
        place += 1 + length
    (kind,) = struct.unpack_from("!H", query, place + 1)
    addresses = zone.get(".".join(labels).lower())
    records = [_RECORD + socket.inet_aton(address) for address in addresses or []] if kind == _A else []
    flags = _ANSWER | (_UNKNOWN_NAME if addresses is None else 0)
    return query[:2] + struct.pack("!5H", flags, 1, len(records), 0, 0) + query[12 : place + 5] + b"".join(records)


if __name__ == "__main__":
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("", 53))
    while True:
        question, peer = server.recvfrom(512)
        server.sendto(answer(question, json.loads(Path(sys.argv[1]).read_text())), peer)
