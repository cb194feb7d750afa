"""Small batches are sampled and gathered several at a time, and are the same as those made one by one."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from surreal.base.specs import ArraySpec, ObsSpec
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.codec import Chunk, Contract, decode, encode
from surreal.replay import UniformReplay
from surreal.replay.turn import make_ahead, take_in

STEPS, BATCH_SIZE = 50, 4


def make_chunk(width: int) -> Chunk:
    """One segment, whose observations count up."""
    contract = Contract(ObsSpec.from_obs(np.zeros(width, np.float32)), ArraySpec("action", (), np.dtype(np.int64)))
    columns = {
        "action": np.arange(STEPS),
        "reward": np.arange(STEPS, dtype=np.float32),
        "flags": np.zeros(STEPS, np.uint8),
        "version": np.zeros(STEPS, np.int32),
    }
    head = np.array([[STEPS + 1, STEPS, 0, 0, 0]], np.int32)
    obs = np.repeat(np.arange(STEPS + 1, dtype=np.float32)[:, None], width, axis=1)
    encoded = encode(contract, head, columns, [obs])
    return decode(contract, encoded.head, encoded.table, encoded.block)


class Fed(UniformReplay):
    """A replay that gets its chunk from a test, and notes how many rows it was asked for."""

    def __init__(self, width: int = 4, **options: Any) -> None:
        sizes = {"batch_size": BATCH_SIZE, "capacity": 100, "start_size": 1, "prefetch": 8, "seed": 3}
        super().__init__(RedisClient(), **{**sizes, **options})
        # Of what Redis would say, only the byte bound matters.
        self.owner.is_over = lambda _: False  # type: ignore[method-assign]
        self.owner.make_room_for = lambda *_: None  # type: ignore[method-assign]
        feed = deque([make_chunk(width)])
        self.pointer_queue.dequeue = lambda *_: feed.popleft() if feed else None  # type: ignore[method-assign]
        self.pointer_queue.has_caught_up.is_set = lambda: True  # type: ignore[method-assign]
        take_in(self, self.state)

    def make(self) -> list[Any]:
        """One call of `make_ahead`; returns the batches it made."""
        make_ahead(self, self.state)
        self.fetcher_queue.hand_over()
        return [self.fetcher_queue.dequeue(0.0) for _ in range(len(self.fetcher_queue))]


class Drawing(Fed):
    """It has its own `_sample`, which may depend on the number of rows."""

    sizes: list[int] = []  # noqa: RUF012

    def _sample(self, batch_size: int) -> NDArray[np.int64]:
        self.sizes.append(batch_size)
        return super()._sample(batch_size)


def test_batches_made_at_once_are_those_made_one_by_one() -> None:
    many, single = Fed(), Fed()
    single.state.at_once = 1
    made = many.make()
    assert len(made) == 8
    for batch in made:
        (other,) = single.make()
        for column in ("obs", "action", "reward", "discount", "next_obs"):
            mine, theirs = getattr(batch, column), getattr(other, column)
            assert mine.is_contiguous() and mine.shape == theirs.shape
            assert torch.equal(mine, theirs)
        for a, b in zip(batch.sample_info, other.sample_info, strict=True):
            np.testing.assert_array_equal(a, b)
        assert torch.equal(batch.obs[:, 0], batch.reward) and torch.equal(batch.next_obs, batch.obs + 1)
    assert many.num_samples == single.num_samples == 8 * BATCH_SIZE


def test_a_change_of_one_batch_does_not_reach_another() -> None:
    first, second, *_ = Fed().make()
    before = second.obs.clone()
    first.obs.fill_(-1.0)
    assert torch.equal(second.obs, before)
    assert first.obs._version == 1 and second.obs._version == 0, "autograd takes them for views of each other"


def test_a_sample_hook_of_a_subclass_is_asked_for_one_batch() -> None:
    replay = Drawing()
    assert len(replay.make()) == 1
    assert replay.sizes == [BATCH_SIZE]


def test_large_batches_are_made_one_by_one() -> None:
    assert len(Fed(width=1 << 16).make()) == 1


def test_no_more_batches_are_made_at_once_than_the_limiter_allows() -> None:
    replay = Fed(samples_per_insert=1.0, samples_per_insert_tolerance=3 * BATCH_SIZE + 1)
    replay.owner.shards[0].steps = 1  # as many env steps as `start_size`
    assert len(replay.make()) == 3
    assert replay.make() == []
