"""PrioritizedReplay without Redis: chunks are handed to it, and a dictionary says what each priority should be."""

from __future__ import annotations

import threading
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from surreal.base.errors import CheckpointError, ContractError
from surreal.base.specs import ArraySpec, ObsSpec
from surreal.base.types import SampleInfo
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.codec import Chunk, Contract, decode, encode
from surreal.replay import PrioritizedReplay
from surreal.replay.prioritized import Prioritized
from surreal.replay.store.priorities import SavedPriorities, write_priorities
from surreal.replay.turn import next_batches, take_in
from tests.examples import examples

ALPHA, EPSILON = 0.5, 1e-3
OBS, ACTION = ObsSpec.from_obs(np.zeros(1, np.float32)), ArraySpec("action", (), np.dtype(np.int64))
PLAIN = Contract(OBS, ACTION)
APE_X = Contract(OBS, ACTION, (ArraySpec("priority", (), np.dtype(np.float32)),))


def make_chunk(steps: int, *, number: int = 0, contract: Contract = PLAIN, **extras: Any) -> Chunk:
    """One segment of that many steps."""
    columns = {
        "action": np.zeros(steps, np.int64),
        "reward": np.zeros(steps, np.float32),
        "flags": np.zeros(steps, np.uint8),
        "version": np.zeros(steps, np.int32),
        **{f"extra.{name}": np.asarray(column) for name, column in extras.items()},
    }
    head = np.array([[steps + 1, steps, 0, 0, 0]], np.int32)
    encoded = encode(contract, head, columns, [np.zeros((steps + 1, 1), np.float32)])
    chunk = decode(contract, encoded.head, encoded.table, encoded.block)
    chunk.entry_id, chunk.chunk_id, chunk.epoch = b"0-0", f"sender-{number}", "epoch"
    return chunk


class Feeding(Prioritized[Any]):
    """Base of a replay that gets its chunks from a test."""

    def __init__(self, **options: Any) -> None:
        defaults = {"capacity": 100_000, "start_size": 1, "batch_size": 8, "seed": 1}
        exponents = {"priority_exponent": ALPHA, "priority_epsilon": EPSILON}
        super().__init__(RedisClient(), **defaults | exponents | options)
        # Of what Redis would say, only the byte bound matters.
        self.owner.is_over = lambda _: False  # type: ignore[method-assign]
        self.owner.make_room_for = lambda *_: None  # type: ignore[method-assign]
        self.feed: deque[Chunk] = deque()
        self.pointer_queue.dequeue = lambda timeout_s=0.0: self.feed.popleft() if self.feed else None  # type: ignore[method-assign]
        self.number = 0

    def take(self, *steps: int, contract: Contract = PLAIN, **extras: Any) -> None:
        for count in steps:
            self.feed.append(make_chunk(count, number=self.number, contract=contract, **extras))
            self.number += 1
            take_in(self, self.state)

    def draw(self) -> Any:
        return next_batches(self, self.state)[0]

    def tell(self, numbers: Any, errors: Any) -> None:
        """What the learner would say of the transitions with these sequence numbers."""
        numbers = np.asarray(numbers, np.int64)
        self.update_priorities(SampleInfo(numbers, numbers, numbers), np.asarray(errors, np.float32))

    def priorities(self) -> dict[int, float]:
        """Leaves of what is alive; checks that all others are zero."""
        self._apply_updates()
        assert self._tree is not None
        leaves, size = self._tree.leaves, self._tree.capacity
        found = {number: float(leaves[number % size]) for number in self.alive}
        assert np.count_nonzero(leaves) == len(found)
        np.testing.assert_allclose(self._tree.total, sum(found.values()))
        return found


class Fed(Feeding, PrioritizedReplay):
    """A replay of transitions that gets its chunks from a test."""


def leaf(error: float) -> float:
    return float((np.float32(error).astype(np.float64) + EPSILON) ** ALPHA)


