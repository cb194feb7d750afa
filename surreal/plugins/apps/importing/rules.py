"""The draft of a converted configuration, and how a key of RELAAX changes it: by its entry in relaax.yaml.

The functions in RULES convert what an entry cannot express; each takes the draft, the key in the file, and its value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from surreal.rlx.client.transport import parse_address


@dataclass
class Draft:
    """The settings of Surreal so far."""

    name: str  #: name of the app
    algorithm: str  #: RELAAX's name
    given: Mapping[str, Any]  #: section of the algorithm, with underscores in its keys
    settings: dict[str, Any] = field(default_factory=dict)  #: by dotted key, in the order of the file
    left_out: list[tuple[str, str]] = field(default_factory=list)  #: keys that were not converted, with the reasons
    taken: int = 0  #: number of converted keys
    finishing: list[Callable[[], None]] = field(default_factory=list)  #: functions to call when all keys were read

    def take(self, key: str, value: Any) -> None:
        self.settings[key] = value
        self.taken += 1

    def leave_out(self, key: str, reason: str) -> None:
        self.left_out.append((key, reason))


def convert_key(draft: Draft, entry: str | Mapping[str, Any], key: str, value: Any) -> None:
    """Convert a key of a file by its entry in relaax.yaml, where the kinds of entries are explained."""
    entry = {"to": entry} if isinstance(entry, str) else entry
    combining = draft.given.get("combine_gradients", "fifo")
    if entry.get("combining", combining) != combining:
        draft.leave_out(key, f"combine_gradients is {combining}, which does not read it")
    elif "unless_subtype" in entry and draft.given.get("subtype") == entry["unless_subtype"]:
        draft.leave_out(key, f"the subtype is {entry['unless_subtype']}, which does not have it")
    elif "rule" in entry:
        RULES[entry["rule"]](draft, key, value)
    elif "to" in entry:
        draft.take(entry["to"], _CONVERSIONS[entry["by"]](value) if "by" in entry else value)
    elif "only" not in entry:
        draft.leave_out(key, entry["gone"])
    elif value == entry["only"] or value is None:
        draft.taken += 1
    else:
        draft.leave_out(key, f"{value}: {entry['gone']}")


#: Activation functions that have another name here.
_ACTIVATIONS = {"null": "none", "None": "none"}
#: RELAAX's RMSProp was TensorFlow's: the mean of squares starts at ones, and epsilon is inside the root.
_RMSPROP = "rmsprop_tf"
#: Longest trajectory that a batch is cut into, in steps.
_TRAJECTORY = 128


def activation(value: Any) -> Any:
    """Read an activation: a name, or KAF with its settings."""
    if isinstance(value, Mapping):
        settings = {str(key).lower(): each for key, each in value.items()}
        return {"type": "kaf", **settings.pop("kaf", settings)}
    return "none" if value is None else _ACTIVATIONS.get(str(value), str(value).lower())


def _number_or_none(value: Any) -> Any:
    return None if value is False else value  # as RELAAX reads it


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "float": float,
    "int": int,
    "lower": lambda value: str(value).lower(),
    "device": lambda value: "auto" if value else "cpu",
    "number_or_none": _number_or_none,
    "number_or_zero": lambda value: float(value or 0.0),
    "activation": activation,
}


def _counted(draft: Draft, _: str, __: Any) -> None:
    """Count a key that the rule of another key reads."""
    draft.taken += 1


# -- the program and the servers -----------------------------------------------------------------------------------


def _app_name(draft: Draft, _: str, value: Any) -> None:
    draft.name = str(value)


def _program(draft: Draft, key: str, value: Any) -> None:
    draft.take("environment.run", value)
    draft.leave_out(key, "kept, but a program that imports relaax must import from surreal.rlx instead")


def _bind(draft: Draft, _: str, value: Any) -> None:
    address = parse_address(str(value))
    draft.settings["rlx.host"] = "127.0.0.1" if address.host == "localhost" else address.host
    draft.take("rlx.port", address.port)


def _store(draft: Draft, value: Any) -> None:
    draft.take("checkpoint.stores", [*draft.settings.get("checkpoint.stores", ["run"]), value])


def _s3(draft: Draft, _: str, value: Any) -> None:
    bucket, *path = value if isinstance(value, list) else str(value).split()
    _store(draft, "/".join(["s3:/", bucket, *path]))


def _directory(draft: Draft, key: str, value: Any) -> None:
    if value == "logs/checkpoints":
        draft.leave_out(key, "the default: checkpoints are in the run's folder below runs/")
    else:
        _store(draft, value)


# -- all algorithms: networks and optimizers ------------------------------------------------------------------------


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


def _convolutions(draft: Draft, _: str, value: Any) -> None:
    given = draft.given.get("input") or {}
    draft.taken += 1
    if value and "layers" not in given:
        draft.settings["model.args.convolutions"] = "universe" if given.get("universe", True) else "a3c"


def _layers(draft: Draft, key: str, value: Any) -> None:
    defaults = {"n_filters": 32, "filter_size": [3, 3], "stride": [2, 2], "border": "same"}
    layers = [
        {"type": "convolution", **defaults, **layer, "activation": activation(layer.get("activation", "elu"))}
        for layer in value
        if layer.get("type", "convolution") == "convolution"
    ]
    if layers:
        draft.settings["model.args.convolutions"] = layers
    draft.taken += 1
    if any(layer.get("type") == "dense" for layer in value):
        draft.leave_out(key, "its dense layers: dense layers are model.args.hidden_sizes, with one activation for all")


def _kaf(draft: Draft, _: str, value: Any) -> None:
    draft.taken += 1
    if activation(draft.given.get("activation")) == "kaf":
        draft.finishing.append(lambda: draft.settings.update({"model.args.activation": {"type": "kaf", **value}}))


def _hidden_sizes(draft: Draft, _: str, value: Any) -> None:
    sizes = list(value or [])
    if (draft.given.get("use_lstm") or draft.given.get("lstm")) and sizes:  # the last one is the LSTM's
        draft.settings["model.args.lstm_size"] = sizes[-1]
        sizes = sizes[:-1] or sizes
    draft.take("model.args.hidden_sizes", sizes)
    if draft.algorithm in ("dppo", "trpo"):  # they have a separate value network
        draft.settings["model.args.value_hidden_sizes"] = sizes


def _optimizer(draft: Draft, _: str, value: Any) -> None:
    draft.taken += 1
    settings = value if isinstance(value, dict) else {"name": value}
    for name, each in settings.items():
        if name in ("name", "type"):
            draft.settings["learner.args.optimizer"] = {"rmsprop": _RMSPROP}.get(str(each).lower(), str(each).lower())
        else:
            draft.settings[f"learner.args.{name}"] = each


def _rmsprop(draft: Draft, key: str, value: Any) -> None:
    """Convert a key of the section RMSProp, which only applies to that optimizer, the default of 2017."""
    is_of_2017 = not draft.given.keys().isdisjoint(("episode_len", "state_size"))
    optimizer = draft.given.get("optimizer", "RMSProp" if is_of_2017 else "Adam")
    if str(optimizer).lower() != "rmsprop":
        draft.leave_out(key, f"the optimizer is {optimizer}, which does not read this section")
        return
    draft.settings["learner.args.optimizer"] = _RMSPROP
    if key.endswith("gradient_norm_clipping"):
        draft.take("learner.args.gradients_norm_clipping", _number_or_none(value))
    else:
        draft.take(f"learner.args.{key.rpartition('.')[2]}", float(value))


# -- single algorithms ---------------------------------------------------------------------------------------------


def steps(draft: Draft, _: str, value: Any) -> None:
    """Convert a batch of steps to trajectories."""
    value = int(value or 1000)
    trajectories = math.ceil(value / _TRAJECTORY)
    length = math.ceil(value / trajectories)
    draft.settings |= {"agent.round_steps": length, "replay.args.trajectory_steps": length}
    draft.settings["sender.chunk_steps"] = min(64, length)
    draft.take("learner.batch_size", trajectories)


def _episodes(draft: Draft, key: str, _: Any) -> None:
    if not draft.given.get("PG_OPTIONS", {}).get("timesteps_per_batch"):
        draft.leave_out(key, "a batch is counted in steps: it is 1,000; learner.batch_size times trajectory_steps")


def _icm(draft: Draft, _: str, __: Any) -> None:
    draft.taken += 1
    if draft.given.get("use_icm"):
        given = {"nu": 0.8, "beta": 0.2, "lr": 1e-3} | (draft.given.get("icm") or {})
        names = {"nu": "reward_scale", "beta": "forward_share", "lr": "learning_rate"}
        draft.settings["learner.args.icm"] = {names[name]: given[name] for name in names}


def _subtype(draft: Draft, _: str, value: Any) -> None:
    if value != "ppo":
        draft.take("learner.args.subtype", value)
        return
    draft.taken += 1
    given = {"clip_e": 0.2, "learning_rate": 1e-3, "n_epochs": 4, "minibatch_size": None}
    given |= draft.given.get("PPO") or {}
    draft.settings |= {
        "learner.class": "surreal.learner.PPOLearner",
        "learner.args.clip_range": given["clip_e"],
        "learner.args.initial_learning_rate": given["learning_rate"],
        "learner.args.policy_iterations": given["n_epochs"],
        "learner.args.mini_batch": given["minibatch_size"],
    }


def _drawn(draft: Draft, _: str, value: Any) -> None:
    """Convert a batch of transitions from a replay, with one update for each env step, like RELAAX."""
    draft.take("learner.batch_size", value)
    draft.settings["replay.samples_per_insert"] = float(int(draft.given.get("loop_size", 1)) * value)


def _l2(draft: Draft, _: str, __: Any) -> None:
    draft.taken += 1
    decay = draft.given.get("l2_decay", 0.01)
    draft.settings["learner.args.l2_coeff"] = float(decay) if draft.given.get("l2", True) else 0.0


def _noise(draft: Draft, _: str, value: Any) -> None:
    draft.take("agent.args.noise", "ornstein_uhlenbeck" if value else "gaussian")
    if not value:
        draft.settings.pop("agent.args.noise_theta", None)


def _epsilon(draft: Draft, key: str, value: dict[str, Any]) -> None:
    decay = value.get("decay_steps", 10_000)
    if isinstance(decay, list):
        decay = sum(decay) / len(decay)
        draft.leave_out(f"{key}.decay_steps", "the decay uses the mean of its range")
    if value.get("stochastic"):
        draft.leave_out(f"{key}.stochastic", "all agents follow one schedule; type: ape_x gives each its own epsilon")
    schedule = {"type": "linear", "start": value.get("initial", 1.0), "end": value.get("end", 0.02)}
    draft.take("agent.exploration", {**schedule, "steps": int(decay)})


def _alpha(draft: Draft, _: str, value: Any) -> None:
    draft.settings["replay.class"] = "surreal.replay.PrioritizedReplay"
    draft.take("replay.args.priority_exponent", min(1.0, float(value)))


#: The rules of relaax.yaml by name.
RULES: dict[str, Callable[[Draft, str, Any], None]] = {
    rule.__name__.lstrip("_"): rule
    for rule in (
        _counted, _app_name, _program, _bind, _s3, _directory, _path, _convolutions, _layers, _kaf, _hidden_sizes,
        _optimizer, _rmsprop, steps, _episodes, _icm, _subtype, _drawn, _l2, _noise, _epsilon, _alpha,
    )
}  # fmt: skip
