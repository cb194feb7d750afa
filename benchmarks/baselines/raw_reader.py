"""A minimal reader of the same bytes: XREAD, pipelined GETs, and replies that hiredis parses and nothing uses."""

import socket

import hiredis

from benchmarks.baselines.raw_client import RawClient


def read_forever(path, stop):
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(path)
    reader, cursor, pack = hiredis.Reader(), b"$", RawClient.pack

    def reply():
        while True:
            answer = reader.gets()
            if answer is not False:
                return answer
            reader.feed(sock.recv(1 << 18))

    while not stop.is_set():
        sock.sendall(pack(b"XREAD", b"COUNT", b"16", b"BLOCK", b"100", b"STREAMS", b"raw:stream", cursor))
        answer = reply()
        if answer:
            entries = answer[0][1]
            cursor = entries[-1][0]
            sock.sendall(b"".join([pack(b"GET", b"raw:block:" + fields[3]) for _, fields in entries]))
            for _ in entries:
                reply()
