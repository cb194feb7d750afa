"""What becomes of steps that come one at a time and cannot be learned from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from surreal.base.errors import BadValueError
from surreal.base.specs import ArraySpec, ObsSpec
from surreal.distributed.experience.codec import Contract
from surreal.distributed.experience.row_log import RowLog
from surreal.distributed.experience.single_steps import SingleSteps

ACTION = ArraySpec("action", (), np.dtype(np.int64))
EXTRAS = (ArraySpec("value", (), np.dtype(np.float32)),)


def obs(number: float) -> dict[str, Any]:
    return {"pose": np.full(3, number, np.float32), "map": np.zeros((2, 2), np.uint8)}


def make_log() -> RowLog:
    return RowLog(Contract(ObsSpec.from_obs(obs(0)), ACTION, EXTRAS, 0, 1, None), 64)


def add(steps: SingleSteps, log: RowLog, shown: list[Any], reward: Any = 0.0, value: Any = 0.0) -> bool:
    return steps.add(log, shown, 0, reward, False, None, None, {"value": value}, 1)


@pytest.mark.parametrize(
    ("where", "shown", "reward", "value"),
    [
        ("obs pose", [obs(np.nan), obs(1)], 0.0, 0.0),
        ("new_obs pose", [obs(0), obs(np.inf)], 0.0, 0.0),
        ("reward", [obs(0), obs(1)], np.nan, 0.0),
        ("extra.value", [obs(0), obs(1)], 0.0, np.nan),
        ("extra.value", [obs(0), obs(1)], 0.0, np.array(3e38)),
    ],
)
@pytest.mark.parametrize("is_running", [False, True])
def test_a_refused_step_leaves_no_row(where: str, shown: list[Any], reward: Any, value: Any, is_running: bool) -> None:
    log, steps = make_log(), SingleSteps()
    if is_running:
        add(steps, log, [obs(5), obs(6)])
    before = log.length
    with pytest.raises(BadValueError, match=f"not recorded: {where} is"):
        add(steps, log, shown, reward, value)
    assert log.length == before
    assert add(steps, log, [obs(7), obs(8)]) is not is_running
    assert log.length == before + 2
    assert log.leaves[1][: log.length, 0].tolist() == [5, 6, 7, 8][-log.length :]


def test_a_step_that_only_shows_the_next_ones_obs_is_lost_with_it() -> None:
    log, steps = make_log(), SingleSteps()
    add(steps, log, [obs(1)])
    with pytest.raises(BadValueError):
        add(steps, log, [obs(np.nan)])
    add(steps, log, [obs(3), obs(4)])
    assert len(log.cut(1 << 20)[0].leaves[0]) == 2 * 4  # rows 3 and 4, their maps
