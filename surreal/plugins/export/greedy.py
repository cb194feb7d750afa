"""What our agents do with their model's output when they do not explore, in tensors alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from surreal.agent import Agent, DeterministicAgent, NoisyQAgent, PolicyAgent, QAgent, SamplingAgent
from surreal.base.errors import ExportError, describe_method

#: From a model's output for N rows, and [N, n] legal actions or None, to the best action of each, [N, *action_shape].
Choice = Callable[[Any, Tensor | None], Tensor]


def greedy_choice(agent: Agent) -> Choice:
    """Find how an agent chooses.

    Raises:
        ExportError: it chooses by code of its own.
    """
    for known, choice in _CHOICES.items():
        if type(agent)._act is known._act and type(agent).compute is Agent.compute:
            return choice
    names = ", ".join(known.__name__ for known in _CHOICES)
    own = agent._act if type(agent).compute is Agent.compute else agent.compute
    raise ExportError(
        f"{describe_method(own)} chooses actions by Python code of its own, which no exported file can hold; "
        f"what can be exported acts as {names} do, over any model"
    )


def _by_values(values: Any, mask: Tensor | None) -> Tensor:
    if mask is not None:
        values = values.masked_fill(~mask, -torch.inf)
    best: Tensor = values.argmax(1)
    return best


def _by_policy_and_value(output: Any, mask: Tensor | None) -> Tensor:
    return _by_policy(output[0], mask)


def _by_policy(policy: Any, mask: Tensor | None) -> Tensor:
    action: Tensor = (policy if mask is None else policy.masked(mask)).mode()
    return action


def _as_it_is(action: Any, _: Tensor | None) -> Tensor:
    given: Tensor = action
    return given


_CHOICES: dict[type[Agent], Choice] = {
    QAgent: _by_values,
    NoisyQAgent: _by_values,
    PolicyAgent: _by_policy_and_value,
    SamplingAgent: _by_policy,
    DeterministicAgent: _as_it_is,
}
