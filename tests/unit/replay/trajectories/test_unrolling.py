"""Trajectories and sequences against naive lists: random episodes, truncations, chunks, lookahead, gaps, eviction."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surreal.base.errors import ContractError
from surreal.base.specs import ArraySpec, ObsSpec
from surreal.base.types import Action, StepBatch, StepKind, TrajectoryBatch
from surreal.distributed.experience.codec import Chunk, Contract, decode
from surreal.distributed.experience.row_log import RowLog
from surreal.replay.batches import to_trajectory_batch
from surreal.replay.store.storage import StoredChunk
from surreal.replay.trajectories.lanes import Cut, Cutter, Lanes, StartIndex, parse_chunk_id
from surreal.replay.trajectories.unrolling import TrajectoryStore, Unrolled
from tests.examples import examples

GAMMA = 0.5
OBS = ArraySpec("", (2,), np.dtype(np.int64))
EXTRAS = (
    ArraySpec("state.h", (2,), np.dtype(np.float32)),
    ArraySpec("value", (), np.dtype(np.float32)),
)


@dataclass
class Step:
    """What a naive observer saw of a step; `number` is unique, and its action."""

    slot: int
    number: int
    obs: Any
    is_first: bool
    version: int
    place: int  # in its episode
    reward: float = 0.0
    next_obs: Any = None
    terminated: bool = False
    truncated: bool = False


#: A row: the step, and whether it stands for its final observation.
Row = tuple[Step, bool]


@dataclass
class World:
    """Environments of one sender, its log, and what came of both."""

    contract: Contract
    num_slots: int
    log: RowLog = field(init=False)
    steps: dict[int, Step] = field(default_factory=dict)
    open: dict[int, Step] = field(default_factory=dict)
    last: dict[int, Step] = field(default_factory=dict)
    frames: dict[int, deque[int]] = field(default_factory=dict)
    sent: set[int] = field(default_factory=set)
    count: int = 0
    sequence: int = 0

    def __post_init__(self) -> None:
        self.log = RowLog(self.contract, 16)

    def observe(self, slot: int, *, is_first: bool) -> np.ndarray:
        self.count += 1
        stack = self.contract.stack
        if is_first:
            self.frames[slot] = deque([self.count] * stack, maxlen=stack)
        else:
            self.frames[slot].append(self.count)
        frames = np.array([[slot, frame] for frame in self.frames[slot]])
        return frames if stack > 1 else frames[0]

    def row(self, slot: int, kind: StepKind, *, terminated: bool, version: int) -> None:
        obs = self.observe(slot, is_first=kind == StepKind.FIRST)
        before = self.open.pop(slot, None)
        if kind != StepKind.FIRST and before is not None:
            before.reward, before.next_obs = float(self.count), obs
            is_end = kind == StepKind.LAST
            before.terminated, before.truncated = is_end and terminated, is_end and not terminated
            self.steps[before.number] = before
            self.last[slot] = before
        one, num_last = np.ones(1, np.bool_), int(kind == StepKind.LAST)
        batch = StepBatch(
            np.array([kind], np.uint8), np.array([slot]), obs[None], np.array([float(self.count)], np.float32),
            np.array([terminated]), np.array([bool(num_last) and not terminated]), one, one, num_last, {},
            np.zeros(0, np.int64),
        )  # fmt: skip
        if not num_last:
            place = 0 if kind == StepKind.FIRST or before is None else before.place + 1
            self.open[slot] = Step(slot, self.count, obs, kind == StepKind.FIRST, version, place)
        acting = 1 - num_last
        extras = {
            "state.h": np.full((acting, 2), self.count, np.float32),
            "value": np.full(acting, -self.count, np.float32),
        }
        self.log.append_batch(batch, Action(np.full(acting, self.count), extras, version))

    def close(self) -> None:
        self.log.close_open_rows()
        for slot in self.open:
            self.cut_episode(slot)
        self.open.clear()

    def cut_episode(self, slot: int) -> None:
        """The episode ends without a final row: its last step is truncated, unless it was sent already."""
        last = self.last.get(slot)
        if last is not None and not last.terminated and last.number not in self.sent:
            last.truncated = True

    def cut(self, max_bytes: int) -> list[Chunk]:
        chunks = []
        for encoded in self.log.cut(max_bytes):
            chunk = decode(self.contract, encoded.head, encoded.table, encoded.block)
            chunk.chunk_id = f"some-sender-{self.sequence}"
            self.sequence += 1
            self.sent.update(chunk.columns["action"][chunk.own].tolist())
            chunks.append(chunk)
        return chunks


class Received:
    """What arrived, as lists: for each slot pieces without a gap, each a list of rows."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.pieces: dict[int, list[list[Step]]] = {slot: [[]] for slot in range(world.num_slots)}

    def gap(self) -> None:
        for pieces in self.pieces.values():
            pieces.append([])

    def add(self, chunk: Chunk) -> None:
        for number in chunk.columns["action"][chunk.own].tolist():
            step = self.world.steps[number]
            pieces = self.pieces[step.slot]
            if pieces[-1] and step.is_first and not (pieces[-1][-1].terminated or pieces[-1][-1].truncated):
                pieces.append([])
            pieces[-1].append(step)

    def rows(self, piece: list[Step]) -> list[Row]:
        found: list[Row] = []
        for step in piece:
            found.append((step, False))
            if step.terminated or step.truncated:
                found.append((step, True))
        return found


