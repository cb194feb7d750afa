"""SequenceReplay and MixedReplay: their batches, and a recurrent Q-network that learns to remember from sequences."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
from naive_replay import DEADLINE_S, Pool, names_of, pump
from torch import Tensor, nn

from surreal.base.pytorch import Module
from surreal.base.types import TrajectoryBatch
from surreal.learner import Learner
from surreal.replay import MixedReplay, PrioritizedSequenceReplay, Replay, SequenceReplay


def next_batch(replay: Replay) -> Any:
    if not replay.pointer_queue.has_caught_up.is_set():
        replay.pointer_queue.enqueue_step()
    while not len(replay.fetcher_queue):
        assert replay.step(timeout_s=0)
    return replay.dequeue(1.0)


@pytest.mark.parametrize("observations", ["mirrored", "remote"])
def test_sequences_follow_one_environment_over_chunks_and_episodes(run: Any, observations: str) -> None:
    replay = SequenceReplay(
        run.client, sequence_length=9, burn_in=3, batch_size=32, start_size=50, capacity=400, prefetch=1, seed=0,
        observations=observations,
    )  # fmt: skip
    run.replays.append(replay)
    pool, sender = Pool(3, 1, 0.5, is_dict=True), run.sender(chunk_steps=11)
    sent = 0
    for _ in range(8):
        for _ in range(40):
            sender.send_batch(*pool.recv())
        sender.flush()
        sent = int(sender.metrics()["sender/steps_total"])
        pump(replay, steps=sent)
        batch = next_batch(replay)
        check_sequences(batch, pool)
        assert len(replay) <= 400
    assert replay.metrics()["replay/sequence_starts_count"] > 300
    assert replay.num_samples % (32 * 6) == 0  # transitions that were to be learned from
    assert batch.burn_in == 3


def check_sequences(batch: TrajectoryBatch, pool: Pool) -> None:
    rows_of = {}
    for naive in pool.naives:
        rows = []
        for episode in naive.episodes:
            rows += [step[0] for step in episode]
            if episode and episode is not naive.episodes[-1]:
                rows.append(episode[-1][3])
        for place, name in enumerate(rows):
            rows_of[name] = rows[place : place + 9]
    leaves = [batch.obs["pixels"], batch.obs["pose"][0], batch.obs["pose"][1]]
    names = np.stack([names_of([leaf[t].numpy() for leaf in leaves]) for t in range(10)])
    assert batch.action.shape == batch.mask.shape == (9, 32)
    for column in range(32):
        assert names[:9, column].tolist() == rows_of[names[0, column]]
    assert 0 < batch.mask.mean() < 1
    assert batch.is_first[1:].any()


def test_settings_of_sequences_are_checked(run: Any) -> None:
    with pytest.raises(ValueError, match="burn_in 5"):
        SequenceReplay(run.client, sequence_length=5, burn_in=5)
    with pytest.raises(ValueError, match="n_step must be 1"):
        SequenceReplay(run.client, n_step=3)


@pytest.mark.parametrize("fraction", [0.0, 0.3, 1.0])
def test_a_mixed_batch_has_its_share_of_the_newest_steps(run: Any, fraction: float) -> None:
    replay = MixedReplay(
        run.client, on_policy_fraction=fraction, on_policy_window=100, max_version_lag=20, batch_size=20,
        capacity=10_000, start_size=100, prefetch=1, seed=0,
    )  # fmt: skip
    run.replays.append(replay)
    pool, sender = Pool(2, 1, 0.5, is_dict=False), run.sender(chunk_steps=32)
    for _ in range(300):
        sender.send_batch(*pool.recv())
    sender.flush()
    pump(replay, steps=int(sender.metrics()["sender/steps_total"]))
    old, newest = 0, replay.metrics()["replay/newest_version"]
    for _ in range(20):
        batch = next_batch(replay)
        is_on_policy = batch.extras["is_on_policy"].numpy()
        assert is_on_policy.sum() == round(20 * fraction)
        version, generation = batch.sample_info.version, batch.sample_info.generation
        assert (version[is_on_policy] >= newest - 20).all()
        assert len(set(generation[is_on_policy])) == is_on_policy.sum()
        assert (generation[is_on_policy] >= replay.alive.stop - 100).all()
        old += int((version[~is_on_policy] < newest - 20).sum())
    assert (old > 0) == (fraction < 1.0)
    assert replay.metrics()["replay/on_policy_repeats_total"] == 0


# -- a memory task ---------------------------------------------------------------------------------------------------

_DELAY = 5
_LENGTH, _BURN_IN = 14, 4


class Recall:
    """Shows a cue, then noise; the last action is right (1) if it is the cue, wrong (0) otherwise."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.time = self.cue = 0

    def reset(self) -> np.ndarray:
        self.time, self.cue = 0, int(self.rng.integers(2))
        return np.array([2.0 * self.cue - 1.0, 1.0, 0.0], np.float32)

    def step(self, action: int) -> tuple[np.ndarray, float, bool]:
        self.time += 1
        is_done = self.time > _DELAY
        obs = np.array([self.rng.normal() * 0.3, 0.0, float(self.time == _DELAY)], np.float32)
        return obs, float(is_done and action == self.cue), is_done


