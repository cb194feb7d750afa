"""What the tests of the data path compare with: a replay of plain Python lists, and helpers around it.

Every observation of a test holds a number of its own, so a transition in the real replay can be named.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from surreal.base.types import Action, StepBatch, StepKind
from surreal.distributed.experience.sender import ExpSender
from surreal.replay import UniformReplay

DEADLINE_S = 60.0


class Transition(NamedTuple):
    action: float
    reward: float
    discount: float
    next_name: int
    version: int


class Episode(NamedTuple):
    """One that a test asks for; if it is neither terminated nor truncated, it breaks off without a last row."""

    steps: int
    terminated: bool
    truncated: bool


class NaiveReplay:
    """Lists of steps, turned into n-step transitions one by one."""

    def __init__(self, n: int, gamma: float) -> None:
        self.n, self.gamma = n, gamma
        self.episodes: list[list[tuple[int, float, float, int, bool, int]]] = [[]]

    def add(
        self, name: int, action: float, reward: float, next_name: int, *, terminated: bool, version: int = -1
    ) -> None:
        self.episodes[-1].append((name, action, reward, next_name, terminated, version))

    def end(self) -> None:
        self.episodes.append([])

    def transitions(self) -> dict[int, Transition]:
        found = {}
        for episode in self.episodes:
            for first, (name, action, _, _, _, version) in enumerate(episode):
                steps = episode[first : first + self.n]
                reward = sum(self.gamma**k * step[2] for k, step in enumerate(steps))
                discount = 0.0 if steps[-1][4] else self.gamma ** len(steps)
                found[name] = Transition(action, reward, discount, steps[-1][3], version)
        return found


def make_obs(name: Any, *, is_dict: bool) -> Any:
    """An observation, or a batch of them, that carries its name."""
    name = np.asarray(name, np.int64)
    pair = np.stack([name, -name], axis=-1).astype(np.float32)
    return {"pixels": pair.astype(np.int32), "pose": (pair, name)} if is_dict else pair


def stack_of(seen: list[int], frames: int) -> list[int]:
    """Names of the last frames of an episode that was seen so far, oldest first; its first frame is repeated."""
    return ([seen[0]] * frames + seen)[-frames:]


def names_of(leaves: list[np.ndarray[Any, Any]]) -> list[int]:
    """Names of gathered observations; checks that all their numbers fit."""
    pair = leaves[0]
    for leaf in leaves:
        np.testing.assert_array_equal(leaf if leaf.ndim == 1 else leaf[:, 0], pair[:, 0])
        assert leaf.ndim == 1 or (leaf[:, 1] == -pair[:, 0]).all()
    return pair[:, 0].astype(np.int64).tolist()


def contents(replay: UniformReplay) -> dict[int, Transition]:
    """Everything that is alive, in order; fails if an observation is there twice."""
    if replay.store is None:
        return {}
    alive = np.arange(replay.alive.start, replay.alive.stop)
    rows = replay.store.gather(alive, np.ones(len(alive)))
    columns = zip(
        names_of(rows.obs),
        rows.action.tolist(),
        rows.reward.tolist(),
        rows.discount.tolist(),
        names_of(rows.next_obs),
        rows.version.tolist(),
        strict=True,
    )
    found = {name: Transition(*values) for name, *values in columns}
    assert len(found) == len(alive)
    return found


def assert_same(got: dict[int, Transition], expected: dict[int, Transition]) -> None:
    assert got.keys() == expected.keys()
    for name, transition in expected.items():
        np.testing.assert_allclose(got[name], transition, rtol=1e-6)


class Walker:
    """A random environment and its agent: sends steps of unique observations, and remembers them naively.

    Args:
        naive: where to remember.
        begin: name of the first observation; give walkers of one run ranges of their own.
    """

    def __init__(self, naive: NaiveReplay, *, begin: int = 0, is_dict: bool = False, seed: int = 0) -> None:
        self.naive, self.is_dict = naive, is_dict
        self.rng = np.random.default_rng(seed)
        self.name = begin
        self.obs = make_obs(begin, is_dict=is_dict)

    def walk(self, sender: ExpSender, steps: int) -> None:
        """Send that many steps. A step whose `send` fails to reach Redis is recorded all the same."""
        for _ in range(steps):
            action, reward = int(self.rng.integers(0, 5)), float(self.rng.integers(-3, 4))
            is_done, is_truncated = self.rng.random() < 0.15, self.rng.random() < 0.5
            obs, new_obs = self.obs, make_obs(self.name + 1, is_dict=self.is_dict)
            self.naive.add(self.name, action, reward, self.name + 1, terminated=is_done and not is_truncated)
            self.name, self.obs = self.name + 1, new_obs
            if is_done:
                self.naive.end()
                self.name += 1
                self.obs = make_obs(self.name, is_dict=self.is_dict)
            sender.send([obs, new_obs], action, reward, is_done, {"truncated": is_truncated})


class Pool:
    """Several random environments whose rows come in batches, as an environment pool hands them over.

    Args:
        stack: frames of an observation.
        episodes: of each environment, which then does nothing more; None: random ones, for ever.
    """

    def __init__(
        self,
        num_envs: int,
        n: int,
        gamma: float,
        *,
        is_dict: bool,
        seed: int = 0,
        stack: int = 1,
        episodes: list[list[Episode]] | None = None,
    ) -> None:
        self.naives = [NaiveReplay(n, gamma) for _ in range(num_envs)]
        self.rng = np.random.default_rng(seed)
        self.last: list[tuple[int, int, int] | None] = [None] * num_envs  # name, action, version
        self.is_dict, self.stack = is_dict, stack
        self.left = None if episodes is None else [lane.copy() for lane in episodes]
        self.seen: list[list[int]] = [[] for _ in range(num_envs)]  # names of each one's episode
        self.stacks: dict[int, list[int]] = {}  # of each name: its frames
        self.name = self.version = 0

    @property
    def is_over(self) -> bool:
        return self.left is not None and not any(self.left)

    def recv(self) -> tuple[StepBatch, Action]:
        """Rows of some of the environments, and an agent's actions for them."""
        rows: list[tuple[int, int, StepKind, float, bool, bool]] = []
        for env_id in range(len(self.last)):
            if self.rng.random() < 0.3:
                continue
            if self.left is not None and self.left[env_id] and len(self.seen[env_id]) > self.left[env_id][0].steps:
                self._end(env_id)  # it breaks off
            if self.left is not None and not self.left[env_id]:
                continue
            last = self.last[env_id]
            name = self._see(env_id)
            if last is None:
                rows.append((env_id, name, StepKind.FIRST, 0.0, False, False))
                continue
            terminated, is_truncated = self._outcome(env_id)
            ends = terminated or is_truncated
            reward = float(self.rng.integers(-3, 4))
            self.naives[env_id].add(last[0], last[1], reward, name, terminated=terminated, version=last[2])
            kind = StepKind.LAST if ends else StepKind.MID
            rows.append((env_id, name, kind, reward, terminated, is_truncated))
            if ends:
                self._end(env_id)
                if self.left is None or self.left[env_id]:
                    rows.append((env_id, self._see(env_id), StepKind.FIRST, 0.0, False, False))
        rows.sort(key=lambda row: row[2] != StepKind.LAST)
        num_last = sum(row[2] == StepKind.LAST for row in rows)
        env_ids, names, kind, reward, terminated, truncated = ([row[i] for row in rows] for i in range(6))
        flags = np.ones(len(rows), np.bool_)
        batch = StepBatch(
            kind=np.array(kind, np.uint8),
            env_ids=np.array(env_ids, np.int64),
            obs=make_obs(names if self.stack == 1 else [self.stacks[name] for name in names], is_dict=self.is_dict),
            reward=np.array(reward, np.float32),
            terminated=np.array(terminated, np.bool_),
            truncated=np.array(truncated, np.bool_),
            explore=flags,
            record=flags,
            num_last=num_last,
            info={},
            closed_ids=np.empty(0, np.int64),
        )
        actions = self.rng.integers(0, 5, len(rows) - num_last)
        self.version += 1
        for row, action in zip(rows[num_last:], actions.tolist(), strict=True):
            self.last[row[0]] = (row[1], action, self.version)
        return batch, Action(actions, {}, self.version)

    def _see(self, env_id: int) -> int:
        self.name += 1
        self.seen[env_id].append(self.name)
        self.stacks[self.name] = stack_of(self.seen[env_id], self.stack)
        return self.name

    def _outcome(self, env_id: int) -> tuple[bool, bool]:
        """Whether the episode is terminated and whether it is truncated with what was just seen."""
        if self.left is not None:
            steps, terminated, truncated = self.left[env_id][0]
            is_end = len(self.seen[env_id]) > steps
            return is_end and terminated, is_end and truncated
        ends = self.rng.random() < 0.15
        is_truncated = bool(ends and self.rng.random() < 0.5)
        return bool(ends and not is_truncated), is_truncated

    def _end(self, env_id: int) -> None:
        self.naives[env_id].end()
        self.last[env_id], self.seen[env_id] = None, []
        if self.left is not None:
            self.left[env_id].pop(0)

    def transitions(self) -> dict[int, Transition]:
        return {name: found for naive in self.naives for name, found in naive.transitions().items()}


