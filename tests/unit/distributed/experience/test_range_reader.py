"""RangeReader against a server made of bytes: replies in pieces of any size, missing, short, refused, broken off."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

from surreal.distributed.experience.range_reader import RangeReader, RangeRequest, bulk, getrange_prefix
from tests.examples import examples


class FakeServer:
    """A client, its pool, its connection and its socket in one: answers GETRANGE and ECHO from a dictionary."""

    def __init__(self, blocks: dict[str, bytes], pieces: list[int] | None = None) -> None:
        self.blocks, self.pieces = blocks, pieces or [1 << 20]
        self.redis = self.connection_pool = self._sock = self
        self.errors: dict[str, bytes] = {}
        self.fails_after: int | None = None  # bytes until the connection breaks
        self.sent = self.connections = self.number = 0
        self.ready = b""

    def get_connection(self) -> FakeServer:
        self.connections += 1
        return self

    def release(self, connection: Any) -> None:
        pass

    def disconnect(self) -> None:
        self.ready = b""

    def sendall(self, commands: bytes) -> None:
        for key, first, last, text in re.findall(
            rb"GETRANGE\r\n\$\d+\r\n(\w+)\r\n\$\d+\r\n(\d+)\r\n\$\d+\r\n(\d+)\r\n|ECHO\r\n\$16\r\n(\w{16})\r\n",
            commands,
        ):
            if text:
                self.ready += b"$16\r\n%b\r\n" % text
                self.sent += 1
            elif key.decode() in self.errors:
                self.ready += b"%b\r\n" % self.errors[key.decode()]
            else:
                found = self.blocks.get(key.decode(), b"")[int(first) : int(last) + 1]
                self.ready += b"$%d\r\n%b\r\n" % (len(found), found)

    def recv_into(self, view: memoryview) -> int:
        assert self.ready, "a read that would wait for ever"
        size = min(self.pieces[self.number % len(self.pieces)], len(view), len(self.ready))
        self.number += 1
        if self.fails_after is not None:
            size = min(size, self.fails_after)
            self.fails_after -= size
            if size == 0:
                self.fails_after = None
                return 0
        view[:size] = self.ready[:size]
        self.ready = self.ready[size:]
        return size


def request(*ranges: tuple[str, int, int]) -> RangeRequest:
    """Ranges of (key, first byte, length)."""
    texts = [getrange_prefix(key) + bulk(first) + bulk(first + length - 1) for key, first, length in ranges]
    return RangeRequest(b"".join(texts), np.array([length for _, _, length in ranges]))


def ranges_of(reply: Any, asked: RangeRequest) -> list[bytes]:
    assert reply.is_whole is None
    pairs = zip(reply.offsets.tolist(), asked.lengths.tolist(), strict=True)
    return [reply.buffer[offset : offset + length].tobytes() for offset, length in pairs]


BLOCK = bytes(range(256)) * 8

spans = st.tuples(st.sampled_from(["a", "b", "gone"]), st.integers(0, 1000), st.integers(1, 1500))


@examples(150)
@given(
    batches=st.lists(st.lists(spans, min_size=1, max_size=6), min_size=1, max_size=5),
    pieces=st.lists(st.integers(1, 4000), min_size=1, max_size=5),
    ahead=st.integers(1, 3),
)
def test_what_is_there_comes_and_what_is_not_is_told(
    batches: list[list[tuple[str, int, int]]], pieces: list[int], ahead: int
) -> None:
    blocks = {"a": BLOCK, "b": b"$5\r\nhello\r\n" * 100}
    server = FakeServer(blocks, pieces)
    reader = RangeReader(server)  # type: ignore[arg-type]
    asked = [request(*batch) for batch in batches]
    number_asked = 0
    for i, (batch, expected) in enumerate(zip(batches, asked, strict=True)):
        for further in asked[number_asked : i + ahead]:
            reader.ask(further)
            number_asked += 1
        reply = reader.answer()
        found = [blocks.get(key, b"")[first : first + length] for key, first, length in batch]
        is_whole = [len(text) == length for text, (_, _, length) in zip(found, batch, strict=True)]
        if all(is_whole):
            assert ranges_of(reply, expected) == found
        else:
            assert reply.is_whole is not None
            assert reply.is_whole.tolist() == is_whole
    assert server.connections == 1


def test_after_a_broken_connection_everything_is_asked_again() -> None:
    server = FakeServer({"a": BLOCK})
    reader = RangeReader(server)  # type: ignore[arg-type]
    asked = [request(("a", begin, 50)) for begin in range(3)]
    for one in asked:
        reader.ask(one)
    server.fails_after = 90
    with pytest.raises(RedisConnectionError):
        for _ in asked:
            reply = reader.answer()
    assert ranges_of(reader.answer(), asked[1]) == [BLOCK[1:51]]
    reply = reader.answer()
    assert ranges_of(reply, asked[2]) == [BLOCK[2:52]]
    assert server.connections == 2


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"-LOADING Redis is loading", ResponseError),
        (b"-NOPERM this user has no permissions", ResponseError),
        (b":1", RedisError),
        (b"$x", RedisError),
        (b"$-5", RedisError),
        (b"+" + b"x" * 2000, RedisError),
    ],
)
def test_answers_of_another_kind_are_errors(answer: bytes, error: type[Exception]) -> None:
    server = FakeServer({"a": BLOCK})
    server.errors["bad"] = answer
    reader = RangeReader(server)  # type: ignore[arg-type]
    reader.ask(request(("a", 0, 10), ("bad", 0, 10)))
    with pytest.raises(error):
        reader.answer()
    server.errors.clear()
    reply = reader.answer()
    assert reply.is_whole is not None
    assert reply.is_whole.tolist() == [True, False]


def test_a_key_of_another_type_counts_as_gone() -> None:
    server = FakeServer({"a": BLOCK})
    server.errors["hash"] = b"-WRONGTYPE Operation against a key holding the wrong kind of value"
    reader = RangeReader(server)  # type: ignore[arg-type]
    reader.ask(request(("hash", 0, 10), ("a", 0, 10)))
    reply = reader.answer()
    assert reply.is_whole is not None
    assert reply.is_whole.tolist() == [False, True]


def test_a_large_request_is_sent_when_the_one_before_was_received() -> None:
    server = FakeServer({"a": bytes(3 << 20)})
    reader = RangeReader(server)  # type: ignore[arg-type]
    for _ in range(3):
        reader.ask(request(("a", 0, 3 << 20)))
    assert server.sent == 0  # not connected yet
    reader.answer()
    assert server.sent == 2
    reader.forget()
    assert not server.ready
