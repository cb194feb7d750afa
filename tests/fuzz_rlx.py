"""Feeds the RLX codec with frames mutated from valid ones: `python -m tests.fuzz_rlx 1000000 [SEED]`.

What must hold for every input: the only exception is `RlxError`, and nothing larger than the limits allow is allocated.
"""

from __future__ import annotations

import asyncio
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np

from surreal.base.tree import leaves
from surreal.rlx.pool.pool import RlxEnvPool
from surreal.rlx.pool.ranges import ValueLimits
from surreal.rlx.protocol.codec import decode, dump_json, encode, parse_json
from surreal.rlx.protocol.errors import Limits, RlxError
from surreal.rlx.protocol.framing import FrameReader, frame
from surreal.rlx.protocol.layouts import Layouts
from surreal.rlx.server.admission import Admission
from surreal.rlx.server.connections.tcp import TcpConnection
from surreal.rlx.server.hub import Hub
from surreal.rlx.server.settings import ServerSettings

LIMITS = Limits(max_bytes=4096, max_items=500, max_depth=8)
#: A decoded message of 4096 bytes is never larger: images grow by 4, lists of small values most of all.
MAX_ALLOCATED = 16 * LIMITS.max_bytes

#: Numbers that break sums, signs and allocations.
_NUMBERS = [0, 1, 2, 3, 7, 8, 255, 256, 4095, 4096, 65_535, 2**24, 10**9, 2**31 - 1, 2**31, 2**32 - 1]


def _image(mode: bytes, width: int, height: int, raw: bytes) -> bytes:
    head = encode({}) + b"\x05\0\0\0state\x06" + len(mode).to_bytes(4, "little") + mode
    return head + b"".join(size.to_bytes(4, "little") for size in (width, height, len(raw))) + raw


def seeds() -> list[bytes]:
    """Valid payloads of every kind."""
    rng = np.random.default_rng(0)
    values: list[Any] = [
        None, True, -5, 2**40, 0.25, "text", [], [1, [2.5, ["x"]]], {"a": {"b": [None, True]}}, [0.5] * 20, [7] * 20,
        np.zeros((3, 4), np.float32), np.array(5), np.arange(6, dtype=">f4"), np.array(["ab", "c"]), np.zeros((0, 3)),
        rng.integers(0, 255, (8, 8), np.uint8), np.array([True, False]), [np.arange(3), {"x": np.zeros(2)}],
    ]  # fmt: skip
    plain = np.arange(4, dtype=np.float32)
    nested = {"a": [0.5, 1.0, 2.0, -1.0], "b": plain}
    messages: list[dict[str, Any]] = [
        {"command": "update", "reward": value, "state": plain, "terminal": False} for value in (None, 1.0, 2)
    ]
    messages += [{"command": "update", "reward": 1.0, "state": value, "terminal": False} for value in values]
    messages += [{"command": "update", "reward": None, "state": nested, "terminal": end} for end in (False, True)]
    messages += [{"command": "update", "reward": [1, 2.0], "state": nested, "terminal": end} for end in (False, True)]
    messages += [{"command": "init", "exploit": True}, {"command": "reset"}, {"response": "error", "message": "no"}]
    messages.append({"command": "update_metrics", "data": [{"method": "scalar", "name": "n", "y": 1.5, "x": None}]})
    images = [_image(b"RGB", 2, 2, bytes(12)), _image(b"1", 9, 2, b"\xff\0\x80\0"), _image(b"F", 1, 2, bytes(8))]
    return [*(encode(message) for message in messages), *images]


def mutate(data: bytes, rng: np.random.Generator, others: list[bytes]) -> bytes:
    """Change a payload in one to four ways."""
    out = bytearray(data)
    for _ in range(int(rng.integers(1, 5))):
        position = int(rng.integers(0, len(out) + 1))
        kind = int(rng.integers(0, 8))
        if kind == 0 and out:
            out[position % len(out)] ^= 1 << int(rng.integers(0, 8))
        elif kind == 1 and out:
            out[position % len(out)] = int(rng.integers(0, 13))
        elif kind == 2:
            out[position : position + 4] = _NUMBERS[int(rng.integers(0, len(_NUMBERS)))].to_bytes(4, "little")
        elif kind == 3:
            del out[position:]
        elif kind == 4:
            del out[position : position + int(rng.integers(1, 9))]
        elif kind == 5:
            out[position:position] = rng.bytes(int(rng.integers(1, 9)))
        elif kind == 6:
            other = others[int(rng.integers(0, len(others)))]
            start = int(rng.integers(0, len(other)))
            out[position:position] = other[start : start + int(rng.integers(1, 60))]
        else:
            start = int(rng.integers(0, len(out) + 1))
            out[position:position] = out[start : start + 40] * int(rng.integers(1, 30))
        del out[2 * LIMITS.max_bytes :]
    return bytes(out)


def try_payload(payload: bytes) -> bool:
    """Decode it, and encode again what came of it; returns whether it was valid."""
    try:
        message = decode(payload, LIMITS)
    except RlxError:
        return False
    again = decode(encode(message), Limits())
    if repr(again) != repr(message):
        raise AssertionError(f"{payload.hex()} decodes to {message!r}, which comes back as {again!r}")
    return True


