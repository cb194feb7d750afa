"""A stream whose contract, or whose senders' sequence numbers, another peer has overwritten."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from surreal.base.errors import ContractError
from surreal.distributed import ExpSender, RedisClient
from surreal.distributed.experience.data_contract import Contract
from surreal.distributed.experience.shards import ReplayShards
from surreal.distributed.experience.stream import Stream


@pytest.fixture
def sender(client: RedisClient) -> Iterator[ExpSender]:
    with ExpSender(client) as made:
        send(made)
        yield made


def send(sender: ExpSender, size: int = 2) -> None:
    obs = np.zeros(size, np.float32)
    sender.send([obs, obs], 0, 1.0, True)
    sender.flush()


def count(client: RedisClient) -> int:
    (stream,) = ReplayShards(client).streams()
    return int(client.redis.xlen(stream.keys.stream))


@pytest.mark.parametrize("fields", [("contract_id",), ("contract", "contract_id"), ("contract",)])
@pytest.mark.parametrize("value", [b"", b"-1", b"[" * 5000, b"x" * 65_536])
def test_the_next_sender_stores_its_own(
    client: RedisClient, sender: ExpSender, fields: tuple[str, ...], value: bytes
) -> None:
    meta, (stream,) = client.shard_keys().meta, ReplayShards(client).streams()
    before = stream.contract()
    client.redis.hset(meta, mapping=dict.fromkeys(fields, value))
    if fields == ("contract",):  # senders do not look at it, so whoever reads it removes it
        assert stream.contract() is None
        stream.drop_contract()
    send(sender)
    assert count(client) == 2
    assert stream.contract() == before


def test_two_senders_repair_it_at_once(client: RedisClient, sender: ExpSender, monkeypatch: pytest.MonkeyPatch) -> None:
    meta, (stream,) = client.shard_keys().meta, ReplayShards(client).streams()
    before = stream.contract()
    spoiled = {"contract_id": "0", "contract": (before or b"").replace(b'"stack":1', b'"stack":2147483648')}
    client.redis.hset(meta, mapping=spoiled)
    repair = Stream.repair_contract

    def repair_last(self: Stream, contract: Contract) -> bytes:
        with monkeypatch.context() as patch, ExpSender(client) as other:
            patch.setattr(Stream, "repair_contract", repair)
            send(other)  # this one is first
        return repair(self, contract)

    monkeypatch.setattr(Stream, "repair_contract", repair_last)
    send(sender)
    assert count(client) == 3
    assert stream.contract() == before


def test_a_contract_that_only_differs_stays(client: RedisClient, sender: ExpSender) -> None:
    with pytest.raises(ContractError), ExpSender(client) as other:
        send(other, size=3)
    assert count(client) == 1


@pytest.mark.parametrize("value", [2**31, 2**53, -1, "NaN", "1e308", "[" * 5000])
def test_a_sequence_number_of_another_peer_drops_no_chunk(client: RedisClient, sender: ExpSender, value: str) -> None:
    (key,) = client.scan(client.shard_keys().seq("*"))
    client.redis.set(key, value, ex=60)
    send(sender)
    assert count(client) == 2
