"""Heads and actors in NumPy: from features [features, N] to values, or to a policy for N rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from surreal.base.types import Obs
from surreal.model import heads, mlp
from surreal.model.distributions import Bernoulli, Categorical, MultiCategorical
from surreal.model.in_numpy.build import Build, NoFormError
from surreal.model.in_numpy.layers import Step, activation_of, in_turn
from surreal.model.in_numpy.policies import (
    Floats,
    Noise,
    NumpyBernoulli,
    NumpyCategorical,
    NumpyMultiCategorical,
    NumpyNormal,
    NumpyPolicy,
    NumpyRange,
    NumpySquashedNormal,
)
from surreal.model.off_policy.action_range import ActionRange
from surreal.model.off_policy.actors import (
    MAX_LOG_SIGMA,
    MIN_LOG_SIGMA,
    ActorBody,
    CategoricalActor,
    DeterministicActor,
    SquashedNormalActor,
)
from surreal.model.off_policy.blocks import ResidualBlocks
from surreal.model.off_policy.q_function import NoisyQHead


def combine_dueling(output: Floats) -> Floats:
    """Compute Q [n, ...] from the state's value and the actions' advantages, [1 + n, ...]."""
    advantage = output[1:]
    values: Floats = output[0] + advantage - advantage.mean(0)
    return values


def _q_head(build: Build, head: mlp.QHead) -> Step:
    dense = build.form(head.output)
    return in_turn([dense, combine_dueling]) if head.dueling else dense


def _noisy_q_head(build: Build, head: NoisyQHead) -> Step:
    activation = activation_of(head._activation)
    steps = [step for layer in head.layers for step in (build.form(layer), activation)][:-1]
    return in_turn([*steps, combine_dueling] if head._dueling else steps)


def _value_head(build: Build, head: heads.ValueHead) -> Step:
    dense = build.form(head.output)
    return lambda features: dense(features)[0]


def _to_rows(outputs: Floats) -> Floats:
    return np.ascontiguousarray(outputs.T)


def _halves(outputs: Floats) -> tuple[Floats, Floats]:
    half = outputs.shape[-1] // 2
    return outputs[:, :half], outputs[:, half:]


def _state_normal(outputs: Floats, noise: Noise, *, log_sigma: float) -> NumpyNormal:
    mean, above = _halves(outputs)
    low, high = heads.LOG_SIGMA_BOUNDS
    return NumpyNormal(mean, np.minimum(np.maximum(above + np.float32(log_sigma), low), high), noise)


_POLICIES: Mapping[Any, Callable[..., NumpyPolicy]] = {
    Categorical: NumpyCategorical,
    MultiCategorical.from_logits: NumpyMultiCategorical.from_logits,
    Bernoulli: NumpyBernoulli,
    heads.state_normal: _state_normal,
}


def _policy_head(build: Build, head: heads.PolicyHead) -> Callable[[Floats], NumpyPolicy]:
    dense, distribution = build.form(head.output), head._distribution
    whole, options = (
        (distribution.func, distribution.keywords) if isinstance(distribution, partial) else (distribution, {})
    )
    if whole not in _POLICIES:
        raise NoFormError
    make, noise = _POLICIES[whole], Noise()
    return lambda features: make(_to_rows(dense(features)), noise, **options)


def _normal_head(build: Build, head: heads.NormalHead) -> Callable[[Floats], NumpyPolicy]:
    dense, log_sigma = build.form(head.output), build.view(head, "log_sigma")
    noise = Noise()
    return lambda features: NumpyNormal(_to_rows(dense(features)), log_sigma, noise)


def _range(build: Build, bounds: ActionRange) -> NumpyRange:
    return NumpyRange(*(build.view(bounds, name) for name in NumpyRange._fields))


def _residual_blocks(build: Build, blocks: ResidualBlocks) -> Step:
    act, is_flash = activation_of(blocks._activation), blocks.first_norm is not None
    norms = [build.form(norm) for norm in blocks.norms]
    inner: list[Step] = []
    for i, (up, down) in enumerate(zip(blocks.up, blocks.down, strict=True)):
        dense, back = build.form(up), build.form(down)
        inner.append(
            in_turn([dense, norms[2 * i], act, back, norms[2 * i + 1], act])
            if is_flash
            else in_turn([np.copy, norms[i], dense, act, back])
        )
    begin = [np.copy, build.form(blocks.first_norm)] if blocks.first_norm is not None else []
    first, last = in_turn([*begin, build.form(blocks.first)]), build.form(blocks.last_norm)

    def run(features: Floats) -> Floats:
        features = first(features)
        for step in inner:
            features += step(features)
        found: Floats = last(features)
        return found

    return run


def _actor_body(build: Build, body: ActorBody) -> Callable[[Obs], Floats]:
    steps: list[Step] = [] if body.blocks is None else [build.form(body.blocks)]
    for i, (layer, activation) in enumerate(zip(body.hidden, body._activations, strict=True)):
        norm = [] if body.norms is None else [build.form(body.norms[i])]
        steps += [build.form(layer), *norm, activation_of(activation)]
    read, dense = build.form(body.torso), in_turn([*steps, build.form(body.output), _to_rows])
    return lambda obs: dense(read(obs))


def _deterministic_actor(build: Build, actor: DeterministicActor) -> Callable[[Obs], Floats]:
    body, bounds = build.form(actor.body), build.form(actor.bounds)
    return lambda obs: bounds.squash(body(obs))


def _squashed_normal_actor(build: Build, actor: SquashedNormalActor) -> Callable[[Obs], NumpyPolicy]:
    body, bounds, noise = build.form(actor.body), build.form(actor.bounds), Noise()

    def act(obs: Obs) -> NumpyPolicy:
        mean, log_sigma = _halves(body(obs))
        log_sigma = np.minimum(np.maximum(log_sigma, MIN_LOG_SIGMA), MAX_LOG_SIGMA)
        return NumpySquashedNormal(NumpyNormal(mean, log_sigma, noise), bounds)

    return act


def _categorical_actor(build: Build, actor: CategoricalActor) -> Callable[[Obs], NumpyPolicy]:
    body, noise = build.form(actor.body), Noise()
    return lambda obs: NumpyCategorical(body(obs), noise)


HEADS: Mapping[type, Callable[[Build, Any], Any]] = {
    ActionRange: _range,
    ActorBody: _actor_body,
    CategoricalActor: _categorical_actor,
    DeterministicActor: _deterministic_actor,
    NoisyQHead: _noisy_q_head,
    ResidualBlocks: _residual_blocks,
    SquashedNormalActor: _squashed_normal_actor,
    heads.NormalHead: _normal_head,
    heads.PolicyHead: _policy_head,
    mlp.QHead: _q_head,
    heads.ValueHead: _value_head,
}