def try_frames(data: bytes, rng: np.random.Generator) -> None:
    """Feed a byte stream in random pieces, as a server does."""
    reader, layouts = FrameReader(LIMITS), Layouts()
    position = 0
    while position < len(data):
        size = int(rng.integers(1, 64))
        try:
            for payload in reader.feed(data[position : position + size]):
                message = decode(payload, LIMITS)
                layouts.learn(payload, message)
                layout = layouts.get(len(frame(payload)))
                values = None if layout is None else layout.read(frame(payload))
                if layout is not None and values is not None:
                    quick = layout.message(*values)
                    if message.get("truncated") or repr(quick) != repr({key: message.get(key) for key in quick}):
                        raise AssertionError(f"{payload.hex()} is read as {quick!r}, and decoded as {message!r}")
        except RlxError:
            return
        if reader.pending > LIMITS.max_bytes + 64:
            raise AssertionError(f"the reader holds {reader.pending} bytes")
        position += size


class _Nowhere:
    """A transport whose peer has gone."""

    def __init__(self) -> None:
        self.is_closed = False

    def write(self, data: bytes) -> None:
        for payload in FrameReader().feed(data):
            if decode(payload)["response"] not in ("ready", "action", "done", "error"):
                raise AssertionError(f"the server answers {data!r}")

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, _: str) -> None:
        return None

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Server:
    """All of a server but its sockets and threads: what reaches a connection, and what the pool makes of it."""

    def __init__(self, observation_space: gymnasium.Space[Any], limits: ValueLimits) -> None:
        self.loop = asyncio.new_event_loop()
        self.pool = RlxEnvPool(gymnasium.spaces.Discrete(2), observation_space, limits=limits)
        self.largest = 2.0 if limits.keeps_bounds else limits.observation
        self.hub = Hub(self.pool, ServerSettings(limits=LIMITS, admission=Admission(None, 0)), self.loop)

    def try_session(self, messages: list[bytes], rng: np.random.Generator) -> None:
        """Let one client send these payloads."""
        connection = TcpConnection(self.hub, _Nowhere())  # type: ignore[arg-type]
        for payload in (encode({"command": "init"}), *messages):
            data = frame(payload)
            connection.get_buffer(-1)[: len(data)] = data
            connection.buffer_updated(len(data))
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()
            batch = self.pool.recv(0.0)
            ids = batch.env_ids[batch.num_last :]
            if len(ids):
                if not np.isfinite(batch.reward).all():
                    raise AssertionError(f"{payload.hex()} gives a reward of {batch.reward}")
                if not all((np.abs(leaf) <= self.largest).all() for leaf in leaves(batch.obs)):
                    raise AssertionError(f"{payload.hex()} gives an observation of {batch.obs}")
                self.pool.send(rng.integers(0, 2, len(ids)), ids)
        connection.connection_lost(None)


def try_json(text: bytes) -> None:
    """Parse it, and write it again."""
    try:
        dump_json(parse_json(text, LIMITS))
    except RlxError:
        return


def run(count: int, seed: int = 0) -> int:
    """Try so many inputs; returns how many of the payloads were valid."""
    rng, valid = np.random.default_rng(seed), 0
    payloads = seeds()
    box = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    strict, lenient = ValueLimits(keeps_bounds=True), ValueLimits()
    nested = gymnasium.spaces.Dict({"a": box, "b": box})
    servers = [Server(box, strict), Server(box, lenient), Server(nested, strict)]
    texts = [
        b'{"sid": "a", "command": "update", "state": [1, 2.5, [true, null]]}',
        b'{"a": {"b": [{}]}}',
        b"[[[1e999]]]",
    ]
    for number in range(count):
        valid += try_payload(mutate(payloads[number % len(payloads)], rng, payloads))
        if number % 8 == 0:
            stream = b"".join(frame(payloads[int(index)]) for index in rng.integers(0, len(payloads), 4))
            try_frames(mutate(stream, rng, payloads), rng)
            try_json(mutate(texts[number // 8 % len(texts)], rng, texts))
            chosen = [payloads[int(index)] for index in rng.integers(0, len(payloads), 4)]
            for server in servers:
                usual = payloads[:3] if server is not servers[-1] else []
                server.try_session([*usual, *(mutate(payload, rng, payloads) for payload in [*usual, *chosen])], rng)
    for server in servers:
        server.hub.poller.close()
        server.loop.close()
    return valid


def largest_allocation(payloads: Iterator[bytes], act: Callable[[bytes], object]) -> int:
    """Peak of the memory that a call takes, over all of these payloads, in bytes."""
    worst = 0
    tracemalloc.start()
    try:
        for payload in payloads:
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            act(payload)
            worst = max(worst, tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()
    return worst


def mutations(count: int, seed: int = 0) -> Iterator[bytes]:
    """So many mutated payloads."""
    rng, payloads = np.random.default_rng(seed), seeds()
    for number in range(count):
        yield mutate(payloads[number % len(payloads)], rng, payloads)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    started_s = time.monotonic()
    valid = run(count, seed)
    worst = largest_allocation(mutations(min(count, 100_000), seed + 1), try_payload)
    if worst > MAX_ALLOCATED:
        raise AssertionError(f"a message of at most {LIMITS.max_bytes} bytes took {worst} bytes")
    elapsed_s = time.monotonic() - started_s
    sys.stdout.write(f"{count} frames, {valid} of them valid, at most {worst} bytes allocated, {elapsed_s:.0f} s\n")


if __name__ == "__main__":
    main()