def pump(replay: UniformReplay, *, steps: int) -> None:
    """Drive a replay without threads until it has inserted that many env steps in all."""
    pump_until(replay, lambda: replay.metrics()["replay/inserted_steps_total"] >= steps)
    assert replay.metrics()["replay/inserted_steps_total"] == steps


def pump_until(replay: UniformReplay, is_done: Callable[[], bool]) -> None:
    """Drive a replay without threads until a condition holds."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not is_done():
        assert time.monotonic() < deadline_s, replay.metrics()
        replay.pointer_queue.enqueue_step()
        while replay.step(timeout_s=0.0) and not is_done():
            pass


def tick(replay: UniformReplay) -> None:
    """Let the owner talk to Redis now, not when it is due."""
    replay.owner.owners[0].last_tick_s = 0.0
    replay.step(timeout_s=0)


def wait_until(is_done: Callable[[], bool]) -> None:
    """Wait for another thread's doing."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not is_done():
        assert time.monotonic() < deadline_s
        time.sleep(0.002)


@contextmanager
def in_thread(work: Any, *args: Any) -> Iterator[threading.Thread]:
    """Run something beside the test; what it raises is raised here."""
    errors: list[BaseException] = []

    def body() -> None:
        try:
            work(*args)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    yield thread
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    if errors:
        raise errors[0]


def live(run: Any) -> tuple[int, int, int, int]:
    """Entries, blocks, and the live counters of the run's stream."""
    client, keys = run.client.redis, run.client.shard_keys()
    blocks = sum(1 for _ in client.scan_iter(match=keys.block_prefix.replace("{", "[{]") + "*", count=1000))
    steps, stored = client.hmget(keys.meta, "live_steps", "live_bytes")
    return client.xlen(keys.stream), blocks, int(steps or 0), int(stored or 0)


def assert_consistent(run: Any, replay: Any) -> None:
    """The stream holds exactly the chunks that the replay holds."""
    chunks = replay.chunks
    expected = (len(chunks), len(chunks), sum(c.steps for c in chunks), sum(c.stored_bytes for c in chunks))
    assert live(run) == expected
    assert len(replay) == expected[2]


def settle(replay: Any) -> None:
    """Turn until what was evicted is gone from Redis too."""
    while replay.owner.num_pending:
        replay.step(timeout_s=0.001)
