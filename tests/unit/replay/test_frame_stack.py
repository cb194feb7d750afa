"""Frames are stored once, and the stacks that come out are those that the agent saw."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surreal.base.specs import ArraySpec, ObsSpec
from surreal.base.types import Action, StepBatch, StepKind
from surreal.distributed.experience.codec import Contract, decode
from surreal.distributed.experience.row_log import RowLog
from surreal.replay.store.storage import TransitionStore
from tests.examples import examples

FRAME = ArraySpec("", (2,), np.dtype(np.int64))
ACTION = ArraySpec("action", (), np.dtype(np.int64))


class Game:
    """Counts frames over all episodes, so that every frame is another one; stacks them as wrappers do."""

    def __init__(self, slot: int, stack: int) -> None:
        self.slot, self.count, self.frames = slot, 0, deque[int](maxlen=stack)

    def reset(self) -> np.ndarray:
        self.count += 1
        self.frames.extend([self.count] * (self.frames.maxlen or 1))
        return self.observe()

    def step(self) -> np.ndarray:
        self.count += 1
        self.frames.append(self.count)
        return self.observe()

    def observe(self) -> np.ndarray:
        return np.array([[self.slot, frame] for frame in self.frames])


def row(kind: StepKind, game: Game, obs: np.ndarray, *, terminated: bool = False) -> tuple[StepBatch, Action]:
    one, num_last = np.ones(1, np.bool_), int(kind == StepKind.LAST)
    batch = StepBatch(
        np.array([kind], np.uint8),
        np.array([game.slot]),
        obs[None],
        np.array([float(game.count)], np.float32),
        np.array([terminated]),
        np.array([bool(num_last) and not terminated]),
        one,
        one,
        num_last,
        {},
        np.zeros(0, np.int64),
    )
    return batch, Action(np.full(1 - num_last, game.count), {}, 0)


@examples(60)
@given(data=st.data(), stack=st.integers(2, 5), n_step=st.integers(1, 3))
def test_stacks_come_back_as_they_were_seen(data: st.DataObject, stack: int, n_step: int) -> None:
    contract = Contract(ObsSpec((FRAME,)), ACTION, lookahead=n_step - 1, stack=stack)
    log, store = RowLog(contract, 16), TransitionStore(contract, capacity=64, n_step=n_step, gamma=0.5)
    games = [Game(slot, stack) for slot in range(3)]
    seen: dict[tuple[int, int], np.ndarray] = {}
    alive = dict.fromkeys(range(3), False)
    stored = 0

    def take_in(*, final: bool) -> int:
        if final:
            log.close_open_rows()
        rows = 0
        for chunk in log.cut(max_bytes=data.draw(st.sampled_from([200, 1 << 20]))):
            store.insert(decode(contract, chunk.head, chunk.table, chunk.block))
            rows += len(chunk.block) // FRAME.nbytes
        return rows

    for _ in range(data.draw(st.integers(5, 60))):
        game = games[data.draw(st.integers(0, 2))]
        if not alive[game.slot]:
            obs, kind = game.reset(), StepKind.FIRST
        else:
            obs, kind = game.step(), data.draw(st.sampled_from([StepKind.MID, StepKind.MID, StepKind.LAST]))
        alive[game.slot] = kind != StepKind.LAST
        seen[game.slot, game.count] = obs
        log.append_batch(*row(kind, game, obs, terminated=kind == StepKind.LAST and data.draw(st.booleans())))
        if data.draw(st.integers(0, 5)) == 0:
            stored += take_in(final=False)
    take_in(final=True)
    if not len(store):
        return
    numbers = np.arange(store.transitions.tail, store.transitions.head)
    rows = store.gather(numbers, np.ones(len(numbers)))
    assert rows.obs[0].shape == (len(numbers), stack, 2)
    for obs, next_obs, action in zip(rows.obs[0], rows.next_obs[0], rows.action, strict=True):
        assert action == obs[-1, 1]
        np.testing.assert_array_equal(obs, seen[int(obs[-1, 0]), int(obs[-1, 1])])
        np.testing.assert_array_equal(next_obs, seen[int(next_obs[-1, 0]), int(next_obs[-1, 1])])
        assert 1 <= next_obs[-1, 1] - obs[-1, 1] <= n_step
    gathered = store.collect(store.request(numbers.reshape(1, -1).repeat(2, axis=0), np.ones((2, len(numbers)))))
    assert gathered is not None
    for batch in gathered.split():
        np.testing.assert_array_equal(batch.obs[0], rows.obs[0])
        np.testing.assert_array_equal(batch.next_obs[0], rows.next_obs[0])


def test_a_chunk_repeats_only_the_frames_it_needs() -> None:
    stack, steps = 4, 32
    contract = Contract(ObsSpec((FRAME,)), ACTION, stack=stack)
    log, game, rows = RowLog(contract, 16), Game(0, stack), []
    log.append_batch(*row(StepKind.FIRST, game, game.reset()))
    for _ in range(5):
        for _ in range(steps):
            log.append_batch(*row(StepKind.MID, game, game.step()))
        (chunk,) = log.cut(max_bytes=1 << 20)
        rows.append(len(chunk.block) // FRAME.nbytes)
        assert chunk.own_steps == steps
    assert rows == [steps + 1] + [steps + 1 + stack - 1] * 4


def test_observations_that_are_no_stacks_are_refused() -> None:
    log = RowLog(Contract(ObsSpec((FRAME,)), ACTION, stack=4), 16)
    with pytest.raises(ValueError, match="stacks of 4"):
        log.append_batch(*row(StepKind.FIRST, Game(0, 3), np.zeros((3, 2), np.int64)))
