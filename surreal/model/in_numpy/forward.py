"""`NumpyPass`: the forward pass of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from surreal.base.pytorch import Module
from surreal.base.types import Obs
from surreal.model.actor_critic import ActorCritic, PolicyValue, ValueFunction
from surreal.model.base import ComposedModel
from surreal.model.in_numpy.build import Build, NoFormError
from surreal.model.in_numpy.heads import HEADS, combine_dueling
from surreal.model.in_numpy.layers import LAYERS
from surreal.model.in_numpy.policies import Floats
from surreal.model.off_policy.actor_critics import (
    DeterministicActorCritic,
    DiscreteSoftActorCritic,
    ImplicitActorCritic,
    OffPolicyActorCritic,
    SoftActorCritic,
)
from surreal.model.off_policy.q_function import NoisyQFunction, NoisyQuantileQFunction, QFunction, QuantileQFunction

#: From observations and the state of a model to its output and the state afterwards.
Forward = Callable[[Obs, Floats | None], tuple[Any, Floats | None]]


class NumpyPass:
    """The output of a model's `forward`, for N rows, in arrays; raises `NoFormError` if a module has none.

    Parameters may change in place, as `Module.load_tensors` changes them; the caller holds the model's lock.

    Args:
        model: a built-in model on the CPU, with its layers.
    """

    def __init__(self, model: Module) -> None:
        self._build = Build({**LAYERS, **HEADS, **_MODELS})
        self._forward: Forward = self._build.form(model)

    @classmethod
    def of(cls, model: Module) -> NumpyPass | None:
        """Return the pass of a model, None if it has none."""
        try:
            return cls(model) if model.is_on_cpu else None
        except NoFormError:
            return None

    def is_current(self) -> bool:
        """Whether the model's parameters still are where this pass reads them."""
        return self._build.is_current()

    @np.errstate(all="ignore")  # as torch, which gives no warnings for infinities and nan
    def __call__(self, obs: Obs, state: Floats | None = None) -> tuple[Any, Floats | None]:
        """Compute the output, where a `NumpyPolicy` takes the place of a `Distribution`, and the state afterwards.

        `obs` is [N, *obs_shape] per leaf; the state [N, *state_shape] is None if the model is not recurrent.
        """
        return self._forward(obs, state)


def _features(build: Build, composed: ComposedModel) -> Forward:
    torso, core = composed._trunk
    read = build.form(torso)
    if core is None:
        return lambda obs, _: (read(obs), None)
    step = build.form(core)
    return lambda obs, state: step(read(obs), state)


def _with_head(features: Forward, head: Callable[[Floats], Any]) -> Forward:
    def forward(obs: Obs, state: Floats | None) -> tuple[Any, Floats | None]:
        outputs, after = features(obs, state)
        return head(outputs), after

    return forward


def _q_function(build: Build, network: QFunction) -> Forward:
    q = build.form(network.q)
    return _with_head(_features(build, network), lambda features: q(features).T)


def _quantile_q_function(build: Build, network: QuantileQFunction) -> Forward:
    q = build.form(network.q)

    def mean(features: Floats) -> Floats:
        # The mean over an action's quantiles is linear, as is the sum of value and advantage.
        values = q(features).reshape(-1, network.num_quantiles, features.shape[1]).mean(1)
        return (combine_dueling(values) if network.dueling else values).T

    return _with_head(_features(build, network), mean)


def _value_function(build: Build, network: ValueFunction) -> Forward:
    return _with_head(_features(build, network), build.form(network.value))


def _actor_critic(build: Build, network: ActorCritic) -> Forward:
    features, policy = _features(build, network), build.form(network.policy)
    normalise = None if network.obs_filter is None else build.form(network.obs_filter)
    if network.value_network is None:
        value = build.form(network.value)
        forward = _with_head(features, lambda read: PolicyValue(policy(read), value(read)))
    else:
        forward = _apart(features, policy, build.form(network.value_network))
    return forward if normalise is None else lambda obs, state: forward(normalise(obs), state)


def _apart(features: Forward, policy: Callable[[Floats], Any], value: Forward) -> Forward:
    """Return the forward pass of a policy and a value that share nothing; a state is the policy's, then the value's."""

    def forward(obs: Obs, state: Floats | None) -> tuple[Any, Floats | None]:
        if state is None:
            return PolicyValue(policy(features(obs, None)[0]), value(obs, None)[0]), None
        ours, theirs = np.split(state, 2, axis=-1)
        read, *after = features(obs, ours)
        valued, *others = value(obs, theirs)
        return PolicyValue(policy(read), valued), np.concatenate([*after, *others], axis=-1)

    return forward


def _off_policy(build: Build, network: OffPolicyActorCritic) -> Forward:
    actor = build.form(network.actor)
    if network.obs_filter is None:
        return lambda obs, _: (actor(obs), None)
    normalise = build.form(network.obs_filter)
    return lambda obs, _: (actor(normalise(obs)), None)


_MODELS: Mapping[type, Callable[[Build, Any], Forward]] = {
    ActorCritic: _actor_critic,
    DeterministicActorCritic: _off_policy,
    DiscreteSoftActorCritic: _off_policy,
    ImplicitActorCritic: _off_policy,
    NoisyQFunction: _q_function,
    NoisyQuantileQFunction: _quantile_q_function,
    QFunction: _q_function,
    QuantileQFunction: _quantile_q_function,
    SoftActorCritic: _off_policy,
    ValueFunction: _value_function,
}
