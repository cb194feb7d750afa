"""How often a frame is sent: chunks of stacked frames repeat some of those before."""

from __future__ import annotations

import numpy as np
import pytest

from surreal.base.types import Action, StepBatch, StepKind
from surreal.distributed.experience.codec import segments_of
from surreal.distributed.experience.local import LocalShards
from surreal.distributed.experience.sender import ExpSender

_STEPS = 150  # of each environment


def sent_frames(num_envs: int, shape: tuple[int, ...], **options: int) -> tuple[float, int]:
    """How often each frame is sent, of environments whose episodes do not end; and the bytes of the largest chunk."""
    shards = LocalShards("test")
    sender = ExpSender(shards, frame_stack=4, lookahead=2, max_delay_s=60.0, **options)
    obs, no = np.zeros((num_envs, 4, *shape), np.uint8), np.zeros(num_envs, np.bool_)
    for number in range(_STEPS):
        batch = StepBatch(
            np.full(num_envs, StepKind.MID if number else StepKind.FIRST, np.uint8), np.arange(num_envs), obs,
            np.zeros(num_envs, np.float32), no, no, ~no, ~no, 0, {}, np.zeros(0, np.int64),
        )  # fmt: skip
        sender.send_batch(batch, Action(np.zeros(num_envs, np.int64), {}, 0))
    entries = shards.local.read(b"0-0", 100_000, None)
    segments = np.array([segment for entry in entries for segment in segments_of(entry.head)])
    _, contents = shards.local.fetch([(entry.chunk_id, 0) for entry in entries])
    frames = segments[:, 1].sum() + 3 * num_envs  # behind the last step that is owned, lookahead and a row more
    assert frames > _STEPS * num_envs / 4, "enough has left to judge"
    return segments[:, 0].sum() / frames, max(len(content or b"") for content in contents)


@pytest.mark.parametrize("num_envs", [1, 16, 32, 128])
def test_a_frame_is_sent_at_most_1_3_times_and_no_chunk_is_too_large(num_envs: int) -> None:
    ratio, largest_bytes = sent_frames(num_envs, (84, 84) if num_envs < 128 else (12, 12))
    assert ratio <= 1.3
    assert largest_bytes <= 1 << 20


def test_small_chunks_wait_for_new_frames() -> None:
    assert sent_frames(8, (12, 12), chunk_steps=16)[0] <= 1.3