def naive_trajectories(received: Received, length: int, *, in_rounds: bool) -> dict[int, list[list[Step]]]:
    """For each slot its trajectories; those that break off have fewer than `length` steps."""
    found: dict[int, list[list[Step]]] = {}
    for slot, pieces in received.pieces.items():
        found[slot] = []
        for piece in pieces:
            open_one: list[Step] = []
            for step in piece:
                is_new = in_rounds and open_one and open_one[-1].version != step.version
                if len(open_one) == length or is_new:
                    found[slot].append(open_one)
                    open_one = []
                open_one.append(step)
            if open_one:
                found[slot].append(open_one)
    return found


def check(batch: TrajectoryBatch, column: int, rows: list[Row], length: int) -> None:
    """One trajectory of a batch is these rows, filled up with the last observation."""
    rows = [*rows, *[(rows[-1][0], True)] * (length - len(rows))]
    obs = batch.obs[:, column].numpy()
    for i, (step, is_final) in enumerate(rows):
        values = [
            batch.mask[i, column] == (not is_final),
            batch.is_first[i, column] == (step.is_first and not is_final),
            batch.terminated[i, column] == (step.terminated and not is_final),
            batch.truncated[i, column] == (step.truncated and not is_final),
            batch.reward[i, column] == (0.0 if is_final else step.reward),
            batch.discount[i, column] == (0.0 if is_final or step.terminated else GAMMA),
            batch.action[i, column] == step.number,
            batch.version[i, column] == step.version,
            batch.extras["value"][i, column] == -step.number,
        ]
        assert all(bool(value) for value in values), (i, step, values)
        np.testing.assert_array_equal(obs[i], step.next_obs if is_final else step.obs)
        if not is_final:
            np.testing.assert_array_equal(obs[i + 1], step.next_obs)  # what came of it, at an episode's end too
    np.testing.assert_array_equal(obs[length], rows[-1][0].next_obs)
    assert not batch.is_first[length, column]
    assert (batch.initial_state["state.h"][column] == rows[0][0].number).all()
    assert not rows[0][1]


def gather(store: TrajectoryStore, unrolled: Unrolled) -> TrajectoryBatch:
    rows = store.collect(store.request_unrolled(unrolled, np.ones(unrolled.number.shape[1])))
    assert rows is not None
    return to_trajectory_batch(rows, store.contract.stacked_obs)


