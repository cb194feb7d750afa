"""What an Atari transition costs in Redis, with the settings of the preset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from surreal.base.specs import ArraySpec, ObsSpec
from surreal.base.types import Action, StepBatch, StepKind
from surreal.config import load_config

FRAME_BYTES = 84 * 84


def used_memory(redis: Any) -> int:
    """Of all keys; the server's count has the buffers of connections too, one as large as the last chunk."""
    return sum(int(redis.memory_usage(key, samples=0)) for key in redis.scan_iter(count=1000))


@pytest.mark.parametrize("life_steps", [60, 100_000])
def test_an_atari_transition_costs_little_more_than_a_frame(
    make_run: Callable[[str], Any], start_redis: Callable[..., Any], life_steps: int
) -> None:
    config = load_config("atari-dqn")
    server = start_redis()
    run = make_run(server.address)
    redis = run.client.redis
    stack, num_envs = config.env.frame_stack, config.env.num_envs
    sender = run.sender(
        chunk_steps=config.sender.chunk_steps,
        chunk_max_bytes=config.sender.chunk_max_bytes,
        lookahead=config.lookahead,
        frame_stack=stack,
        obs_spec=ObsSpec((ArraySpec("", (stack, 84, 84), np.dtype(np.uint8)),)),
    )
    obs = np.zeros((2 * num_envs, stack, 84, 84), np.uint8)
    ages = np.arange(num_envs) * life_steps // num_envs  # lives end one after the other
    is_first = np.ones(num_envs, np.bool_)
    before: dict[str, float] = {}
    for step in range(1400):
        ended = np.flatnonzero(ages >= life_steps)
        ages[ended] = 0
        is_first[ended] = True
        count = len(ended)
        rows = count + num_envs
        kind = np.concatenate([np.full(count, StepKind.LAST), np.where(is_first, StepKind.FIRST, StepKind.MID)])
        is_last = np.arange(rows) < count
        flags = np.ones(rows, np.bool_)
        ids = np.concatenate([ended, np.arange(num_envs)])
        batch = StepBatch(
            kind.astype(np.uint8), ids, obs[:rows], np.zeros(rows, np.float32), is_last, ~flags, flags, flags, count,
            {}, np.zeros(0, np.int64),
        )  # fmt: skip
        sender.send_batch(batch, Action(np.zeros(num_envs, np.int64), {}, 0))
        ages += 1
        is_first[:] = False
        if step == 200:
            sender.flush()
            before = {**sender.metrics(), "memory": used_memory(redis)}
    sender.outbox.push(timeout_s=60.0, is_limited=False, waits_for_last=True)
    after = {**sender.metrics(), "memory": used_memory(redis)}
    steps = after["sender/steps_total"] - before["sender/steps_total"]
    assert steps > 8000
    accounted = (after["sender/bytes_total"] - before["sender/bytes_total"]) / steps / FRAME_BYTES
    measured = (after["memory"] - before["memory"]) / steps / FRAME_BYTES
    assert 1.0 < measured < 1.15
    assert measured - 0.02 < accounted < 1.15
