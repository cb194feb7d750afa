"""d3rlpy's learners on recorded steps: one request a line as JSON, one answer a line.

{"command": "make", "kind": "iql", "dataset": "steps.npz", "seed": 0, "settings": {...}}: learner's settings by d3rlpy's
names, and `hidden`, `batch`, `gamma`, `bound` (of the actions) and `scales` (whether observations are normalized).
{"command": "run", "updates": 100} answers updates/s, {"command": "returns", "env": ID, "episodes": 100} returns, and
{"command": "version", "package": "torch"} a version.
With "gathers_at_once" in `make`, the transitions are d3rlpy's own, but a batch is gathered with one index.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
import time
from contextlib import redirect_stdout
from importlib.metadata import version
from typing import Any

import gymnasium
import numpy as np
import structlog
import torch

with redirect_stdout(sys.stderr):  # it prints while it is imported
    import d3rlpy
    from d3rlpy import algos
    from d3rlpy.logging import NoopAdapterFactory
    from d3rlpy.models.encoders import VectorEncoderFactory
    from d3rlpy.preprocessing import MinMaxActionScaler, StandardObservationScaler

CONFIGS = {"bc": algos.BCConfig, "td3bc": algos.TD3PlusBCConfig, "iql": algos.IQLConfig, "cql": algos.CQLConfig}
ENCODERS = {
    "bc": ("encoder_factory",),
    "td3bc": ("actor_encoder_factory", "critic_encoder_factory"),
    "iql": ("actor_encoder_factory", "critic_encoder_factory", "value_encoder_factory"),
    "cql": ("actor_encoder_factory", "critic_encoder_factory"),
}


class GatheredBuffer(d3rlpy.dataset.ReplayBuffer):
    """d3rlpy's buffer, whose batches are the rows of one table, which it makes once from all of its transitions.

    They are drawn as in d3rlpy, uniformly and with replacement. d3rlpy makes each transition of a batch in Python.
    """

    @classmethod
    def of(cls, data: d3rlpy.dataset.ReplayBuffer) -> GatheredBuffer:
        made = cls(d3rlpy.dataset.InfiniteBuffer(), episodes=data.episodes)
        size = made.transition_count
        picked = [made.transition_picker(*made.buffer[index]) for index in range(size)]
        made.table = d3rlpy.dataset.TransitionMiniBatch.from_transitions(picked)
        return made

    def sample_transition_batch(self, batch_size: int) -> d3rlpy.dataset.TransitionMiniBatch:
        rows = np.random.randint(self.transition_count, size=batch_size)  # noqa: NPY002 - d3rlpy's generator
        columns = {each.name: getattr(self.table, each.name) for each in dataclasses.fields(self.table)}
        return d3rlpy.dataset.TransitionMiniBatch(
            **{name: [] if name == "transitions" else column[rows] for name, column in columns.items()}
        )


def make(
    kind: str, dataset: str, seed: int, settings: dict[str, Any], gathers_at_once: bool = False
) -> tuple[Any, Any]:
    d3rlpy.seed(seed)
    steps = np.load(dataset)
    data = d3rlpy.dataset.MDPDataset(
        *(steps[name] for name in ("observations", "actions", "rewards", "terminals", "timeouts"))
    )
    hidden, batch, gamma, bound, scales = (
        settings.pop(name) for name in ("hidden", "batch", "gamma", "bound", "scales")
    )
    config = CONFIGS[kind](
        batch_size=batch,
        gamma=gamma,
        action_scaler=MinMaxActionScaler(minimum=np.negative(bound), maximum=np.array(bound)),
        observation_scaler=StandardObservationScaler() if scales else None,
        **{name: VectorEncoderFactory(hidden) for name in ENCODERS[kind]},
        **settings,
    )
    learner = config.create(device="cpu:0")
    if gathers_at_once:
        plain, data = data, GatheredBuffer.of(data)
        check_same(plain, data, batch, seed)
        d3rlpy.seed(seed)
    return learner, data


def check_same(plain: Any, gathered: GatheredBuffer, batch: int, seed: int) -> None:
    """Check that both buffers draw the same batch from the same seed."""
    batches = []
    for each in (plain, gathered):
        d3rlpy.seed(seed)
        batches.append(each.sample_transition_batch(batch))
    for field in dataclasses.fields(batches[0]):
        first, second = (getattr(each, field.name) for each in batches)
        if field.name != "transitions" and not np.array_equal(first, second):
            raise RuntimeError(f"{field.name} of a gathered batch is not that of d3rlpy's own")


def rate(learner: Any, data: Any, updates: int) -> float:
    began_s = time.perf_counter()
    learner.fit(
        data,
        n_steps=updates,
        n_steps_per_epoch=updates,
        logger_adapter=NoopAdapterFactory(),
        show_progress=False,
        save_interval=updates + 1,
    )
    return updates / (time.perf_counter() - began_s)


def returns(learner: Any, env_id: str, episodes: int) -> list[float]:
    """Play an episode in each of several environments at once."""
    envs = gymnasium.make_vec(env_id, num_envs=episodes)
    obs, _ = envs.reset(seed=1000)
    total, is_playing = np.zeros(episodes), np.ones(episodes, bool)
    while is_playing.any():
        obs, reward, terminated, truncated, _ = envs.step(learner.predict(obs))
        total += reward * is_playing
        is_playing &= ~(terminated | truncated)
    return [float(each) for each in total]


def main() -> None:
    torch.set_num_threads(1)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    learner: Any = None
    data: Any = None
    for line in sys.stdin:
        asked = json.loads(line)
        command = asked.pop("command")
        with redirect_stdout(sys.stderr):
            if command == "make":
                learner, data = make(**asked)
                answer: Any = True
            elif command == "run":
                answer = rate(learner, data, asked["updates"])
            elif command == "version":
                answer = version(asked["package"])
            else:
                answer = returns(learner, asked["env"], asked["episodes"])
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
