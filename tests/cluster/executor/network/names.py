"""The cluster's name server: a program that answers for the names of Services, and for nothing else.

    python names.py ZONE    answers on UDP port 53, out of a JSON file {name: [addresses]} that the cluster rewrites

It runs in a pod of its own, so that policies which forget it are noticed. Of the protocol (RFC 1035) it has one
question with type A; a name without such an address has an empty answer, an unknown one the code for it.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
from pathlib import Path

_A, _INTERNET = 1, 1
_ANSWER, _UNKNOWN_NAME = 0x8580, 3
_TTL_S = 1
_NAME_OF_QUESTION = 0xC00C  # a pointer to the first name of the message


def answer(query: bytes, zone: dict[str, list[str]]) -> bytes:
    """The reply to a query."""
    (number,) = struct.unpack_from("!H", query)
    labels, place = [], 12
    while length := query[place]:
        labels.append(query[place + 1 : place + 1 + length].decode())
        place += 1 + length
    question = query[12 : place + 5]
    (kind,) = struct.unpack_from("!H", query, place + 1)
    addresses = zone.get(".".join(labels).lower())
    records = [socket.inet_aton(address) for address in addresses or []] if kind == _A else []
    flags = _ANSWER | (_UNKNOWN_NAME if addresses is None else 0)
    head = struct.pack("!6H", number, flags, 1, len(records), 0, 0)
    fields = struct.pack("!HHHIH", _NAME_OF_QUESTION, _A, _INTERNET, _TTL_S, 4)
    return head + question + b"".join(fields + record for record in records)


def main(zone: Path) -> None:
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("", 53))
    while True:
        query, peer = server.recvfrom(512)
        server.sendto(answer(query, json.loads(zone.read_text())), peer)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