def play(data: st.DataObject, world: World) -> None:
    """Let some environment do a step."""
    slot = data.draw(st.integers(0, world.num_slots - 1))
    if slot not in world.open:
        kind = StepKind.FIRST
    else:
        kind = data.draw(st.sampled_from([StepKind.MID, StepKind.MID, StepKind.MID, StepKind.LAST, StepKind.FIRST]))
        if kind == StepKind.FIRST:
            world.cut_episode(slot)
    world.row(slot, kind, terminated=kind == StepKind.LAST and data.draw(st.booleans()), version=world.count // 8)


def worlds(intervals: st.SearchStrategy[int]) -> st.SearchStrategy[World]:
    return st.builds(
        lambda slots, lookahead, stack, interval: World(
            Contract(
                ObsSpec((OBS,)),
                ArraySpec("action", (), np.dtype(np.int64)),
                EXTRAS,
                lookahead,
                stack,
                state_interval=interval,
            ),
            slots,
        ),
        st.integers(1, 3),
        st.sampled_from([0, 0, 2]),
        st.sampled_from([1, 1, 3]),
        intervals,
    )


@examples(80)
@given(data=st.data(), world=worlds(st.just(1)), length=st.integers(1, 6), in_rounds=st.booleans())
def test_each_step_is_in_one_trajectory_in_order(
    data: st.DataObject, world: World, length: int, in_rounds: bool
) -> None:
    store, cutter = TrajectoryStore(world.contract, capacity=8, gamma=GAMMA), Cutter(length, in_rounds=in_rounds)
    received = Received(world)
    cuts: list[Cut] = []

    def take_in() -> None:
        for chunk in world.cut(data.draw(st.sampled_from([100, 1 << 20]))):
            if data.draw(st.integers(0, 9)) == 0:
                received.gap()
                continue
            numbers = store.insert(chunk)
            received.add(chunk)
            version = chunk.columns["version"][chunk.own]
            assert [run.begin for run in store.runs] == [numbers.start, *(run.end for run in store.runs[:-1])]
            for run in store.runs:
                part = slice(run.begin - numbers.start, run.end - numbers.start)
                cuts.extend(cutter.add(run, version[part]))

    for _ in range(data.draw(st.integers(0, 60))):
        play(data, world)
        if data.draw(st.integers(0, 5)) == 0:
            take_in()
    world.close()
    take_in()
    rest = [cut for _, cut in cutter.break_off(np.inf)]
    assert len(cutter) == 0
    cuts += rest
    if not cuts:
        return
    unrolled = store.unroll(np.array([cut.start for cut in cuts]), length, np.array([cut.steps for cut in cuts]))
    numbers = unrolled.number[unrolled.is_step]
    assert sorted(numbers.tolist()) == list(range(len(store))), "every step once"
    batch = gather(store, unrolled)
    expected = naive_trajectories(received, length, in_rounds=in_rounds)
    most = max(len(received.rows(steps)) for found in expected.values() for steps in found)
    assert length <= len(batch.mask) <= max(most, length), "no more rows than one of them needs"
    next_of = dict.fromkeys(expected, 0)
    for column, cut in enumerate(cuts):
        slot = world.steps[int(batch.action[0, column])].slot
        steps = expected[slot][next_of[slot]]
        next_of[slot] += 1
        check(batch, column, received.rows(steps)[: len(batch.mask)], len(batch.mask))
        assert cut.steps == len(steps)
        versions = {step.version for step in steps}
        assert cut.oldest_version == min(versions)
        assert not in_rounds or len(versions) == 1
    assert next_of == {slot: len(found) for slot, found in expected.items()}


def naive_starts(received: Received, length: int, interval: int) -> dict[int, list[Row]]:
    """Number of each step after which a whole sequence was seen -> the rows of that."""
    starts = {}
    for pieces in received.pieces.values():
        for piece in pieces:
            rows = received.rows(piece)
            for i, (step, is_final) in enumerate(rows):
                if not is_final and i + length <= len(rows) and step.place % interval == 0:
                    starts[step.number] = rows[i : i + length]
    return starts


def compare_starts(store: TrajectoryStore, index: StartIndex, expected: dict[int, list[Row]]) -> None:
    rng = np.random.default_rng(0)
    assert index.count == len(expected)
    if not expected:
        with pytest.raises(ValueError, match="no sequence"):
            index.sample(1, rng)
        return
    assert set(index.sample(12, rng).tolist()) <= expected.keys()
    batch = gather(store, store.unroll(np.array(list(expected)), index.length))
    for column, rows in enumerate(expected.values()):
        check(batch, column, rows, index.length)


@examples(60)
@given(data=st.data(), world=worlds(st.integers(1, 3)), length=st.integers(1, 6), factor=st.integers(1, 2))
def test_sequences_begin_wherever_a_whole_one_was_seen(
    data: st.DataObject, world: World, length: int, factor: int
) -> None:
    interval = factor * world.contract.state_interval
    options = {"counts_rows": True, "indexes_starts": True, "start_interval": interval}
    store = TrajectoryStore(world.contract, capacity=8, gamma=GAMMA, length=length, **options)
    index = store.starts
    assert index is not None
    received = Received(world)
    chunks: deque[StoredChunk] = deque()
    number_of: dict[int, int] = {}

    for _ in range(data.draw(st.integers(0, 50))):
        play(data, world)
        if data.draw(st.integers(0, 6)):
            continue
        for chunk in world.cut(data.draw(st.sampled_from([100, 1 << 20]))):
            if data.draw(st.integers(0, 9)) == 0:
                received.gap()
                continue
            numbers = store.insert(chunk)
            number_of |= dict(zip(chunk.columns["action"][chunk.own].tolist(), numbers, strict=True))
            received.add(chunk)
            chunks.append(StoredChunk(b"", "", "", len(numbers), 0, numbers.stop, store.observations.head))
        while len(chunks) > 2 and data.draw(st.booleans()):
            store.evict(chunks.popleft())
        alive = range(store.transitions.tail, store.transitions.head)
        starts = {number_of[action]: rows for action, rows in naive_starts(received, length, interval).items()}
        compare_starts(store, index, {start: rows for start, rows in starts.items() if start in alive})


def test_states_that_a_stream_lacks_are_missed_before_the_first_batch() -> None:
    contract = Contract(ObsSpec((OBS,)), ArraySpec("action", (), np.dtype(np.int64)), EXTRAS, state_interval=4)
    TrajectoryStore(contract, capacity=8, gamma=GAMMA, start_interval=8)
    with pytest.raises(ContractError, match=r"every 6 steps of an episode, .* only every 4; .* that divides 6"):
        TrajectoryStore(contract, capacity=8, gamma=GAMMA, start_interval=6)


def test_starts_are_drawn_uniformly_where_few_steps_are_starts() -> None:
    """Chi-square over 20 starts among 2000 steps; 43.8 is the 0.999 quantile for 19 degrees of freedom."""
    index = StartIndex(101, 16)
    lanes = Lanes()
    ended = np.zeros(100, np.bool_)
    for lane in range(20):
        index.append(100)
        # Lanes of 100 steps, an episode's end at the last: 101 rows, so that only each lane's first step is a start.
        ended[-1] = True
        (run,) = lanes.add(f"{lane}-0", 100 * lane, np.zeros(100, np.int32), np.arange(100), ended)
        index.add(run, ended, np.ones(100, np.bool_))
    assert index.count == 20
    drawn = index.sample(4000, np.random.default_rng(3))
    assert (drawn % 100 == 0).all()
    counts = np.bincount(drawn // 100, minlength=20)
    assert ((counts - 200.0) ** 2 / 200.0).sum() < 43.8


def test_bootstrap_values_at_a_truncation_need_no_special_case() -> None:
    """The recursions in the module's text equal those of each episode by itself."""
    rng = np.random.default_rng(0)
    mask = np.array([1, 1, 1, 0, 1, 1, 0, 1.0])
    terminated = np.array([0, 0, 0, 0, 0, 1, 0, 0])  # the first episode is truncated, the second terminates
    reward, value, lam = rng.normal(size=8) * mask, rng.normal(size=9), 0.7
    discount = GAMMA * (1 - terminated) * mask
    advantage, returns = np.zeros(9), np.append(np.zeros(8), value[8])
    for t in reversed(range(8)):
        delta = mask[t] * (reward[t] + discount[t] * value[t + 1] - value[t])
        advantage[t] = delta + lam * discount[t] * advantage[t + 1]
        returns[t] = mask[t] * (reward[t] + discount[t] * returns[t + 1]) + (1 - mask[t]) * value[t]
    for begin, end, bootstrap in ((0, 3, value[3]), (4, 6, 0.0), (7, 8, value[8])):
        behind, total = 0.0, bootstrap
        for t in reversed(range(begin, end)):
            after = bootstrap if t == end - 1 else value[t + 1]
            behind = reward[t] + GAMMA * after - value[t] + lam * GAMMA * behind
            total = reward[t] + GAMMA * total
            np.testing.assert_allclose([advantage[t], returns[t]], [behind, total])


@pytest.mark.parametrize(
    ("chunk_id", "expected"), [("ab-3", ("ab", 3)), ("a-b-03", ("a-b", 3)), ("", ("", -1)), ("ab-", ("ab-", -1)),
                               ("ab-x", ("ab-x", -1)), ("ab-²", ("ab-²", -1)), ("a-" + "9" * 30, ("a-" + "9" * 30, -1))]
)  # fmt: skip
def test_chunk_ids_of_other_programs_have_no_sequence(chunk_id: str, expected: tuple[str, int]) -> None:
    assert parse_chunk_id(chunk_id) == expected


def test_a_chunk_that_comes_again_is_known() -> None:
    lanes, one = Lanes(), np.zeros(1, np.bool_)
    for number in range(3):
        assert not lanes.is_repeated(f"a-{number}")
        lanes.add(f"a-{number}", number, np.zeros(1, np.int32), np.array([number]), one)
    assert lanes.is_repeated("a-2")
    assert lanes.is_repeated("a-0")
    assert not lanes.is_repeated("b-0")
    lanes.forget(2)
    assert lanes.is_repeated("a-2")
    lanes.forget(3)
    assert not lanes.is_repeated("a-2")
