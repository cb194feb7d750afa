"""Layers, torsos, filters and recurrent cores in NumPy.

Features are [features, N]: a weight [outputs, inputs] multiplies them as it lies in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from surreal.base import tree
from surreal.base.types import Obs
from surreal.model.activations import get_activation
from surreal.model.filters import LIMIT, ObsFilter, RunningMoments
from surreal.model.in_numpy.build import Build, NoFormError
from surreal.model.in_numpy.policies import Floats
from surreal.model.mlp import MLP, Dense
from surreal.model.norms import BATCH_EPSILON, ROW_EPSILON, BatchRenorm, RowNorm
from surreal.model.off_policy.q_function import NoisyDense
from surreal.model.recurrent import DilatedLSTMCore, LSTMCore
from surreal.model.torso import Torso, check_shape

#: From [inputs, N] to [outputs, N]; an activation writes over what it is given.
Step = Callable[[Floats], Floats]


def _sigmoid(x: Floats) -> Floats:
    np.negative(x, out=x)
    np.exp(x, out=x)
    x += 1.0
    return np.reciprocal(x, out=x)


def _softmax(x: Floats) -> Floats:
    x -= x.max(0)
    np.exp(x, out=x)
    x /= x.sum(0)
    return x


def _mish(x: Floats) -> Floats:
    gate = np.logaddexp(x, 0.0, out=np.empty_like(x))
    x *= np.tanh(gate, out=gate)
    return x


def _selu(x: Floats) -> Floats:
    """Compute SELU with the constants of Klambauer et al. 2017, arXiv:1706.02515."""
    np.copyto(x, 1.6732632423543772 * np.expm1(x), where=x < 0.0)
    x *= 1.0507009873554805
    return x


#: GELU has no form: NumPy has no error function.
_IN_NUMPY: Mapping[str, Step] = {
    "none": lambda x: x,
    "sigmoid": _sigmoid,
    "tanh": lambda x: np.tanh(x, out=x),
    "relu": lambda x: np.maximum(x, 0.0, out=x),
    "relu6": lambda x: np.minimum(np.maximum(x, 0.0, out=x), 6.0, out=x),
    "elu": lambda x: np.where(x > 0.0, x, np.expm1(x)),
    "softmax": _softmax,
    "softplus": lambda x: np.logaddexp(x, 0.0, out=x),
    "leaky_relu": lambda x: np.maximum(x, 0.01 * x, out=x),
    "silu": lambda x: x * _sigmoid(x.copy()),
    "mish": _mish,
    "selu": _selu,
    "softsign": lambda x: np.divide(x, 1.0 + np.abs(x), out=x),
    "hardtanh": lambda x: np.clip(x, -1.0, 1.0, out=x),
}
_ACTIVATIONS: Mapping[Any, Step] = {
    None: _IN_NUMPY["none"],
    **{get_activation(name, in_place=True): step for name, step in _IN_NUMPY.items()},
}


def activation_of(torch_activation: Any) -> Step:
    """Return the counterpart of an activation as modules hold it, see `activations.make_activation`."""
    if torch_activation not in _ACTIVATIONS:
        raise NoFormError
    return _ACTIVATIONS[torch_activation]


def in_turn(steps: Iterable[Step]) -> Step:
    """Return the function that computes all steps one after another."""
    steps = [step for step in steps if step is not _IN_NUMPY["none"]]

    def run(features: Floats) -> Floats:
        for step in steps:
            features = step(features)
        return features

    return run


def _dense(build: Build, layer: Dense) -> Step:
    weight = build.view(layer, "weight")
    if layer._parameters["bias"] is None:
        return weight.dot
    bias = build.view(layer, "bias")[:, None]

    def step(features: Floats) -> Floats:
        outputs: Floats = weight.dot(features)  # half as long as `@` for a small one
        outputs += bias
        return outputs

    return step


def _noisy_dense(build: Build, layer: NoisyDense) -> Step:
    plain = _dense(build, layer)  # type: ignore[arg-type]
    weight, bias = build.view(layer, "weight"), build.view(layer, "bias")
    weight_sigma, bias_sigma = build.view(layer, "weight_sigma"), build.view(layer, "bias_sigma")
    weight_noise, bias_noise = build.view(layer, "_weight_noise"), build.view(layer, "_bias_noise")

    def step(features: Floats) -> Floats:
        if not layer._is_noisy:
            return plain(features)
        outputs: Floats = (weight + weight_sigma * weight_noise).dot(features)
        outputs += (bias + bias_sigma * bias_noise)[:, None]
        return outputs

    return step


def _row_norm(build: Build, norm: RowNorm) -> Step:
    scale, shift = build.view(norm, "scale")[:, None], build.view(norm, "shift")[:, None]

    def step(features: Floats) -> Floats:
        if norm.is_centered:
            features -= features.mean(0)
        features *= 1.0 / np.sqrt(np.square(features).mean(0) + np.float32(ROW_EPSILON))
        features *= scale
        features += shift
        return features

    return step


def _batch_renorm(build: Build, norm: BatchRenorm) -> Step:
    scale, shift = build.view(norm, "scale"), build.view(norm, "shift")
    mean, variance = build.view(norm, "mean"), build.view(norm, "variance")

    def step(features: Floats) -> Floats:
        factor = scale / np.sqrt(variance + np.float32(BATCH_EPSILON))
        features *= factor[:, None]
        features += (shift - mean * factor)[:, None]
        return features

    return step


def _mlp(build: Build, mlp: MLP) -> Step:
    steps: list[Step] = []
    for layer, (_, norm, activation) in zip(mlp.layers, mlp._steps, strict=True):
        norms = [] if norm is None else [build.form(norm)]
        steps += [build.form(layer), *norms, activation_of(activation)]
    return in_turn(steps)


def _torso(build: Build, torso: Torso) -> Callable[[Obs], Floats]:
    if len(torso.images):
        raise NoFormError
    shapes = [leaf.shape for leaf in torso._spec.leaves]
    dense = _IN_NUMPY["none"] if torso.dense is None else build.form(torso.dense)

    def read(obs: Obs) -> Floats:
        parts = [_read_leaf(leaf, shape) for leaf, shape in zip(tree.leaves(obs), shapes, strict=True)]
        return dense(parts[0] if len(parts) == 1 else np.concatenate(parts))

    return read


def _read_leaf(array: NDArray[Any], shape: tuple[int, ...]) -> Floats:
    """Return a leaf as [features, N]; counterpart of `torso.read_leaf`."""
    check_shape(array, shape)
    features = array.reshape(len(array), math.prod(shape)).T
    if array.dtype == np.float32:
        return features
    floats = features.astype(np.float32)
    return np.multiply(floats, 1.0 / 255.0, out=floats) if array.dtype == np.uint8 else floats


def _obs_filter(_: Build, obs_filter: ObsFilter) -> Callable[[Obs], Obs]:
    def normalise(leaf: NDArray[Any], moments: RunningMoments) -> Floats:
        mean, deviation = (tensor.numpy() for tensor in moments.scale())
        values: Floats = (leaf.astype(np.float32) - mean) / deviation
        return np.minimum(np.maximum(values, -LIMIT, out=values), LIMIT, out=values)

    return partial(obs_filter.map_real, normalise)


def _lstm_cell(build: Build, cell: nn.LSTMCell) -> Callable[[Floats, Floats], Floats]:
    """Return the function from [inputs, N] and the state [N, 2, size] to the state afterwards."""
    weight_ih, weight_hh = build.view(cell, "weight_ih"), build.view(cell, "weight_hh")
    bias_ih, bias_hh = build.view(cell, "bias_ih")[:, None], build.view(cell, "bias_hh")[:, None]

    def step(features: Floats, before: Floats) -> Floats:
        output, memory = np.ascontiguousarray(before.transpose(1, 2, 0))
        gates: Floats = weight_ih.dot(features)
        gates += weight_hh.dot(output)
        gates += bias_ih
        gates += bias_hh
        size = len(output)
        taken, kept = _sigmoid(gates[: 2 * size]).reshape(2, size, -1)
        memory = kept * memory + taken * np.tanh(gates[2 * size : 3 * size])
        output = _sigmoid(gates[3 * size :]) * np.tanh(memory)
        return np.stack((output.T, memory.T), axis=1)

    return step


#: From [inputs, N] and the state [N, *state_shape] to [outputs, N] and the state afterwards.
CoreStep = Callable[[Floats, Floats], tuple[Floats, Floats]]


def _lstm(build: Build, core: LSTMCore) -> CoreStep:
    cell = build.form(core.cell)

    def step(features: Floats, state: Floats) -> tuple[Floats, Floats]:
        after = cell(features, state)
        return after[:, 0].T, after

    return step


def _dilated_lstm(build: Build, core: DilatedLSTMCore) -> CoreStep:
    cell = build.form(core.cell)

    def step(features: Floats, state: Floats) -> tuple[Floats, Floats]:
        after = np.concatenate((state[:, 1:], cell(features, state[:, 0])[:, None]), axis=1)
        return after[:, :, 0].sum(1).T, after

    return step


LAYERS: Mapping[type, Callable[[Build, Any], Any]] = {
    BatchRenorm: _batch_renorm,
    Dense: _dense,
    DilatedLSTMCore: _dilated_lstm,
    LSTMCore: _lstm,
    MLP: _mlp,
    NoisyDense: _noisy_dense,
    ObsFilter: _obs_filter,
    RowNorm: _row_norm,
    Torso: _torso,
    nn.LSTMCell: _lstm_cell,
}