# -- sampling ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_transitions_are_drawn_as_often_as_their_priorities_say(alpha: float) -> None:
    replay = Fed(priority_exponent=alpha, batch_size=50)
    replay.take(20, 17)
    errors = np.random.default_rng(0).random(37) * 3
    replay.tell(np.arange(37), errors)
    draws = 2500
    counts = np.zeros(37)
    for _ in range(draws):
        np.add.at(counts, replay.draw().sample_info.generation, 1)
    weights = (errors.astype(np.float32).astype(np.float64) + EPSILON) ** alpha
    expected = weights / weights.sum() * 50 * draws
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    # 36 degrees of freedom: independent draws exceed 68 in one case of 1000, and strata vary less than those.
    assert chi_square < 68
    # A bias of three per cent in half of the transitions would be seen.
    biased = expected * np.where(np.arange(37) % 2, 1.03, 0.97)
    assert float(((counts - biased) ** 2 / biased).sum()) > 68


def test_weights_are_those_of_the_paper() -> None:
    replay = Fed(importance_exponent=0.4, importance_exponent_end=0.8, importance_exponent_steps=10)
    replay.take(30)
    errors = np.random.default_rng(3).random(30)
    replay.tell(np.arange(30), errors)
    for drawn in range(1, 15):
        batch = replay.draw()
        info = batch.sample_info
        beta = 0.4 + 0.4 * min(drawn / 10, 1)
        total = sum(leaf(error) for error in errors)
        expected = []
        for number in info.generation.tolist():
            probability = leaf(errors[number]) / total
            expected.append((len(replay) * probability) ** -beta)
        expected = [weight / max(expected) for weight in expected]
        assert batch.extras["weight"].dtype == torch.float32
        np.testing.assert_allclose(batch.extras["weight"].numpy(), expected, rtol=1e-6)
        assert batch.extras["weight"].max() == 1.0
        np.testing.assert_allclose(info.probability, [leaf(errors[number]) / total for number in info.generation])
        np.testing.assert_allclose(info.priority, errors[info.generation] + EPSILON, rtol=1e-6)
        np.testing.assert_array_equal(info.age_steps, 29 - info.generation)


def test_beta_stays_where_it_is_told_to() -> None:
    replay = Fed(importance_exponent=0.3, importance_exponent_steps=None)
    replay.load_state_dict({"samples": 10**9, "global_step": 10**9})
    assert replay.importance_exponent == 0.3


def test_beta_follows_points() -> None:
    replay = Fed(importance_exponent=[[0, 0.2], [10, 1.0], [20, 0.4]])
    replay.take(10)
    for drawn in range(25):
        assert replay.importance_exponent == pytest.approx(np.interp(drawn, [0, 10, 20], [0.2, 1.0, 0.4]))
        replay.draw()
    with pytest.raises(ValueError, match=r"importance_exponent is 1\.5 at step 10; it must be finite and in \[0, 1\]"):
        Fed(importance_exponent=[[0, 0.2], [10, 1.5]])


def test_beta_goes_on_after_a_restart() -> None:
    replay = Fed(importance_exponent=0.0, importance_exponent_end=1.0, importance_exponent_steps=100)
    replay.take(10)
    for _ in range(40):
        replay.draw()
    restarted = Fed(importance_exponent=0.0, importance_exponent_end=1.0, importance_exponent_steps=100)
    restarted.load_state_dict(replay.state_dict())
    assert restarted.importance_exponent == replay.importance_exponent == 0.4


# -- priorities --------------------------------------------------------------------------------------------------------


def test_new_transitions_have_the_largest_priority_so_far() -> None:
    replay = Fed()
    replay.take(3)
    assert replay.priorities() == dict.fromkeys(range(3), 1.0)
    replay.tell([0, 1, 2], [0.5, 9.0, 0.1])
    replay.draw()
    replay.take(2)
    replay.tell([1], [0.2])
    replay.draw()
    replay.take(1)
    largest = leaf(9.0)
    assert replay.priorities() == {0: leaf(0.5), 1: leaf(0.2), 2: leaf(0.1), 3: largest, 4: largest, 5: largest}


def test_initial_priorities_of_agents_are_taken_if_they_make_sense() -> None:
    replay = Fed()
    replay.take(6, contract=APE_X, priority=np.array([0.5, 4.0, np.nan, -1.0, np.inf, 3e38], np.float32))
    largest = leaf(4.0)
    expected = {0: leaf(0.5), 1: largest, 2: largest, 3: largest, 4: largest, 5: largest}
    assert replay.priorities() == expected
    assert replay.metrics()["replay/refused_priorities_total"] == 4
    np.testing.assert_allclose(replay.metrics()["replay/priority_max"], 4.0 + EPSILON)


