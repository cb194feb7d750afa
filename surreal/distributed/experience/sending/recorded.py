"""What of a pool's rows is recorded. Called by the sender for a batch that holds rows which are not."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from surreal.base.tree import take
from surreal.base.types import Action, StepBatch


def recorded(batch: StepBatch) -> StepBatch:
    """Only the rows that are experience to be sent."""
    keep = batch.record
    return batch._replace(
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


def chosen(action: Action, keep: NDArray[np.bool_]) -> Action:
    """Only the actions of some rows [N]."""
    return Action(action.actions[keep], {name: column[keep] for name, column in action.extras.items()}, action.version)
