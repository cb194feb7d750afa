"""A minimal client that moves gradients through Redis: a socket, SET and GET of prepared bytes, two short lists.

A gradient goes into one of a few slots, whose numbers travel in the lists `ready` and `free`. So memory is bounded, as
in the queue of gradients. `serve_forever` answers each with parameters of the same size.
"""

import socket

from benchmarks.baselines.raw_client import RawClient

pack = RawClient.pack


class RawSocket:
    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(path)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self.buffer = bytearray()

    def short(self, *args):
        """Send a command whose reply fits one read."""
        self.sock.sendall(pack(*args))
        return self.sock.recv(4096)

    def pop(self, name):
        """Wait for a slot, and return its number."""
        return self.short(b"BLPOP", name, b"0").split(b"\r\n")[-2]

    def put(self, slot, data, ready):
        """Store bytes in a slot, and push its number to a list."""
        head = pack(b"SET", slot, b"").removesuffix(b"$0\r\n\r\n") + b"$%d\r\n" % len(data)
        self.sock.sendall(head)
        self.sock.sendall(data)
        self.sock.sendall(b"\r\n" + pack(b"RPUSH", ready, slot))
        replies = b""
        while replies.count(b"\r\n") < 2:
            replies += self.sock.recv(4096)

    def get(self, slot, size):
        """Read the bytes of a slot into existing memory."""
        whole = size + len(b"$%d\r\n" % size) + 2
        if len(self.buffer) != whole:
            self.buffer = bytearray(whole)
        self.sock.sendall(pack(b"GET", slot))
        view = memoryview(self.buffer)
        while view:
            view = view[self.sock.recv_into(view) :]


def take_forever(path, size, taken):
    """Read gradients, and drop them."""
    raw = RawSocket(path)
    while True:
        slot = raw.pop(b"raw:ready")
        raw.get(slot, size)
        raw.short(b"RPUSH", b"raw:free", slot)
        taken.value += 1


def serve_forever(path, size):
    """Answer each gradient with parameters of its size."""
    raw, parameters = RawSocket(path), bytes(size)
    while True:
        raw.get(raw.pop(b"raw:ready"), size)
        raw.put(b"raw:parameters", parameters, b"raw:version")
