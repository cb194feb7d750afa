"""RowLog against a recorder so naive that it is obviously right: per environment, a list of episodes, a list of steps.

Every row's observation is unique, so each step that a chunk carries can be named, and compared field by field.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surreal.base.specs import ArraySpec, ObsSpec
from surreal.base.types import Action, StepBatch, StepKind
from surreal.distributed.experience.codec import Chunk, Contract, decode
from surreal.distributed.experience.data_contract import extra_specs
from surreal.distributed.experience.row_log import RowLog
from tests.examples import examples

OBS = ObsSpec.from_obs({"name": np.int64(0), "pair": np.zeros(2, np.float32), "tuple": (np.zeros((1, 3), np.uint8),)})
ACTION = ArraySpec("action", (2,), np.dtype(np.float32))
EXTRAS = extra_specs({"value": np.zeros(1, np.float64), "mask": np.zeros((1, 3), np.bool_)})
LARGE = 1 << 30


def make_obs(names: list[int]) -> dict[str, Any]:
    name = np.array(names, np.int64)
    pair = np.stack([name, -name], axis=1).astype(np.float32)
    return {"name": name, "pair": pair, "tuple": (np.repeat(name % 251, 3).reshape(-1, 1, 3).astype(np.uint8),)}


class Row(NamedTuple):
    slot: int
    kind: StepKind
    name: int
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False


def make_batch(rows: list[Row], closed: list[int]) -> tuple[StepBatch, Action]:
    """What a pool would hand over for these rows, LAST rows first, and what an agent would answer."""
    rows = sorted(rows, key=lambda row: row.kind != StepKind.LAST)
    num_last = sum(row.kind == StepKind.LAST for row in rows)
    names = [row.name for row in rows]
    flags = np.ones(len(rows), np.bool_)
    batch = StepBatch(
        kind=np.array([row.kind for row in rows], np.uint8),
        env_ids=np.array([row.slot for row in rows], np.int64),
        obs=make_obs(names),
        reward=np.array([row.reward for row in rows], np.float32),
        terminated=np.array([row.terminated for row in rows], np.bool_),
        truncated=np.array([row.truncated for row in rows], np.bool_),
        explore=flags,
        record=flags,
        num_last=num_last,
        info={},
        closed_ids=np.array(closed, np.int64),
    )
    acting = np.array(names[num_last:], np.int64)
    actions = np.stack([acting + 0.25, acting + 0.5], axis=1).astype(np.float32)
    extras = {"value": acting * 2.0, "mask": (acting[:, None] >> np.arange(3)) % 2 == 1}
    return batch, Action(actions, extras, version=int(max(names, default=0)))


class Step:
    """One step of the reference; only `truncated` may change after it was made."""

    def __init__(self, row: Row, before: Row, number: int, version: int) -> None:
        self.slot, self.number, self.version = row.slot, number, version
        self.obs, self.next_obs, self.reward = before.name, row.name, row.reward
        self.terminated, self.truncated = row.terminated, row.truncated
        self.is_owned = False

    def fields(self) -> tuple[Any, ...]:
        place, flags = (self.slot, self.number), (self.terminated, self.truncated)
        return (*place, self.obs, self.next_obs, self.reward, *flags, self.version)


class NaiveRecorder:
    """What should arrive, kept in nested lists."""

    def __init__(self, lookahead: int) -> None:
        self.lookahead = lookahead
        self.episodes: dict[int, list[list[Step]]] = {}
        self.last_row: dict[int, tuple[Row, int]] = {}
        self.steps: dict[int, Step] = {}
        self.open: set[int] = set()

    def add(self, row: Row, version: int) -> None:
        if row.kind == StepKind.FIRST:
            self.close(row.slot)
            self.episodes.setdefault(row.slot, []).append([])
            self.open.add(row.slot)
        else:
            before, acted_version = self.last_row[row.slot]
            episode = self.episodes[row.slot][-1]
            step = Step(row, before, len(episode), acted_version)
            episode.append(step)
            self.steps[step.obs] = step
        self.last_row[row.slot] = (row, version)
        if row.kind == StepKind.LAST:
            self.open.discard(row.slot)

    def close(self, slot: int) -> None:
        """The environment is gone: its last step is truncated, unless a chunk has carried it away for good."""
        if slot in self.open:
            self.open.discard(slot)
            episode = self.episodes[slot][-1]
            if episode and not episode[-1].is_owned:
                episode[-1].truncated = True

    def cut(self) -> list[Step]:
        """The steps that must leave now: all of ended episodes, all but the lookahead of running ones."""
        leaving = []
        for slot, episodes in self.episodes.items():
            for episode in episodes:
                is_open = episode is episodes[-1] and slot in self.open
                until = max(len(episode) - self.lookahead, 0) if is_open else len(episode)
                leaving += [step for step in episode[:until] if not step.is_owned]
        for step in leaving:
            step.is_owned = True
        return leaving

    def follower(self, step: Step) -> Step | None:
        return self.steps.get(step.next_obs)


def carried_steps(chunk: Chunk) -> list[list[tuple[bool, tuple[Any, ...]]]]:
    """A chunk's steps as (own, fields), grouped into segments; checks all that belongs to an observation or action."""
    columns, names = chunk.columns, chunk.leaves[0]
    for leaf, expected in zip(chunk.leaves, OBS.flatten(make_obs(names.tolist())), strict=True):
        np.testing.assert_array_equal(leaf, expected)
    segments: list[list[tuple[bool, tuple[Any, ...]]]] = []
    own = set(chunk.own.tolist())
    for i, row in enumerate(chunk.obs_row.tolist()):
        obs, next_obs = int(names[row]), int(names[row + 1])
        np.testing.assert_array_equal(columns["action"][i], [obs + 0.25, obs + 0.5])
        assert chunk.extras["value"][i] == obs * 2.0
        np.testing.assert_array_equal(chunk.extras["mask"][i], [obs % 2, obs // 2 % 2, obs // 4 % 2])
        fields = (
            *(int(chunk.env_slot[i]), int(chunk.step[i]), obs, next_obs, float(columns["reward"][i])),
            *(bool(chunk.terminated[i]), bool(chunk.truncated[i]), int(columns["version"][i])),
        )
        if chunk.within[i] == 0:
            segments.append([])
        segments[-1].append((i in own, fields))
    assert len(segments) == len(chunk.segments)
    return segments


class Pair:
    """A RowLog and the reference, fed with the same rows."""

    def __init__(self, lookahead: int, capacity: int = 16) -> None:
        self.contract = Contract(OBS, ACTION, EXTRAS, lookahead)
        self.log = RowLog(self.contract, capacity)
        self.naive = NaiveRecorder(lookahead)

    def feed(self, rows: list[Row], closed: list[int] | None = None, *, cut_bytes: int | None = None) -> None:
        batch, action = make_batch(rows, closed or [])
        for slot in closed or []:
            self.naive.close(slot)
        for row in sorted(rows, key=lambda row: row.kind != StepKind.LAST):
            self.naive.add(row, action.version)
        self.log.close_slots(batch.closed_ids)
        if cut_bytes is None:
            self.log.append_batch(batch, action)
            return
        self.log.append_batch(batch, None)
        self.cut_and_compare(cut_bytes)
        self.log.set_actions(batch.env_ids[batch.num_last :], action)

    def close_all(self) -> None:
        for slot in list(self.naive.open):
            self.naive.close(slot)
        self.log.close_open_rows()

    def cut_and_compare(self, max_bytes: int = LARGE) -> int:
        """Cut both; returns the number of chunks."""
        expected: dict[int, list[tuple[Any, ...]]] = {}
        for step in self.naive.cut():
            expected.setdefault(step.slot, []).append(step.fields())
        got: dict[int, list[tuple[Any, ...]]] = {}
        chunks = self.log.cut(max_bytes)
        for encoded in chunks:
            chunk = decode(self.contract, encoded.head, encoded.table, encoded.block)
            segments = carried_steps(chunk)
            assert encoded.own_steps == chunk.own_steps == sum(own for segment in segments for own, _ in segment)
            assert len(segments) == 1 or len(encoded.block) <= max_bytes
            for segment in segments:
                self._check_segment(segment)
                got.setdefault(segment[0][1][0], []).extend(fields for own, fields in segment if own)
        assert got == expected
        return len(chunks)

    def _check_segment(self, segment: list[tuple[bool, tuple[Any, ...]]]) -> None:
        """Own steps come first; every step is followed by its follower; what leaves has its lookahead with it."""
        owns = [own for own, _ in segment]
        assert owns[0]
        assert owns == sorted(owns, reverse=True)
        step: Step | None = self.naive.steps[segment[0][1][2]]
        for _, fields in segment:
            assert step is not None
            assert fields == step.fields()
            last, step = step, self.naive.follower(step)
        is_running = last in self.naive.episodes[last.slot][-1] and last.slot in self.naive.open
        assert len(owns) - sum(owns) == (self.naive.lookahead if is_running else 0)


EVENTS = ("wait", "mid", "mid", "mid", "mid", "terminate", "truncate", "both", "restart", "close", "close and restart")


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[list[str], int | None]]:
    """Ticks: what happens to each environment, and whether to cut afterwards, with which byte limit."""
    num_envs = draw(st.integers(1, 4))
    tick = st.tuples(
        st.lists(st.sampled_from(EVENTS), min_size=num_envs, max_size=num_envs),
        st.sampled_from([None, None, None, LARGE, 100, 1]),
    )
    return draw(st.lists(tick, max_size=40))


@examples(120)
@given(history=histories(), lookahead=st.integers(0, 4), acts_later=st.booleans())
def test_every_step_is_owned_once_in_order_with_its_lookahead(
    history: list[tuple[list[str], int | None]], lookahead: int, acts_later: bool
) -> None:
    pair = Pair(lookahead)
    is_running: dict[int, bool] = {}
    name = 0
    for events, cut_bytes in history:
        rows, closed = [], []
        for slot, event in enumerate(events):
            name += 1
            running = is_running.get(slot, False)
            reward = float(name % 97) - 40.0
            if event == "close" or (event == "close and restart" and running):
                closed.append(slot)  # also an environment that never sent a row
                is_running[slot] = False
            if event == "wait" or event == "close":
                continue
            if event in ("restart", "close and restart") or not running:
                rows.append(Row(slot, StepKind.FIRST, name))
                is_running[slot] = True
            elif event == "mid":
                rows.append(Row(slot, StepKind.MID, name, reward))
            else:
                rows.append(Row(slot, StepKind.LAST, name, reward, event != "truncate", event != "terminate"))
                is_running[slot] = False
                if name % 2:  # its next episode begins in the same batch
                    name += 1
                    rows.append(Row(slot, StepKind.FIRST, name))
                    is_running[slot] = True
        if acts_later and cut_bytes is not None:
            # As at the end of a round: what came of the last actions leaves before the next ones are chosen.
            pair.feed(rows, closed, cut_bytes=cut_bytes)
            continue
        pair.feed(rows, closed)
        if cut_bytes is not None:
            pair.cut_and_compare(cut_bytes)
    pair.close_all()
    pair.cut_and_compare()
    assert pair.log.length == 0
    assert all(step.is_owned for step in pair.naive.steps.values())


def episode(slot: int, names: range, last: Row | None = None) -> list[Row]:
    first, *rest = names
    rows = [Row(slot, StepKind.FIRST, first), *(Row(slot, StepKind.MID, name, float(name)) for name in rest)]
    return rows if last is None else [*rows, last]


def feed_one_by_one(pair: Pair, rows: list[Row]) -> None:
    for row in rows:
        pair.feed([row])


def test_nothing_leaves_before_a_step_is_complete() -> None:
    pair = Pair(lookahead=0)
    assert pair.log.cut(LARGE) == []
    feed_one_by_one(pair, episode(0, range(1, 2)))
    assert pair.log.cut(LARGE) == []
    pair.feed([Row(0, StepKind.MID, 2, 1.0)])
    assert pair.cut_and_compare() == 1


def test_an_open_segment_keeps_its_lookahead_and_its_last_row() -> None:
    pair = Pair(lookahead=2)
    feed_one_by_one(pair, episode(0, range(1, 7)))
    pair.cut_and_compare()
    assert pair.log.length == pair.log.carried == 3
    assert pair.log.length == pair.log.carried
    assert pair.log.leaves[0][:3].tolist() == [4, 5, 6]


def test_step_numbers_survive_cuts_and_the_growth_of_the_log() -> None:
    pair = Pair(lookahead=1, capacity=16)
    feed_one_by_one(pair, episode(0, range(1, 6)))
    pair.cut_and_compare()
    feed_one_by_one(pair, [Row(0, StepKind.MID, name, 0.0) for name in range(6, 60)])
    assert pair.log.capacity > 16
    pair.cut_and_compare()


def test_an_environment_closed_right_after_a_sudden_first_row_does_not_join_two_episodes() -> None:
    pair = Pair(lookahead=1)
    feed_one_by_one(pair, [*episode(0, range(1, 4)), Row(0, StepKind.FIRST, 10)])
    pair.close_all()
    pair.cut_and_compare()
    assert pair.log.length == 0


def test_the_last_complete_step_of_a_closed_environment_is_truncated() -> None:
    pair = Pair(lookahead=0)
    feed_one_by_one(pair, episode(3, range(1, 4)))
    pair.feed([], closed=[3])
    assert pair.naive.steps[2].truncated
    pair.cut_and_compare()


def test_closing_a_slot_that_has_ended_or_never_was_changes_nothing() -> None:
    pair = Pair(lookahead=0)
    feed_one_by_one(pair, episode(0, range(1, 3), Row(0, StepKind.LAST, 3, 1.0, terminated=True)))
    pair.feed([], closed=[0, 7])
    assert not pair.naive.steps[2].truncated
    pair.cut_and_compare()


def test_segments_are_spread_over_chunks_by_bytes_and_never_divided() -> None:
    pair = Pair(lookahead=0)
    for slot in range(4):
        feed_one_by_one(pair, episode(slot, range(100 * slot + 1, 100 * slot + 11)))
    contract = pair.log.contract
    assert pair.cut_and_compare(20 * contract.row_bytes + contract.table_head_bytes) == 2
    for slot in range(4):
        feed_one_by_one(pair, [Row(slot, StepKind.MID, 100 * slot + 50 + i, 0.0) for i in range(3)])
    assert pair.cut_and_compare(1) == 4


def test_rows_of_a_wrong_shape_are_refused_and_leave_the_log_as_it_was() -> None:
    pair = Pair(lookahead=0)
    feed_one_by_one(pair, episode(0, range(1, 4)))
    batch, action = make_batch([Row(0, StepKind.MID, 9, 1.0)], [])
    for wrong_batch, wrong_action in [
        (batch._replace(obs=batch.obs | {"pair": np.zeros((1, 3), np.float32)}), action),
        (batch._replace(obs={"name": batch.obs["name"]}), action),
        (batch, action._replace(actions=np.zeros((1, 3), np.float32))),
        (batch, action._replace(actions=np.zeros((2, 2), np.float32))),
        (batch, action._replace(extras={"value": np.zeros(1)})),
        (batch, action._replace(extras=action.extras | {"value": np.zeros((1, 2))})),
        (batch, action._replace(extras=action.extras | {"more": np.zeros(1)})),
    ]:
        with pytest.raises(ValueError, match=r"shape|keys|columns"):
            pair.log.append_batch(wrong_batch, wrong_action)
        assert pair.log.length == 3
    pair.feed([Row(0, StepKind.MID, 9, 1.0)])
    pair.cut_and_compare()


def test_more_segments_than_a_chunk_can_name_go_into_several_chunks() -> None:
    number = 70_000
    contract = Contract(ObsSpec.from_obs(np.uint8(0)), ArraySpec("action", (), np.dtype(np.uint8)))
    log = RowLog(contract, 16)
    flags, slots = np.zeros(number, np.bool_), np.arange(number)
    zeros = np.zeros(number, np.float32)
    kind, obs = np.full(number, StepKind.FIRST, np.uint8), np.zeros(number, np.uint8)
    first = StepBatch(kind, slots, obs, zeros, flags, flags, flags, flags, 0, {}, np.empty(0, np.int64))
    log.append_batch(first, Action(np.zeros(number, np.uint8), {}, 0))
    last = first._replace(kind=np.full(number, StepKind.LAST, np.uint8), terminated=~flags, num_last=number)
    log.append_batch(last, Action(np.empty(0, np.uint8), {}, 0))
    slots_seen: list[int] = []
    for encoded in log.cut(LARGE):
        slots_seen += decode(contract, encoded.head, encoded.table, encoded.block).env_slot.tolist()
    assert slots_seen == list(range(number))


def legal(names: Any) -> np.ndarray[Any, Any]:
    """A mask that says which observation it is of."""
    bits: np.ndarray[Any, Any] = (np.asarray(names)[:, None] >> np.arange(6)) % 2 == 1
    return bits


@pytest.mark.parametrize("lookahead", [0, 1, 3])
def test_every_step_has_the_masks_of_its_own_and_of_its_next_observation(lookahead: int) -> None:
    masks = {name: np.zeros((1, 6), np.bool_) for name in ("action_mask", "next_action_mask")}
    extras = extra_specs({"value": np.zeros(1, np.float64), "mask": np.zeros((1, 3), np.bool_), **masks})
    log = RowLog(Contract(OBS, ACTION, extras, lookahead), 4, mask_width=6)
    rng, name, running, chunks = np.random.default_rng(0), 0, {}, []  # type: ignore[var-annotated]
    for _ in range(60):
        rows: list[Row] = []
        for slot in range(2):
            ends = running.get(slot, False) and rng.random() < 0.2
            if ends:
                rows.append(Row(slot, StepKind.LAST, name, terminated=bool(rng.integers(2))))
                name += 1
            rows.append(Row(slot, StepKind.MID if running.get(slot) and not ends else StepKind.FIRST, name))
            name, running[slot] = name + 1, True
        closed = [int(rng.integers(2))] if rng.random() < 0.1 else []
        batch, action = make_batch(rows, [])
        ordered = sorted(rows, key=lambda row: row.kind != StepKind.LAST)
        log.append_batch(batch._replace(info={"action_mask": legal([row.name for row in ordered])}), action)
        if closed:
            log.close_slots(np.array(closed))
            running[closed[0]] = False
        if rng.random() < 0.3:
            chunks += log.cut(LARGE)
    log.close_open_rows()
    steps = 0
    for encoded in [*chunks, *log.cut(LARGE)]:
        chunk = decode(log.contract, encoded.head, encoded.table, encoded.block)
        names = chunk.leaves[0]
        np.testing.assert_array_equal(chunk.extras["action_mask"], legal(names[chunk.obs_row]))
        np.testing.assert_array_equal(chunk.extras["next_action_mask"], legal(names[chunk.obs_row + 1]))
        steps += chunk.own_steps
    assert steps > 80
