"""Checks that an exported file acts like its policy: both act step by step, then the file acts in one batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surreal.agent.exported import NEXT_STATE, ExportedFile
from surreal.api import Policy
from surreal.base import tree
from surreal.base.errors import ExportError
from surreal.envs.actions import flat_mask
from surreal.plugins.export.module import PolicyModule
from surreal.run.build.environments import build_env, written_spaces

#: Env steps to compare.
_STEPS = 100
#: Two runtimes round differently: real actions may differ by this much, absolutely and relatively.
_TOLERANCE = 1e-4
#: Where two choices are equally good, a few may differ.
_LEAST_SHARE = 0.98
#: Bound of drawn observations, where there is no environment.
_LARGEST_DRAWN = 10.0

Arrays = Mapping[str, NDArray[Any]]


class _Step(NamedTuple):
    obs: Any
    mask: NDArray[np.bool_] | None
    is_first: bool
    action: Any  #: the policy's action


def check_alike(policy: Policy, module: PolicyModule, file: ExportedFile) -> int:
    """Compare a file with its policy, and return the number of steps that were compared.

    The policy plays in its environment; where that exists only elsewhere, observations are drawn from its space.
    """
    fed, given, actions, state = list[Arrays](), list[Arrays](), list[Any](), None
    for step in _drawn(policy) if written_spaces(policy.config) else _played(policy, module.mask_width):
        rows = tree.map_leaves(lambda leaf: np.asarray(leaf)[None], step.obs)
        inputs = module.feed(rows, step.mask, None if step.is_first else state)
        outputs = file.run(inputs)
        state = outputs.get(NEXT_STATE)
        fed.append(inputs)
        given.append(outputs)
        actions.append(step.action)
    names = list(module.actions.leaves)
    wanted = dict(zip(names, _columns(actions), strict=True))
    _compare(file, _stacked(given, names), wanted, "one by one")
    _compare(file, file.run(_stacked(fed, module.input_names)), wanted, "in one batch")
    return len(actions)


def _played(policy: Policy, mask_width: int) -> Iterator[_Step]:
    env = build_env(policy.config, training=False)
    try:
        obs, info = env.reset(seed=0)
        is_first = True
        for _ in range(_STEPS):
            mask = flat_mask(info["action_mask"], mask_width) if mask_width and "action_mask" in info else None
            if is_first:
                policy.reset()
            action = policy.act(obs, action_mask=mask)
            yield _Step(obs, None if mask is None else mask[None], is_first, action)
            obs, _, terminated, truncated, info = env.step(action)
            is_first = terminated or truncated
            if is_first:
                obs, info = env.reset()
    finally:
        env.close()


def _drawn(policy: Policy) -> Iterator[_Step]:
    def tamed(leaf: Any) -> Any:
        return np.clip(leaf, -_LARGEST_DRAWN, _LARGEST_DRAWN) if np.asarray(leaf).dtype.kind == "f" else leaf

    policy.observation_space.seed(0)
    policy.reset()
    for number in range(_STEPS):
        obs = tree.map_leaves(tamed, policy.observation_space.sample())
        yield _Step(obs, None, number == 0, policy.act(obs))


def _columns(actions: Sequence[Any]) -> list[NDArray[Any]]:
    """Stack actions leaf by leaf, in the order of their space."""
    first = actions[0]
    if isinstance(first, Mapping):
        return [column for key in first for column in _columns([action[key] for action in actions])]
    if isinstance(first, tuple):
        return [column for index in range(len(first)) for column in _columns([action[index] for action in actions])]
    return [np.stack(actions)]


def _stacked(rows: Sequence[Arrays], names: Sequence[str]) -> dict[str, NDArray[Any]]:
    return {name: np.concatenate([row[name] for row in rows]) for name in names}


def _compare(file: ExportedFile, given: Arrays, wanted: Arrays, how: str) -> None:
    for name, actions in wanted.items():
        close = np.isclose(given[name], actions, rtol=_TOLERANCE, atol=_TOLERANCE)
        same = np.all(np.reshape(close, (len(actions), -1)), axis=1)
        if same.mean() < _LEAST_SHARE:
            step = int(np.argmin(same))
            raise ExportError(
                f"the file would act differently: computed {how}, {name} differs in {np.sum(~same)} of {len(same)} "
                f"steps, first {given[name][step].tolist()} for {actions[step].tolist()}; the network depends on "
                f"something that a file in {file.metadata['format']} does not hold"
            )