def test_columns_that_cannot_work_are_refused() -> None:
    shaped = Contract(OBS, ACTION, (ArraySpec("priority", (2,), np.dtype(np.float32)),))
    with pytest.raises(ContractError, match="it must be a number"):
        Fed().take(3, contract=shaped, priority=np.ones((3, 2), np.float32))
    named = Contract(OBS, ACTION, (ArraySpec("weight", (), np.dtype(np.float32)),))
    with pytest.raises(ContractError, match="importance weights"):
        Fed().take(3, contract=named, weight=np.ones(3, np.float32))


def test_the_last_of_several_priorities_stays() -> None:
    replay = Fed()
    replay.take(4)
    replay.tell([0, 1, 1], [1.0, 2.0, 3.0])
    replay.tell([1, 2], [4.0, 5.0])
    assert replay.priorities() == {0: leaf(1.0), 1: leaf(4.0), 2: leaf(5.0), 3: 1.0}


def test_late_priorities_are_dropped_and_counted_although_their_places_are_used_again() -> None:
    replay = Fed(capacity=10)
    replay.take(5, 5)
    assert replay.store is not None
    size = replay.store.transitions.size
    late = replay.draw().sample_info
    for _ in range(size // 5):
        replay.take(5)
    before = replay.priorities()
    assert not set(late.generation.tolist()) & set(before)
    replay.update_priorities(late, np.full(len(late.generation), 77.0, np.float32))
    replay.tell([10**9], [77.0])
    assert replay.priorities() == before
    assert replay.metrics()["replay/late_priorities_total"] == len(late.generation) + 1
    assert replay.metrics()["replay/priority_max"] == 1.0


def test_priorities_that_make_no_sense_are_refused_and_counted() -> None:
    replay = Fed()
    replay.take(6)
    replay.tell(range(6), [np.nan, np.inf, -1.0, 0.0, 3e38, 1e17])
    assert replay.priorities() == {0: 1.0, 1: 1.0, 2: 1.0, 3: leaf(0.0), 4: 1.0, 5: leaf(1e17)}
    assert replay.metrics()["replay/refused_priorities_total"] == 4
    with pytest.raises(ValueError, match="shape"):
        replay.tell([0, 1], [1.0])


def test_priorities_wait_in_a_bounded_queue() -> None:
    replay = Fed()
    replay.take(4)
    for number in range(2000):
        replay.tell([0], [number])
    assert len(replay._pending) < 2000
    assert replay.metrics()["replay/dropped_priorities_total"] == 2000 - len(replay._pending)
    replay.draw()
    assert not replay._pending


@examples(40)
@given(data=st.data(), capacity=st.sampled_from([1, 7, 64]), start_size=st.sampled_from([1, 7]))
def test_the_tree_follows_insertions_evictions_and_growth(data: st.DataObject, capacity: int, start_size: int) -> None:
    replay = Fed(capacity=max(capacity, start_size), start_size=start_size)
    naive: dict[int, float] = {}
    largest, head = 1.0, 0
    for _ in range(data.draw(st.integers(1, 15))):
        steps = data.draw(st.sampled_from([1, 2, 9, 40, 1500]))
        replay.take(steps)
        naive |= dict.fromkeys(range(head, head + steps), largest)
        head += steps
        naive = {number: value for number, value in naive.items() if number in replay.alive}
        assert replay.priorities() == naive
        told = data.draw(st.lists(st.tuples(st.integers(0, head - 1), st.integers(0, 50)), max_size=8))
        replay.tell([number for number, _ in told], [error for _, error in told])
        for number, error in told:
            if number in naive:
                naive[number] = leaf(error)
                largest = max(largest, leaf(error))
        info = replay.draw().sample_info
        assert set(info.generation.tolist()) <= naive.keys()


# -- saved priorities --------------------------------------------------------------------------------------------------


def test_a_rebuilt_replay_has_the_saved_priorities_and_the_maximum_for_what_is_newer(tmp_path: Path) -> None:
    path = tmp_path / "priorities.safetensors"
    steps = [30, 1, 25, 40, 16]
    replay = Fed(capacity=100)
    replay.take(*steps)  # the first one is evicted
    replay.tell(list(replay.alive), np.random.default_rng(0).random(len(replay)) * 5)
    saved = replay.priorities()
    assert replay.save_priorities(path) == len(replay) == 82
    replay.tell([50], [99.0])
    replay.take(8)

    rebuilt = Fed(capacity=100)
    assert rebuilt.load_priorities(path) == 82
    rebuilt.number = 1
    rebuilt.take(*steps[1:], 8)
    largest = max([1.0, *saved.values()])
    got = rebuilt.priorities()
    assert list(got.values()) == [*saved.values(), *[largest] * 8][-len(got) :]
    assert rebuilt.metrics()["replay/restored_priorities_total"] == 82


def test_of_a_file_of_other_chunks_the_largest_priority_counts_alone(tmp_path: Path) -> None:
    other = Fed()
    other.take(10)
    other.tell([0], [50.0])
    other.draw()
    other.save_priorities(tmp_path / "file")
    replay = Fed()
    replay.load_priorities(tmp_path / "file")
    replay.number = 100
    replay.take(10)
    assert replay.priorities() == dict.fromkeys(range(10), other.priorities()[0])


def test_saved_priorities_that_make_no_sense_are_refused_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "priorities.safetensors"
    leaves = np.array([leaf(2.0), leaf(3e38), leaf(1.0)])
    write_priorities(path, SavedPriorities(ALPHA, leaf(3e38), {"sender-0": leaves}))
    replay = Fed()
    replay.load_priorities(path)
    replay.take(3, 1)
    assert replay.priorities() == {0: leaf(2.0), 1: 1.0, 2: leaf(1.0), 3: 1.0}
    assert replay.metrics()["replay/refused_priorities_total"] == 1


def test_an_empty_replay_saves_and_loads(tmp_path: Path) -> None:
    assert Fed().save_priorities(tmp_path / "file") == 0
    assert Fed().load_priorities(tmp_path / "file") == 0


def test_a_cut_off_or_foreign_file_is_refused(tmp_path: Path) -> None:
    replay = Fed()
    replay.take(10)
    replay.save_priorities(tmp_path / "file")
    whole = (tmp_path / "file").read_bytes()
    for length in (0, 7, len(whole) // 2, len(whole) - 1):
        (tmp_path / "cut").write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            Fed().load_priorities(tmp_path / "cut")
    with pytest.raises(CheckpointError, match=r"priority_exponent 0\.5; the replay's is 0\.6"):
        Fed(priority_exponent=0.6).load_priorities(tmp_path / "file")


# -- arguments ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"priority_exponent": -0.1}, {"priority_exponent": 1.1}, {"importance_exponent": float("nan")},
        {"importance_exponent_end": 2.0}, {"importance_exponent_steps": 0}, {"priority_epsilon": 0.0},
        {"batch_size": 0},
    ],
)  # fmt: skip
def test_impossible_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Fed(**wrong)


