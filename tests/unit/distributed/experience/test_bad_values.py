"""A number that cannot be sent costs the steps around it, and nothing after that."""

from __future__ import annotations

import numpy as np
import pytest

from surreal.base.errors import BadValueError
from surreal.base.types import Action, StepBatch, StepKind
from surreal.distributed.experience.codec import segments_of
from surreal.distributed.experience.local import LocalShards
from surreal.distributed.experience.sender import ExpSender


@pytest.mark.parametrize("lookahead", [0, 2])
def test_steps_after_a_bad_number_are_sent(lookahead: int) -> None:
    shards = LocalShards("test")
    sender = ExpSender(shards, lookahead=lookahead, max_delay_s=60.0)
    no = np.zeros(2, np.bool_)

    def send(step: int, action: float) -> None:
        kind = np.full(2, StepKind.MID if step else StepKind.FIRST, np.uint8)
        obs = np.full((2, 3), step, np.float32)
        batch = StepBatch(
            kind, np.arange(2), obs, np.ones(2, np.float32), no, no, ~no, ~no, 0, {}, np.zeros(0, np.int64)
        )
        sender.send_batch(batch, Action(np.array([0.0, action]), {}, 0))

    for step in range(10):
        send(step, np.nan if step == 8 else 0.0)
    with pytest.raises(BadValueError, match="action"):
        sender.flush()
    for step in range(10, 20):
        send(step, 0.0)
    sender.flush()
    sender.close()
    (*entries,) = shards.local.read(b"0-0", 100, None)
    segments = [segment for entry in entries for segment in segments_of(entry.head)]
    assert sum(own for _, own, *_ in segments) == 2 * 10, "the steps from the newest row on, of both environments"
