"""Random episodes, environments and settings: every transition of a replay, compared with plain Python lists."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_replay import Episode, NaiveReplay, Pool, Transition, make_obs, pump, stack_of, wait_until

from surreal.base.types import Batch, Obs
from surreal.envs import Env, FrameStack
from surreal.replay.store.remote_rows import RemoteRows
from surreal.replay.store.rows import MirroredRows

PAIR, NAME = spaces.Box(-1e6, 1e6, (2,), np.float32), spaces.Box(-(10**6), 10**6, (), np.int64)
PIXELS = spaces.Box(-(10**6), 10**6, (2,), np.int32)
NESTED = spaces.Dict({"pixels": PIXELS, "pose": spaces.Tuple((PAIR, NAME))})

ends = st.sampled_from([(True, False), (False, True), (True, True), (False, False)])
episodes = st.builds(lambda steps, end: Episode(steps, *end), st.integers(1, 12), ends)
#: The episodes of each lane, which is an environment of a pool, or of a plain loop with a sender of its own.
lanes = st.lists(st.lists(episodes, min_size=1, max_size=4), min_size=1, max_size=4)


class Scripted(Env):
    """An environment of the plain loop that has these episodes, and whose observations have numbers as names."""

    def __init__(self, script: list[Episode], *, begin: int, is_dict: bool, seed: int) -> None:
        self.observation_space, self.action_space = NESTED if is_dict else PAIR, spaces.Discrete(5)
        self.left, self.name, self.is_dict = script.copy(), begin, is_dict
        self.rng = np.random.default_rng(seed)

    def reset(self, *, seed: int | None = None) -> tuple[Obs, dict[str, Any]]:
        self.steps, self.name = 0, self.name + 1
        return make_obs(self.name, is_dict=self.is_dict), {}

    def step(self, action: Any) -> tuple[Obs, float, bool, dict[str, Any]]:
        self.steps, self.name = self.steps + 1, self.name + 1
        steps, terminated, truncated = self.left[0]
        is_end = self.steps == steps
        if is_end:
            self.left.pop(0)
        info = {"terminated": is_end and terminated, "truncated": is_end and truncated}
        reward = float(self.rng.integers(-3, 4))
        return make_obs(self.name, is_dict=self.is_dict), reward, info["terminated"] or info["truncated"], info

    def close(self) -> None:
        pass


class Player:
    """The plain loop over one such environment, a step at a time; remembers what happened naively."""

    def __init__(self, script: list[Episode], naive: NaiveReplay, sender: Any, *, stack: int, **options: Any) -> None:
        self.inner = Scripted(script, **options)
        self.env = FrameStack(self.inner, stack) if stack > 1 else self.inner
        self.naive, self.sender, self.stack = naive, sender, stack
        self.stacks: dict[int, list[int]] = {}
        self.is_over, self.version = False, 0
        self._begin()

    def _begin(self) -> None:
        self.obs, _ = self.env.reset()
        self.seen: list[int] = []
        self._see()

    def _see(self) -> int:
        self.seen.append(self.inner.name)
        self.stacks[self.inner.name] = stack_of(self.seen, self.stack)
        return self.inner.name

    def step(self) -> None:
        name, action, episodes = self.inner.name, int(self.inner.rng.integers(5)), len(self.inner.left)
        self.version += 1
        new_obs, reward, done, info = self.env.step(action)
        self.sender.send([self.obs, new_obs], action, reward, done, info, version=self.version)
        self.naive.add(name, action, reward, self._see(), terminated=info["terminated"], version=self.version)
        self.obs = new_obs
        self.is_over = not self.inner.left
        if len(self.inner.left) < episodes:
            self.naive.end()
            if not self.is_over:
                self._begin()


def send_all(data: st.DataObject, senders: list[Any], players: list[Any]) -> None:
    """Let all of them act in turns until their episodes are over; some chunks leave early."""
    while players := [player for player in players if not player.is_over]:
        for player in players:
            player.step() if isinstance(player, Player) else senders[0].send_batch(*player.recv())
        if data.draw(st.integers(0, 9), label="flush at 0") == 0:
            for sender in senders:
                sender.flush()
    for sender in senders:
        assert sender.close()


def leaves_of(obs: Any) -> list[np.ndarray[Any, Any]]:
    leaves = (obs["pixels"], *obs["pose"]) if isinstance(obs, dict) else (obs,)
    return [np.asarray(leaf) for leaf in leaves]


def check(batch: Batch, expected: dict[int, Transition], stacks: dict[int, list[int]], *, is_dict: bool) -> list[int]:
    """Compare each row of a batch, and all of each; returns the names of its observations."""
    depth = len(next(iter(stacks.values())))
    newest = leaves_of(batch.obs)[0] if depth == 1 else leaves_of(batch.obs)[0][:, -1]
    names: list[int] = newest[:, 0].astype(int).tolist()
    transitions = [expected[name] for name in names]
    for got, wanted in ((batch.obs, names), (batch.next_obs, [found.next_name for found in transitions])):
        frames = np.array([stacks[name] for name in wanted])
        whole = make_obs(frames[:, 0] if depth == 1 else frames, is_dict=is_dict)
        for ours, theirs in zip(leaves_of(got), leaves_of(whole), strict=True):
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(batch.action, [found.action for found in transitions])
    np.testing.assert_allclose(batch.reward, [found.reward for found in transitions], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(batch.discount, [found.discount for found in transitions], rtol=1e-6)
    np.testing.assert_array_equal(batch.sample_info.version, [found.version for found in transitions])
    return names


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    data=st.data(),
    lanes=lanes,
    is_pool=st.booleans(),
    n=st.integers(1, 5),
    more_lookahead=st.integers(0, 2),
    stack=st.integers(1, 4),
    is_dict=st.booleans(),
    observations=st.sampled_from(["mirrored", "remote"]),
    gamma=st.sampled_from([0.5, 0.9, 1.0]),
    chunk_steps=st.integers(1, 40),
    chunk_max_bytes=st.sampled_from([500, 2000, 1 << 20]),
    seed=st.integers(0, 1000),
)
def test_every_transition_is_that_of_plain_lists(
    new_run: Any,
    data: st.DataObject,
    lanes: list[list[Episode]],
    is_pool: bool,
    n: int,
    more_lookahead: int,
    stack: int,
    is_dict: bool,
    observations: str,
    gamma: float,
    chunk_steps: int,
    chunk_max_bytes: int,
    seed: int,
) -> None:
    options: dict[str, Any] = {"lookahead": n - 1 + more_lookahead, "chunk_steps": chunk_steps}
    options["chunk_max_bytes"] = chunk_max_bytes
    with new_run() as run:
        players: list[Any]
        if is_pool:
            senders = [run.sender(frame_stack=stack, **options)]
            players = [Pool(len(lanes), n, gamma, is_dict=is_dict, seed=seed, stack=stack, episodes=lanes)]
            naives = players[0].naives
        else:  # the sender finds the depth of the stacks in `info`
            senders, naives = [run.sender(**options) for _ in lanes], [NaiveReplay(n, gamma) for _ in lanes]
            players = [
                Player(lane, naive, sender, stack=stack, begin=10_000 * i, is_dict=is_dict, seed=seed + i)
                for i, (lane, naive, sender) in enumerate(zip(lanes, naives, senders, strict=True))
            ]
        send_all(data, senders, players)
        stacks = {name: frames for player in players for name, frames in player.stacks.items()}
        expected = {name: found for naive in naives for name, found in naive.transitions().items()}
        replay = run.replay(observations=observations, capacity=1000, n_step=n, gamma=gamma, batch_size=16)
        pump(replay, steps=len(expected))
        while not replay.pointer_queue.has_caught_up.is_set():
            replay.pointer_queue.enqueue_step()
        assert isinstance(replay.store.observations, RemoteRows if observations == "remote" else MirroredRows)

        def has_batch() -> bool:
            replay.step(timeout_s=0)
            return len(replay.fetcher_queue) > 0

        for _ in range(4):
            wait_until(has_batch)
            check(replay.dequeue(0.0), expected, stacks, is_dict=is_dict)
        replay.store.observations.forget()
        alive = np.arange(replay.alive.start, replay.alive.stop)
        everything = replay.aggregate_batch(replay.store.gather(alive, np.ones(len(alive))))
        assert sorted(check(everything, expected, stacks, is_dict=is_dict)) == sorted(expected)