def test_metrics_of_another_thread_do_not_bring_old_sums_back() -> None:
    """The sums that metrics were working out must not be kept when priorities changed meanwhile."""
    replay = Fed()
    replay.take(10)
    replay.tell(range(10), np.full(10, 1.0))
    replay._apply_updates()
    begun, go_on = threading.Event(), threading.Event()

    class Held(np.ndarray[Any, Any]):
        """Adds up, and then waits."""

        def cumsum(self, *args: Any, **kwargs: Any) -> Any:
            sums = np.asarray(self).cumsum(*args, **kwargs)
            begun.set()
            go_on.wait(60.0)
            return sums

    tree = replay._tree
    assert tree is not None
    top = tree._levels[-1]
    tree._levels[-1] = top.view(Held)
    telling = threading.Thread(target=replay.metrics)
    telling.start()
    assert begun.wait(60.0)
    tree._levels[-1] = top
    replay.tell(range(5), np.zeros(5))
    updating = threading.Thread(target=replay._apply_updates)
    updating.start()
    updating.join(0.2)  # it waits for the metrics; without that, it is done long before
    go_on.set()
    telling.join(60.0)
    updating.join(60.0)
    assert tree.total == pytest.approx(tree.leaves.sum())
    assert replay.metrics()["replay/priority_sum"] == tree.total
