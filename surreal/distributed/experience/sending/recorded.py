"""What of a pool's rows is recorded. Called by the sender for a batch that holds rows which are not."""

from __future__ import annotations

import numpy as np

from surreal.tree import take
from surreal.types import Action, StepBatch


def recorded(batch: StepBatch, action: Action) -> tuple[StepBatch, Action]:
    """Only the rows that are experience to be sent."""
    keep = batch.record
    acting = keep[batch.num_last :]
    kept = batch._replace(
        kind=batch.kind[keep],
        env_ids=batch.env_ids[keep],
        obs=take(batch.obs, keep),
        reward=batch.reward[keep],
        terminated=batch.terminated[keep],
        truncated=batch.truncated[keep],
        explore=batch.explore[keep],
        record=keep[keep],
        info={name: column[keep] for name, column in batch.info.items()},
        num_last=int(np.count_nonzero(keep[: batch.num_last])),
    )
    extras = {name: column[acting] for name, column in action.extras.items()}
    return kept, Action(action.actions[acting], extras, action.version)
