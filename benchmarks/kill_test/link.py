"""A link that can be cut: it forwards one port of this machine to another until it gets SIGSTOP.

    python -m benchmarks.kill_test.link LISTEN TARGET

While it is stopped, no bytes pass, and new connections get no answer. After SIGCONT, everything arrives late, as TCP
sends it again after a cut.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field

#: Environment variable of programs whose link may be cut: the port to connect to, and the port that the store has.
LINK = "KILL_TEST_LINK"
_CHUNK = 1 << 16


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Link:
    """A forwarder in a separate process."""

    listen: int = field(default_factory=_free_port)
    target: int = field(default_factory=_free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        return {LINK: f"{self.listen}:{self.target}"}

    def start(self) -> None:
        command = [sys.executable, "-m", "benchmarks.kill_test.link", str(self.listen), str(self.target)]
        self.process = subprocess.Popen(command)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def ports() -> tuple[int, int] | None:
    """Return the port to connect to and the port of the store; None if this run's link is not cut."""
    found = os.environ.get(LINK)
    if found is None:
        return None
    listen, _, target = found.partition(":")
    return int(listen), int(target)


async def forward(listen: int, target: int) -> None:
    """Forward all connections until this process ends."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_pass(reader, far_writer), _pass(far_reader, writer))

    server = await asyncio.start_server(accept, "127.0.0.1", listen)
    await server.serve_forever()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    writer.close()


if __name__ == "__main__":
    asyncio.run(forward(int(sys.argv[1]), int(sys.argv[2])))
