"""A minimal client that stores bytes with a script: a socket, one packed EVALSHA, one short reply.

The script stores a block and a stream entry, and deletes those of 64 calls ago.
"""

import socket

SCRIPT = b"""redis.call('SET', KEYS[2], ARGV[2])
redis.call('XADD', KEYS[1], 'MAXLEN', '64', '*', 'table', ARGV[1], 'id', ARGV[3])
return 1"""


class RawClient:
    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(path)
        self.sha = self.call(b"SCRIPT", b"LOAD", SCRIPT).split(b"\r\n")[1]

    @staticmethod
    def pack(*args):
        parts = [b"*%d\r\n" % len(args)]
        parts += [b"$%d\r\n%b\r\n" % (len(arg), arg) for arg in args]
        return b"".join(parts)

    def call(self, *args):
        self.sock.sendall(self.pack(*args))
        return self.sock.recv(4096)

    def store(self, packed):
        self.sock.sendall(packed)
        if self.sock.recv(64)[:1] != b":":
            raise RuntimeError("the script failed")

    def packed_store(self, number, table, block):
        slot = b"%d" % (number % 64)
        return self.pack(b"EVALSHA", self.sha, b"2", b"raw:stream", b"raw:block:" + slot, table, block, slot)
