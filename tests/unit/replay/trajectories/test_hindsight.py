"""Relabeled transitions against naive lists of episodes: random chunks, gaps, eviction, and episodes without an end."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from surreal.base.errors import ContractError, UserCodeError
from surreal.base.specs import ArraySpec, ObsSpec
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.codec import Chunk, Contract, decode, encode
from surreal.replay import HindsightReplay
from surreal.replay.store.storage import Gathered, StoredChunk
from surreal.replay.trajectories.hindsight import BLOCK_STEPS, EpisodeIndex, HindsightStore

GAMMA = 0.5
SPEC = ObsSpec.from_obs({name: np.zeros(2) for name in ("achieved_goal", "desired_goal", "observation")})
CONTRACT = Contract(SPEC, ArraySpec("action", (), np.dtype(np.int64)))


def compute_reward(achieved: NDArray[Any], goal: NDArray[Any], info: dict[str, Any]) -> NDArray[Any]:
    return -np.abs(achieved - goal).sum(axis=-1)


def compute_terminated(achieved: NDArray[Any], goal: NDArray[Any], info: dict[str, Any]) -> NDArray[Any]:
    return np.all(achieved == goal, axis=-1)


@dataclass
class Episode:
    """States, each a number that no other has; the goal is below 0, where no state is."""

    goal: int
    states: list[int] = field(default_factory=list)


class World:
    """Environments of one sender, whose steps are sent in random chunks; `lost` chunks never arrive."""

    def __init__(self, seed: int, *, slots: int = 3, length: int = 40) -> None:
        self.rng = np.random.default_rng(seed)
        self.length = length
        self.count = self.sequence = 0
        self.open = [self.begin() for _ in range(slots)]
        self.of_state: dict[int, Episode] = {}  # by the state before a step that arrived
        self.next_state: dict[int, int] = {}
        self.terminated: set[int] = set()  # states before such steps

    def begin(self) -> Episode:
        self.count += 1
        return Episode(-self.count, [self.count])

    def chunk(self, *, lost: bool = False) -> Chunk:
        segments, states, goals = [], [], []
        columns: dict[str, list[float]] = {"action": [], "reward": [], "flags": [], "version": []}
        for slot in range(len(self.open)):
            left = int(self.rng.integers(slot == 0, 12))
            while left > 0:
                episode = self.open[slot]
                first, steps, is_over = len(episode.states) - 1, 0, False
                rows = [episode.states[-1]]
                while steps < left and not is_over:
                    before = episode.states[-1]
                    self.count += 1
                    steps += 1
                    episode.states.append(self.count)
                    rows.append(self.count)
                    is_over = bool(self.rng.random() < 1 / self.length)
                    flags = int(self.rng.integers(1, 3)) if is_over else 0
                    columns["action"].append(before)
                    columns["reward"].append(2.0 * -abs(self.count - episode.goal))
                    columns["flags"].append(flags)
                    columns["version"].append(0)
                    if flags == 1:
                        self.terminated.add(before)
                    if not lost:
                        self.of_state[before], self.next_state[before] = episode, self.count
                left -= steps
                segments.append([steps + 1, steps, slot, first, 0])
                states += rows
                goals += [episode.goal] * (steps + 1)
                if is_over:
                    self.open[slot] = self.begin()
        if lost:  # what comes later of these episodes cannot be linked to what came before
            self.open = [Episode(each.goal, [*[0] * (len(each.states) - 1), each.states[-1]]) for each in self.open]
        leaves = [np.repeat(np.array(column, np.float64)[:, None], 2, axis=1) for column in (states, goals, states)]
        kinds = {"action": np.int64, "reward": np.float32, "flags": np.uint8, "version": np.int32}
        table = {name: np.array(columns[name], kind) for name, kind in kinds.items()}
        encoded = encode(CONTRACT, np.array(segments, np.int32).reshape(-1, 5), table, leaves)
        chunk = decode(CONTRACT, encoded.head, encoded.table, encoded.block)
        chunk.chunk_id = f"some-sender-{self.sequence}"
        self.sequence += 1
        return chunk

    def later_states(self, state: int) -> set[int]:
        """What was achieved after this state, as far as it arrived without a gap."""
        found = set()
        episode = self.of_state[state]
        while state in self.next_state and self.of_state[state] is episode:
            state = self.next_state[state]
            found.add(state)
        return found


def make_store(seed: int = 0, **options: Any) -> HindsightStore:
    defaults = {"her_ratio": 0.8, "compute_reward": compute_reward, "compute_terminated": compute_terminated}
    rng = np.random.default_rng(seed)
    return HindsightStore(CONTRACT, capacity=100, gamma=GAMMA, rng=rng, **{**defaults, **options})


def insert(store: HindsightStore, chunk: Chunk) -> StoredChunk:
    numbers = store.insert(chunk)
    return StoredChunk(b"", chunk.chunk_id, "", len(numbers), 0, numbers.stop, store.observations.head)


def gather(store: HindsightStore, numbers: NDArray[np.int64]) -> Gathered:
    return store.gather(numbers, np.ones(numbers.shape))


def check(world: World, gathered: Gathered, *, ends: bool = True) -> float:
    """Check each transition [N] against the naive episodes; returns the share that was relabeled."""
    relabeled = 0
    for i, state in enumerate(gathered.action.tolist()):
        episode, after = world.of_state[state], world.next_state[state]
        achieved, desired, observation = (leaf[i, 0] for leaf in gathered.obs)
        goal = int(desired)
        is_relabeled = goal != episode.goal
        relabeled += is_relabeled
        assert achieved == observation == state
        assert [leaf[i, 1] for leaf in gathered.next_obs] == [after, goal, after]
        assert not is_relabeled or goal in world.later_states(state), "a goal of the future of the same episode"
        assert gathered.reward[i] == -2.0 * abs(after - goal)
        is_over = goal == after if is_relabeled and ends else state in world.terminated
        assert gathered.discount[i] == (0.0 if is_over else GAMMA)
    return relabeled / len(gathered.action)


@pytest.mark.parametrize("seed", range(4))
def test_goals_come_from_the_future_of_the_same_episode(seed: int) -> None:
    world, store, chunks = World(seed), make_store(seed), deque[StoredChunk]()
    for _ in range(60):
        if world.rng.random() < 0.1:
            world.chunk(lost=True)
            continue
        chunks.append(insert(store, world.chunk()))
        while len(store) > 300:
            store.evict(chunks.popleft())
        numbers = world.rng.integers(store.transitions.tail, store.transitions.head, 100)
        check(world, gather(store, numbers))
    assert store.transitions.tail > 0


@pytest.mark.parametrize("evicted", [0, 10])
def test_every_later_step_of_an_episode_that_ended_is_drawn(evicted: int) -> None:
    world, store, chunks = World(5), make_store(her_ratio=1.0), deque[StoredChunk]()
    for _ in range(30):
        chunks.append(insert(store, world.chunk()))
    for _ in range(evicted):
        store.evict(chunks.popleft())
    open_states = {state for episode in world.open for state in episode.states}
    states = store.transitions.take("action", np.arange(store.transitions.tail, store.transitions.head))
    for place in range(0, len(states), 7):
        state = int(states[place])
        if state not in open_states:
            drawn = gather(store, np.full(1000, store.transitions.tail + place))
            assert set(drawn.obs[1][:, 0].astype(int).tolist()) == world.later_states(state)


@pytest.mark.parametrize("ratio", [0.0, 0.3, 0.8, 1.0])
def test_the_share_of_relabeled_transitions_is_her_ratio(ratio: float) -> None:
    world, store = World(1), make_store(her_ratio=ratio)
    for _ in range(20):
        insert(store, world.chunk())
    numbers = world.rng.integers(0, store.transitions.head, 5000)
    # Four standard errors of a share of 5000.
    assert check(world, gather(store, numbers)) == pytest.approx(ratio, abs=4 * 0.5 / 5000**0.5)


def test_several_batches_are_relabeled_at_once() -> None:
    world, store = World(2), make_store()
    for _ in range(20):
        insert(store, world.chunk())
    numbers = world.rng.integers(0, store.transitions.head, (3, 50))
    for batch in gather(store, numbers).split():
        assert check(world, batch) > 0


def test_a_replay_that_reads_its_chunks_again_draws_the_same_goals() -> None:
    world, stores, alive = World(3, length=100), (make_store(), make_store()), deque[Chunk]()
    stored = deque[StoredChunk]()
    for _ in range(40):
        alive.append(world.chunk())
        stored.append(insert(stores[0], alive[-1]))
        if len(stores[0]) > 200:
            stores[0].evict(stored.popleft())
            alive.popleft()
    for chunk in alive:
        insert(stores[1], chunk)
    for_each = [np.arange(store.transitions.tail, store.transitions.head) for store in stores]
    first, second = (gather(store, numbers) for store, numbers in zip(stores, for_each, strict=True))
    assert first.action.tolist() == second.action.tolist()
    for ours, theirs in zip(first.obs, second.obs, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_an_environment_without_compute_terminated_keeps_recorded_ends() -> None:
    world, store = World(4), make_store(compute_terminated=None)
    for _ in range(20):
        insert(store, world.chunk())
    check(world, gather(store, np.arange(store.transitions.head)), ends=False)


def test_a_function_that_judges_one_goal_at_a_time_is_called_for_each() -> None:
    def judge(achieved: NDArray[Any], goal: NDArray[Any], info: dict[str, Any]) -> bool:
        return bool(np.linalg.norm(achieved - goal) == 0)

    world, store = World(4), make_store(compute_terminated=judge)
    for _ in range(20):
        insert(store, world.chunk())
    check(world, gather(store, np.arange(store.transitions.head)))


def test_an_episode_that_never_ends_is_relabeled_and_takes_no_more_memory() -> None:
    index, rng = EpisodeIndex(512), np.random.default_rng(0)
    kept, size, lane = 3000, 10, np.zeros(10, np.int32)
    sizes = []
    for chunk in range(2000):
        first = chunk * size
        index.add(f"s-{chunk}", first, lane, np.arange(first, first + size), np.zeros(size, np.bool_))
        index.free_until(max(0, first + size - kept))
        sizes.append(index.nbytes)
        if chunk >= 300 and chunk % 50 == 49:
            numbers = np.arange(first + size - kept, first + size)
            later = index.draw_later(numbers, rng)
            assert (later >= numbers).all()
            assert (later < first + size).all()
            assert (later // BLOCK_STEPS == numbers // BLOCK_STEPS).all()
            assert np.mean(later > numbers) > 0.3
    assert sizes[-1] == sizes[1000]


def test_a_function_that_is_not_vectorized_is_named() -> None:
    world, store = World(0), make_store(compute_reward=lambda achieved, goal, info: np.linalg.norm(achieved - goal))
    insert(store, world.chunk())
    with pytest.raises(UserCodeError, match=r"test_hindsight.py line \d+\) gives shape \[\] for \d+ goals .*, 2\]"):
        gather(store, np.arange(store.transitions.head))


def test_observations_without_goals_and_stacks_are_refused() -> None:
    action = ArraySpec("action", (), np.dtype(np.int64))
    replay = HindsightReplay(RedisClient(), compute_reward=compute_reward)
    plain = Contract(ObsSpec.from_obs(np.zeros(2)), action)
    with pytest.raises(ContractError, match="observations have one array; hindsight needs a Dict with achieved_goal"):
        replay._make_store(plain, None)  # type: ignore[arg-type]
    with pytest.raises(ContractError, match="observations are stacks of 4 frames"):
        replay._make_store(Contract(SPEC, action, stack=4), None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="n_step is 3; it must be 1"):
        HindsightReplay(RedisClient(), compute_reward=compute_reward, n_step=3)
    with pytest.raises(ValueError, match=r"her_ratio is 1.5; it must be in \[0, 1\]"):
        HindsightReplay(RedisClient(), compute_reward=compute_reward, her_ratio=1.5)
