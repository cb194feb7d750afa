"""Whatever limiter settings the configuration accepts, agents and learner never wait for each other for ever."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from surreal.base.errors import ConfigError
from surreal.config import Config, load_config
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.shards import ReplayShards
from surreal.run.build.learning import build_replay
from tests.examples import examples

#: A server that nobody asks.
NOWHERE = ReplayShards.of(RedisClient("unix:///nowhere"))

_KEY = "replay.samples_per_insert_tolerance"


class NaiveSender:
    """Counts the steps of the chunks that a sender of several environments sends; all of them act in each turn.

    A chunk leaves when enough rows have come. Of an episode that goes on, the last `lookahead` steps stay behind.
    """

    def __init__(self, config: Config, rng: random.Random) -> None:
        self.chunk_steps, self.lookahead = config.sender.chunk_steps, config.lookahead
        self.rng = rng
        self.held = [0] * config.env.num_envs
        self.ends_together = rng.random() < 0.5
        self.end_rate = rng.choice([0.0, 0.01, 0.2])

    def next_chunk(self) -> int:
        rows, released = 0, 0
        while rows < self.chunk_steps or not released:
            do_all_end = self.ends_together and rows + len(self.held) >= self.chunk_steps
            for env in range(len(self.held)):
                self.held[env] += 1
                rows += 1
                if do_all_end or self.rng.random() < self.end_rate:
                    released += self.held[env]
                    self.held[env] = 0
                    rows += 1  # the next episode's first observation
            if rows >= self.chunk_steps:
                for env, held in enumerate(self.held):
                    released += max(held - self.lookahead, 0)
                    self.held[env] = min(held, self.lookahead)
        return released


@examples(150)
@given(
    ratio=st.sampled_from([0.03, 0.1, 0.7, 1.0, 3.7, 8.0, 50.0]),
    batch_size=st.sampled_from([1, 3, 64, 300]),
    start_size=st.sampled_from([1, 7, 100, 3000]),
    chunk_steps=st.sampled_from([1, 2, 16, 64, 500]),
    agents=st.integers(1, 4),
    num_envs=st.sampled_from([1, 2, 8, 100]),
    n_step=st.sampled_from([1, 3, 10]),
    tolerance=st.none() | st.sampled_from([0.5, 0.9, 1.0, 1.01, 2.0]),
    seed=st.integers(0, 1 << 30),
)
def test_what_is_accepted_never_stands_still(
    ratio: float,
    batch_size: int,
    start_size: int,
    chunk_steps: int,
    agents: int,
    num_envs: int,
    n_step: int,
    tolerance: float | None,
    seed: int,
) -> None:
    """Tolerances lie around the least that is needed; in each turn somebody must be able to go on."""
    overrides = [f"replay.samples_per_insert={ratio}", f"learner.batch_size={batch_size}"]
    overrides += [f"replay.start_size={start_size}", f"sender.chunk_steps={chunk_steps}", f"agent.count={agents}"]
    overrides += [f"env.num_envs={num_envs}", f"learner.n_step={n_step}", "replay.capacity=100000"]
    overrides += ["run.max_env_steps=null"]
    if tolerance is not None:
        largest = chunk_steps - 1 + num_envs * n_step
        least = max(ratio * agents * chunk_steps, ratio * largest, batch_size + ratio)
        overrides.append(f"{_KEY}={tolerance * least!r}")
    try:
        config = load_config("cartpole-dqn", overrides)
        band = build_replay(config, NOWHERE, seed=0).limiter
    except ConfigError as error:
        assert error.key == _KEY
        assert tolerance is not None and tolerance <= 1.0, "the defaults, and what a refusal asks for, are accepted"
        assert tolerance < 1.0 or "raise it" in str(error)
        return
    assert band is not None
    rng = random.Random(seed)
    senders = [NaiveSender(config, rng) for _ in range(agents)]
    waiting = [sender.next_chunk() for sender in senders]
    preference = rng.choice(["agents", "learner", "nobody"])
    inserted = sampled = 0
    for _ in range(300):
        credit = band.credit_steps(sampled)
        ready = [i for i, steps in enumerate(waiting) if inserted + steps <= credit]
        may_learn = band.may_sample(inserted, sampled, batch_size)
        assert ready or may_learn, f"all wait: {inserted} inserted, {sampled} sampled, chunks of {waiting} steps"
        if may_learn and (not ready or preference == "learner" or (preference == "nobody" and rng.random() < 0.5)):
            sampled += batch_size
        else:
            i = rng.choice(ready)
            inserted += waiting[i]
            waiting[i] = senders[i].next_chunk()
        if inserted >= start_size:
            middle, slack = ratio * (inserted - start_size), 1e-6 * (1 + ratio * inserted)
            assert middle - band.tolerance - slack <= sampled <= middle + band.tolerance + slack