class RecurrentQ(Module):
    """An LSTM and a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTMCell(3, 16), nn.Linear(16, 2)

    def forward(self, obs: Tensor, is_first: Tensor, state: tuple[Tensor, Tensor]) -> Tensor:
        """Values [T, B, 2] of obs [T, B, 3], is_first [T, B], and the state before row 0, [B, 16] each."""
        values = []
        for x, first in zip(obs, is_first, strict=True):
            keep = (~first)[:, None].float()
            state = self.cell(x, (state[0] * keep, state[1] * keep))
            values.append(self.head(state[0]))
        return torch.stack(values)


@pytest.mark.parametrize(
    ("kind", "interval"), [(SequenceReplay, 1), (SequenceReplay, _DELAY + 1), (PrioritizedSequenceReplay, _DELAY + 1)]
)
def test_a_recurrent_network_learns_to_remember(run: Any, kind: type[SequenceReplay], interval: int) -> None:
    """From 1500 steps of random acting; blind guessing is right half of the time, the greedy network in 95 %.

    With an interval of an episode's steps, sequences begin with episodes, of which there are 250.
    """
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    network = RecurrentQ()
    sender = run.sender(chunk_steps=64, state_interval=interval)
    collect(Recall(rng), network, sender, 1500)
    replay = kind(
        run.client, sequence_length=_LENGTH, burn_in=_BURN_IN, start_interval=interval, batch_size=32, start_size=1000,
        gamma=0.9, seed=0,
    )  # fmt: skip
    run.replays.append(replay)
    pump(replay, steps=1500)
    learner = RecurrentDQN(network, replay)
    for update in range(200):
        batch = next_batch(replay)
        assert interval == 1 or batch.is_first[0].all()
        learner.optimize(update, batch)
    if interval > 1:
        assert replay.metrics()["replay/sequence_starts_count"] <= 1500 / interval
    assert rate_of_success(Recall(rng), network, 100) >= 0.95


class RecurrentDQN(Learner):
    """Q-learning over sequences, as a user writes it."""

    def build(self) -> None:
        self.target = RecurrentQ()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2)

    def learn(self, i: int, batch: TrajectoryBatch) -> dict[str, Tensor]:
        if self.updates % 20 == 0:
            self.target.load_state_dict(self.model.state_dict())
        state = batch.initial_state["state.h"], batch.initial_state["state.c"]
        q = self.model(batch.obs, batch.is_first, state)
        with torch.no_grad():
            after = self.target(batch.obs, batch.is_first, state)[1:].max(dim=-1).values
            expected = batch.reward + batch.discount * after
        chosen = q[:-1].gather(-1, batch.action[..., None])[..., 0]
        weight = batch.mask.clone()
        weight[: batch.burn_in] = 0.0
        loss = (weight * (chosen - expected) ** 2).sum() / weight.sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return {"loss": loss.detach()}


def collect(env: Recall, network: RecurrentQ, sender: Any, steps: int) -> None:
    """Act at random, recording the network's state before each step."""
    state, obs = (torch.zeros(1, 16), torch.zeros(1, 16)), env.reset()
    with torch.inference_mode():
        for _ in range(steps):
            action = int(env.rng.integers(2))
            new_obs, reward, is_done = env.step(action)
            extras = {"state.h": state[0][0].numpy(), "state.c": state[1][0].numpy()}
            sender.send([obs, new_obs], action, reward, is_done, extras=extras)
            state = network.cell(torch.from_numpy(obs)[None], state)
            obs = new_obs
            if is_done:
                state, obs = (torch.zeros(1, 16), torch.zeros(1, 16)), env.reset()
    assert sender.close()


def rate_of_success(env: Recall, network: RecurrentQ, episodes: int) -> float:
    total = 0.0
    with torch.inference_mode():
        for _ in range(episodes):
            state, obs, is_done = (torch.zeros(1, 16), torch.zeros(1, 16)), env.reset(), False
            while not is_done:
                state = network.cell(torch.from_numpy(obs)[None], state)
                obs, reward, is_done = env.step(int(network.head(state[0]).argmax()))
            total += reward
    return total / episodes


def test_agents_are_not_held_before_a_sequence_can_begin(run: Any) -> None:
    """Sixteen lanes of 40 rows are 640 steps, more than start_size and tolerance let in."""
    replay = SequenceReplay(
        run.client, sequence_length=40, burn_in=20, batch_size=2, start_size=50, capacity=100_000, prefetch=1, seed=0,
        samples_per_insert=1.0, samples_per_insert_tolerance=80.0,
    )  # fmt: skip
    run.replays.append(replay)
    sender = run.sender(client=run.make_client(), chunk_steps=16, is_limited=True, wait_timeout_s=DEADLINE_S)
    pool = Pool(16, 1, 0.5, is_dict=False)
    replay.start_threads()
    is_over = threading.Event()

    def take() -> None:
        while not is_over.is_set():
            replay.dequeue(0.05)

    # In a thread, because the sender waits for credit while batches are taken slowly.
    taker = threading.Thread(target=take)
    taker.start()
    try:
        for _ in range(80):
            sender.send_batch(*pool.recv())
    finally:
        is_over.set()
        taker.join()
    assert replay.num_samples > 0
