"""Many sockets that keep a server of this machine busy: `python -m tests.attack.rlx_sockets PORT COUNT [PAYLOAD]`.

Each one connects, sends the payload, if there is one, again and again, and connects again when it is closed. Prints a
line when all of them have been tried once, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

#: Between what one socket sends, and between its attempts, s.
PAUSE_S = 1.0


async def harass(port: int, payload: bytes, tried: asyncio.Event) -> None:
    while True:
        writer = None
        with suppress(OSError, TimeoutError):
            reader, writer = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), 30)
        tried.set()
        with suppress(OSError, asyncio.IncompleteReadError):
            while writer is not None and not reader.at_eof():
                writer.write(payload)
                with suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(4096), PAUSE_S)
        if writer is not None:
            writer.close()
        await asyncio.sleep(PAUSE_S)


async def main() -> None:
    port, count, payload = int(sys.argv[1]), int(sys.argv[2]), bytes.fromhex(sys.argv[3])
    tried = [asyncio.Event() for _ in range(count)]
    tasks = [asyncio.create_task(harass(port, payload, each)) for each in tried]
    for each in tried:
        await each.wait()
    sys.stdout.write("all\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    for task in tasks:
        task.cancel()


if __name__ == "__main__":
    asyncio.run(main())
