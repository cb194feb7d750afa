"""Converts the algorithms of RELAAX and their networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from surreal.plugins.apps.importing.draft import Draft, Rule, Table, counted, gone, gone_unless, number_or_none, to
from surreal.plugins.apps.importing.off_policy import DDPG, DQN, begin_ddpg, begin_dqn
from surreal.plugins.apps.importing.on_policy import (
    DA3C,
    DPPO,
    POLICY_GRADIENT,
    TRPO,
    Begin,
    begin_da3c,
    begin_on_policy,
)

#: Activation functions that have another name here.
_ACTIVATIONS = {"null": "none", "None": "none"}
#: Images are sent as Pillow images, which arrive as numbers in 0..1.
_IMAGE = {"low": 0.0, "high": 1.0}


def take_spaces(draft: Draft) -> None:
    """Set the spaces, because nothing else is known about the environment's program."""
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
    "output.q_values": gone_unless(False, "a server replies with the action; your own agent can reply otherwise"),
    "activation": to("model.args.activation", by=activation),
    "KAF": _kaf,
    "kaf": _kaf,
}


_AT_LEARNER = (
    "one learner computes the gradients, and nothing has to be combined; with learner.gradients: agents, RLX servers "
    "compute them, and the setting of this name in the section learner combines them"
)

#: RELAAX's RMSProp was TensorFlow's: the mean of squares starts at ones, and epsilon is inside the root.
_RMSPROP = "rmsprop_tf"


def _path(draft: Draft, key: str, value: Any) -> None:
    if "relaax/algorithms/" in str(value):  # a built-in algorithm, as named in 2017
        draft.taken += 1
    else:
        draft.leave_out(
            key,
            "your own agent runs as agent.class: surreal.agent.SessionAgent with args.session, its parameter "
            "server as learner.class: surreal.learner.RemoteLearner (docs/gradients.md); `surreal generate -a` copies "
            "a built-in algorithm to edit",
        )


def _optimizer(draft: Draft, _: str, value: Any) -> None:
    draft.taken += 1
    settings = value if isinstance(value, dict) else {"name": value}
    for name, each in settings.items():
        if name in ("name", "type"):
            draft.settings["learner.args.optimizer"] = {"rmsprop": _RMSPROP}.get(str(each).lower(), str(each).lower())
        else:
            draft.settings[f"learner.args.{name}"] = each


def _rmsprop(name: str, by: Callable[[Any], Any]) -> Rule:
    """Make the rule of a key of the section RMSProp, which only applies to that optimizer, the default of 2017."""

    def rule(draft: Draft, key: str, value: Any) -> None:
        is_of_2017 = not draft.given.keys().isdisjoint(("episode_len", "state_size"))
        optimizer = draft.given.get("optimizer", "RMSProp" if is_of_2017 else "Adam")
        if str(optimizer).lower() != "rmsprop":
            draft.leave_out(key, f"the optimizer is {optimizer}, which does not read this section")
            return
        draft.settings["learner.args.optimizer"] = _RMSPROP
        draft.take(f"learner.args.{name}", by(value))

    return rule


def _hidden_sizes(draft: Draft, _: str, value: Any) -> None:
    sizes = list(value or [])
    if (draft.given.get("use_lstm") or draft.given.get("lstm")) and sizes:  # the last one is the LSTM's
        draft.settings["model.args.lstm_size"] = sizes[-1]
        sizes = sizes[:-1] or sizes
    draft.take("model.args.hidden_sizes", sizes)
    if draft.algorithm in ("dppo", "trpo"):  # they have a separate value network
        draft.settings["model.args.value_hidden_sizes"] = sizes


COMMON: Table = {
    "name": lambda draft, _, __: setattr(draft, "taken", draft.taken + 1),
    "path": _path,
    "hidden_sizes": _hidden_sizes,
    "rewards_gamma": to("learner.gamma", by=float),
    "gamma": to("learner.gamma", by=float),
    "optimizer": _optimizer,
    "RMSProp.decay": _rmsprop("decay", float),
    "RMSProp.epsilon": _rmsprop("epsilon", float),
    "RMSProp.gradient_norm_clipping": _rmsprop("gradients_norm_clipping", number_or_none),
    "initial_learning_rate": to("learner.args.initial_learning_rate", by=float),
    "learning_rate_end": to("learner.args.learning_rate_end", by=float),
    "use_linear_schedule": to("learner.args.use_linear_schedule"),
    "schedule_step": to("learner.args.schedule_step"),
    "max_global_step": to("run.max_env_steps", by=int),
    "gradients_norm_clipping": to("learner.args.gradients_norm_clipping", by=number_or_none),
    **{name: gone(_AT_LEARNER) for name in ("combine_gradients", "num_gradients", "dc_lambda", "dc_history")},
    "use_lstm": to("model.args.use_lstm"),
    "lstm": to("model.args.use_lstm"),
    "lstm_type": to("model.args.lstm_type"),
    "lstm_num_cores": to("model.args.lstm_num_cores"),
    "seed": to("seed"),
    "gpu": to("device", by=lambda value: "auto" if value else "cpu"),
    "avg_in_num_batches": gone("scores are mean returns of evaluation's rounds, of eval.episodes each"),
    "use_filter": to("model.args.normalize_obs"),
}


#: By RELAAX's name of the algorithm: its keys, and the function that sets its defaults.
ALGORITHMS: dict[str, tuple[Table, Begin]] = {
    "policy_gradient": (
        POLICY_GRADIENT,
        begin_on_policy(
            "PolicyGradientLearner", {"initial_learning_rate": 1e-4, "baseline": False}, "relu", 50_000_000, 200
        ),
    ),
    "da3c": (DA3C, begin_da3c),
    "dppo": (
        DPPO,
        begin_on_policy(
            "PPOLearner",
            {
                "initial_learning_rate": 1e-4, "gae_lambda": 1.0, "mini_batch": None, "critic_scale": 0.25,
                "policy_iterations": 5, "value_func_iterations": 5, "normalize_advantage": False,
                "use_linear_schedule": True, "epsilon": 1e-5,
            },
            "tanh", 10_000_000, 200,
        ),
    ),
    "ddpg": (DDPG, begin_ddpg),
    "dqn": (DQN, begin_dqn),
    "trpo": (TRPO, begin_on_policy("TRPOLearner", {}, "tanh", 10_000_000, 1000)),
}  # fmt: skip


def of_2017(algorithm: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fixed settings of an algorithm of 2017: networks, filter, entropy, learning rate.

    Args:
        algorithm: its name in 2017.
        given: its section; keys in it are not returned.
    """
    if algorithm == "da3c_cont":
        implied: dict[str, Any] = {
            "hidden_sizes": [128, 128], "use_lstm": True, "use_filter": True, "entropy_beta": 1e-3,
            "initial_learning_rate": 1e-4, "output": {"continuous": True},
        }  # fmt: skip
    elif algorithm == "da3c":
        is_image = len(given["state_size"]) > 1
        implied = {"hidden_sizes": [256]} | (
            {"input": {"use_convolutions": True, "universe": False, "history": 4}} if is_image else {}
        )
    else:
        implied = {}
    return {name: value for name, value in implied.items() if name not in given}
