"""A whole policy as one torch module: filters, network, greedy choice and the mapping to the environment's actions.

An exported file acts like its policy if both act alike step by step, and the file also acts so in one batch.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor, nn

from surreal.agent import Agent, DeterministicAgent, NoisyQAgent, PolicyAgent, QAgent, SamplingAgent
from surreal.agent.exported import MASK, NEXT_STATE, STATE, ExportedFile
from surreal.api import Policy
from surreal.base import tree
from surreal.base.errors import ExportError, describe_method
from surreal.base.specs import ObsSpec
from surreal.base.types import Obs
from surreal.envs.actions import ActionAdapter, flat_mask, mask_width
from surreal.run.build.environments import build_env, written_spaces

_DTYPES: dict[np.dtype[Any], torch.dtype] = {
    np.dtype(getattr(np, name)): getattr(torch, name)
    for name in ("float32", "float64", "int8", "int16", "int32", "int64", "uint8")
}


class ActionMapping(nn.Module):
    """Clips a Box to its bounds, shifts discrete actions to the space's start, and unfolds nested spaces."""

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        super().__init__()
        self.leaves = named_spaces(space, "action")
        self._is_nested = isinstance(space, spaces.Dict | spaces.Tuple)
        if len({isinstance(leaf, spaces.Box) for leaf in self.leaves.values()}) > 1:
            raise ExportError(f"actions are {space}, which mixes choices and numbers; such a policy cannot be exported")
        for number, leaf in enumerate(self.leaves.values()):
            if isinstance(leaf, spaces.Box):
                self.register_buffer(f"low_{number}", torch.from_numpy(np.array(leaf.low)))
                self.register_buffer(f"high_{number}", torch.from_numpy(np.array(leaf.high)))
            elif isinstance(leaf, spaces.Discrete | spaces.MultiDiscrete):
                self.register_buffer(f"start_{number}", torch.from_numpy(np.array(leaf.start, np.int64)))

    def forward(self, actions: Tensor) -> dict[str, Tensor]:
        """Compute the environment's actions by name, [N, *shape] each, from an agent's."""
        found, begin = {}, 0
        for number, (name, leaf) in enumerate(self.leaves.items()):
            values = actions
            if self._is_nested:
                width = int(np.prod(leaf.shape or ()))
                values = actions[:, begin : begin + width]
                begin += width
            found[name] = self._decode(number, leaf, values)
        return found

    def _decode(self, number: int, leaf: Any, values: Tensor) -> Tensor:
        dtype = _DTYPES[np.dtype(leaf.dtype)]
        if isinstance(leaf, spaces.Box):
            low, high = self.get_buffer(f"low_{number}"), self.get_buffer(f"high_{number}")
            return values.reshape(-1, *leaf.shape).to(dtype).clamp(low, high)
        if isinstance(leaf, spaces.MultiBinary):
            return (values.reshape(-1, *leaf.shape) > 0.5).to(dtype)
        return (values.reshape(-1, *leaf.shape) + self.get_buffer(f"start_{number}")).to(dtype)


def named_spaces(space: gymnasium.Space[Any], name: str) -> dict[str, gymnasium.Space[Any]]:
    """List the leaves of a nested space, in its order, as `name.key`; a space that is not nested is `name`."""
    if isinstance(space, spaces.Dict):
        children = [(f"{name}.{key}", child) for key, child in space.spaces.items()]
    elif isinstance(space, spaces.Tuple):
        children = [(f"{name}.{index}", child) for index, child in enumerate(space.spaces)]
    else:
        return {name: space}
    return {path: leaf for key, child in children for path, leaf in named_spaces(child, key).items()}


#: From a model's output for N rows, and [N, n] legal actions or None, to the best action of each, [N, *action_shape].
Choice = Callable[[Any, Tensor | None], Tensor]


