"""The ancestor's `input`, `output` and layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from surreal.plugins.apps.importing.draft import Draft, Table, counted, gone_unless, to

#: Activation functions that have another name here.
_ACTIVATIONS = {"null": "none", "None": "none"}
#: States of an image are sent as Pillow images, which arrive as numbers in 0..1.
_IMAGE = {"low": 0.0, "high": 1.0}


def take_spaces(draft: Draft) -> None:
    """Write the spaces down: the environment is a program, of which nothing else is known."""
    given, output = draft.given.get("input") or {}, draft.given.get("output") or {}
    shape = list(given.get("shape") or given.get("image") or draft.given.get("state_size") or [0])
    size = output.get("action_size", draft.given.get("action_size", 1))
    size = size[0] if isinstance(size, list) else size
    image = _IMAGE if given.get("use_convolutions") and len(shape) > 1 else {}
    space: dict[str, Any] = {"type": "discrete", "n": size}
    if output.get("continuous", draft.algorithm == "ddpg"):
        scale = float(output.get("scale", 1.0))
        low, high = output.get("action_low") or [-scale], output.get("action_high") or [scale]
        space = {"type": "box", "shape": [size], "low": float(min(low)), "high": float(max(high))}
    draft.begin(
        env={
            "id": "environment",
            "observation_space": {"type": "box", "shape": shape, **image},
            "action_space": space,
        },
        rlx={"servers": 1, "on_full": "wait"},
        eval={"enabled": False},
    )


def _shape(draft: Draft, _: str, __: Any) -> None:
    draft.taken += 1  # see take_spaces; convolutions take channels first or last


def _convolutions(draft: Draft, _: str, value: Any) -> None:
    given = draft.given.get("input") or {}
    draft.taken += 1
    if value and "layers" not in given:
        draft.settings["model.args.convolutions"] = "universe" if given.get("universe", True) else "a3c"


def _layers(draft: Draft, key: str, value: Any) -> None:
    layers = [_convolution(layer) for layer in value if layer.get("type", "convolution") == "convolution"]
    dense = [layer for layer in value if layer.get("type") == "dense"]
    if layers:
        draft.settings["model.args.convolutions"] = layers
    draft.taken += 1
    if dense:
        draft.leave_out(key, "its dense layers: dense layers are model.args.hidden_sizes, with one activation for all")


def _convolution(layer: Mapping[str, Any]) -> dict[str, Any]:
    defaults = {"n_filters": 32, "filter_size": [3, 3], "stride": [2, 2], "border": "same", "activation": "elu"}
    return {"type": "convolution", **defaults, **layer, "activation": activation(layer.get("activation", "elu"))}


def activation(value: Any) -> Any:
    """Read an activation: a name, or KAF with its settings."""
    if isinstance(value, Mapping):
        settings = {str(key).lower(): each for key, each in value.items()}
        return {"type": "kaf", **settings.pop("kaf", settings)}
    return "none" if value is None else _ACTIVATIONS.get(str(value), str(value).lower())


def _kaf(draft: Draft, _: str, value: Any) -> None:
    draft.taken += 1
    if activation(draft.given.get("activation")) == "kaf":
        draft.finishing.append(lambda: draft.settings.update({"model.args.activation": {"type": "kaf", **value}}))


INPUT_OUTPUT: Table = {
    "input.shape": _shape,
    "input.image": _shape,
    "state_size": _shape,
    "input.history": to("env.frame_stack"),
    "input.use_convolutions": _convolutions,
    "input.universe": counted,
    "input.layers": _layers,
    "output.continuous": counted,
    "output.action_size": counted,
    "action_size": counted,
    "output.scale": counted,
    "output.action_low": counted,
    "output.action_high": counted,
    "output.loss_type": gone_unless("Normal", "the loss is the policy gradient's, of a normal distribution"),
    "output.q_values": gone_unless(False, "a server replies with the action; an agent of your own can reply otherwise"),
    "activation": to("model.args.activation", by=activation),
    "KAF": _kaf,
    "kaf": _kaf,
}
