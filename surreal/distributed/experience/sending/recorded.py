"""What of a pool's rows is recorded. Called by the sender for a batch that holds rows which are not."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from surreal.types import Action, Obs, StepBatch


def recorded(batch: StepBatch, action: Action) -> tuple[StepBatch, Action]:
    """Only the rows that are experience to be sent."""
    keep = batch.record
    acting = keep[batch.num_last :]
    kept = batch._replace(
        kind=batch.kind[keep],
        env_ids=batch.env_ids[keep],
        obs=_take(batch.obs, keep),
        reward=batch.reward[keep],
        terminated=batch.terminated[keep],
        truncated=batch.truncated[keep],
        explore=batch.explore[keep],
        record=keep[keep],
        num_last=int(np.count_nonzero(keep[: batch.num_last])),
    )
    extras = {name: column[acting] for name, column in action.extras.items()}
    return kept, Action(action.actions[acting], extras, action.version)


def _take(obs: Obs, keep: NDArray[np.bool_]) -> Obs:
    if isinstance(obs, Mapping):
        return {key: _take(value, keep) for key, value in obs.items()}
    if isinstance(obs, tuple):
        return tuple(_take(value, keep) for value in obs)
    return obs[keep]


def first_row(obs: Obs) -> Obs:
    """The first observation of a batch of them."""
    if isinstance(obs, Mapping):
        return {key: first_row(value) for key, value in obs.items()}
    if isinstance(obs, tuple):
        return tuple(first_row(value) for value in obs)
    return obs[0]