def greedy_choice(agent: Agent) -> Choice:
    """Return the function that chooses as an agent does."""
    for known, choice in _CHOICES.items():
        if type(agent)._act is known._act and type(agent).compute is Agent.compute:
            return choice
    names = ", ".join(known.__name__ for known in _CHOICES)
    own = agent._act if type(agent).compute is Agent.compute else agent.compute
    raise ExportError(
        f"{describe_method(own)} chooses actions with Python code, which an exported file cannot contain; "
        f"a policy can be exported if it acts like {names}, over any model"
    )


def _by_values(values: Any, mask: Tensor | None) -> Tensor:
    if mask is not None:
        values = values.masked_fill(~mask, -torch.inf)
    best: Tensor = values.argmax(1)
    return best


def _by_policy(policy: Any, mask: Tensor | None) -> Tensor:
    action: Tensor = (policy if mask is None else policy.masked(mask)).mode()
    return action


_CHOICES: dict[type[Agent], Choice] = {
    QAgent: _by_values,
    NoisyQAgent: _by_values,
    PolicyAgent: lambda output, mask: _by_policy(output[0], mask),
    SamplingAgent: _by_policy,
    DeterministicAgent: lambda action, _: action,
}


class PolicyModule(nn.Module):
    """Filters, network, greedy choice, and the mapping to the environment's actions."""

    def __init__(self, agent: Agent, obs_spec: ObsSpec, action_space: gymnasium.Space[Any]) -> None:
        super().__init__()
        self.model = copy.deepcopy(agent.model)  # exporters change the module that they trace
        self.actions = ActionMapping(action_space)  # its leaves are the outputs `action`, or `action.KEY`
        self.obs_spec = obs_spec
        self.obs_names = [f"obs.{leaf.name}" if leaf.name else "obs" for leaf in obs_spec.leaves]
        self.mask_width = mask_width(ActionAdapter(action_space).space)  # of the input `action_mask`; 0: there is none
        self.state_shape = agent.model.state_shape  # of the input `state` and output `next_state`; None: there are none
        self._choice = greedy_choice(agent)

    @property
    def input_names(self) -> list[str]:
        return [*self.obs_names, *([MASK] if self.mask_width else []), *([STATE] if self.state_shape else [])]

    @property
    def output_names(self) -> list[str]:
        return [*self.actions.leaves, *([NEXT_STATE] if self.state_shape else [])]

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Compute the best actions known, and a recurrent policy's next state, for N rows."""
        obs = self.obs_spec.unflatten([inputs[name] for name in self.obs_names])
        if self.state_shape is None:
            output, after = self.model(obs), {}
        else:
            output, state = self.model(obs, inputs[STATE])
            after = {NEXT_STATE: state}
        return {**self.actions(self._choice(output, inputs.get(MASK))), **after}

    def feed(
        self, obs: Obs, mask: NDArray[np.bool_] | None = None, state: NDArray[np.float32] | None = None
    ) -> dict[str, NDArray[Any]]:
        """Return the inputs for a batch; by default, all actions are legal and episodes begin.

        Arrays are [N, *obs_shape] per leaf, [N, n] whether actions are legal, and [N, *state_shape] of a recurrent
        policy.
        """
        inputs = dict(zip(self.obs_names, self.obs_spec.flatten(obs), strict=True))
        count = len(inputs[self.obs_names[0]])
        if self.mask_width:
            inputs[MASK] = np.ones((count, self.mask_width), np.bool_) if mask is None else mask
        if self.state_shape is not None:
            inputs[STATE] = np.zeros((count, *self.state_shape), np.float32) if state is None else state
        return inputs

    def example(self) -> dict[str, Tensor]:
        """Return inputs of zeros for two rows, to trace a network with."""
        leaves = [np.zeros((2, *leaf.shape), leaf.dtype) for leaf in self.obs_spec.leaves]
        return {name: torch.from_numpy(each) for name, each in self.feed(self.obs_spec.unflatten(leaves)).items()}


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
    with closing(build_env(policy.config, training=False)) as env:
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
