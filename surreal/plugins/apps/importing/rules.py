"""The draft of a converted configuration, and how a key of RELAAX changes it: by its entry in relaax.yaml."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from surreal.rlx.client.transport import parse_address

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


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "float": float,
    "int": int,
    "lower": lambda value: str(value).lower(),
    "device": lambda value: "auto" if value else "cpu",
    "number_or_none": lambda value: None if value is False else value,  # as RELAAX reads it
    "number_or_zero": lambda value: float(value or 0.0),
    "activation": activation,
}


@dataclass
class Draft:
    """The settings of Surreal so far.

    The methods below `convert` are the rules of relaax.yaml, which convert what an entry cannot express. Each takes the
    key in the file, and its value.
    """

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

    def convert(self, entry: str | Mapping[str, Any], key: str, value: Any) -> None:
        """Convert a key of a file by its entry in relaax.yaml, where the kinds of entries are explained."""
        entry = {"to": entry} if isinstance(entry, str) else entry
        combining = self.given.get("combine_gradients", "fifo")
        if entry.get("combining", combining) != combining:
            self.leave_out(key, f"combine_gradients is {combining}, which does not read it")
        elif "unless_subtype" in entry and self.given.get("subtype") == entry["unless_subtype"]:
            self.leave_out(key, f"the subtype is {entry['unless_subtype']}, which does not have it")
        elif "rule" in entry:
            getattr(self, entry["rule"])(key, value)
        elif "to" in entry:
            self.take(entry["to"], _CONVERSIONS[entry["by"]](value) if "by" in entry else value)
        elif "only" not in entry:
            self.leave_out(key, entry["gone"])
        elif value == entry["only"] or value is None:
            self.taken += 1
        else:
            self.leave_out(key, f"{value}: {entry['gone']}")

    def counted(self, _: str, __: Any) -> None:
        """Count a key that the rule of another key reads."""
        self.taken += 1

    # -- the program and the servers -----------------------------------------------------------------------------------

    def app_name(self, _: str, value: Any) -> None:
        self.name = str(value)

    def program(self, key: str, value: Any) -> None:
        self.take("environment.run", value)
        self.leave_out(key, "kept, but a program that imports relaax must import from surreal.rlx instead")

    def bind(self, _: str, value: Any) -> None:
        address = parse_address(str(value))
        self.settings["rlx.host"] = "127.0.0.1" if address.host == "localhost" else address.host
        self.take("rlx.port", address.port)

    def _store(self, value: Any) -> None:
        self.take("checkpoint.stores", [*self.settings.get("checkpoint.stores", ["run"]), value])

    def s3(self, _: str, value: Any) -> None:
        bucket, *path = value if isinstance(value, list) else str(value).split()
        self._store("/".join(["s3:/", bucket, *path]))

    def directory(self, key: str, value: Any) -> None:
        if value == "logs/checkpoints":
            self.leave_out(key, "the default: checkpoints are in the run's folder below runs/")
        else:
            self._store(value)

    # -- all algorithms: networks and optimizers -----------------------------------------------------------------------

    def path(self, key: str, value: Any) -> None:
        if "relaax/algorithms/" in str(value):  # a built-in algorithm, as named in 2017
            self.taken += 1
        else:
            self.leave_out(
                key,
                "your own agent runs as agent.class: surreal.agent.SessionAgent with args.session, its parameter "
                "server as learner.class: surreal.learner.RemoteLearner (docs/gradients.md); `surreal generate -a` "
                "copies a built-in algorithm to edit",
            )

    def convolutions(self, _: str, value: Any) -> None:
        given = self.given.get("input") or {}
        self.taken += 1
        if value and "layers" not in given:
            self.settings["model.args.convolutions"] = "universe" if given.get("universe", True) else "a3c"

    def layers(self, key: str, value: Any) -> None:
        defaults = {"n_filters": 32, "filter_size": [3, 3], "stride": [2, 2], "border": "same"}
        layers = [
            {"type": "convolution", **defaults, **layer, "activation": activation(layer.get("activation", "elu"))}
            for layer in value
            if layer.get("type", "convolution") == "convolution"
        ]
        if layers:
            self.settings["model.args.convolutions"] = layers
        self.taken += 1
        if any(layer.get("type") == "dense" for layer in value):
            self.leave_out(
                key, "its dense layers: dense layers are model.args.hidden_sizes, with one activation for all"
            )

    def kaf(self, _: str, value: Any) -> None:
        self.taken += 1
        if activation(self.given.get("activation")) == "kaf":
            self.finishing.append(lambda: self.settings.update({"model.args.activation": {"type": "kaf", **value}}))

    def hidden_sizes(self, _: str, value: Any) -> None:
        sizes = list(value or [])
        if (self.given.get("use_lstm") or self.given.get("lstm")) and sizes:  # the last one is the LSTM's
            self.settings["model.args.lstm_size"] = sizes[-1]
            sizes = sizes[:-1] or sizes
        self.take("model.args.hidden_sizes", sizes)
        if self.algorithm in ("dppo", "trpo"):  # they have a separate value network
            self.settings["model.args.value_hidden_sizes"] = sizes

    def optimizer(self, _: str, value: Any) -> None:
        self.taken += 1
        settings = value if isinstance(value, dict) else {"name": value}
        for name, each in settings.items():
            if name in ("name", "type"):
                kind = str(each).lower()
                self.settings["learner.args.optimizer"] = _RMSPROP if kind == "rmsprop" else kind
            else:
                self.settings[f"learner.args.{name}"] = each

    def rmsprop(self, key: str, value: Any) -> None:
        """Convert a key of the section RMSProp, which only applies to that optimizer, the default of 2017."""
        is_of_2017 = not self.given.keys().isdisjoint(("episode_len", "state_size"))
        optimizer = self.given.get("optimizer", "RMSProp" if is_of_2017 else "Adam")
        if str(optimizer).lower() != "rmsprop":
            self.leave_out(key, f"the optimizer is {optimizer}, which does not read this section")
            return
        self.settings["learner.args.optimizer"] = _RMSPROP
        if key.endswith("gradient_norm_clipping"):
            self.take("learner.args.gradients_norm_clipping", _CONVERSIONS["number_or_none"](value))
        else:
            self.take(f"learner.args.{key.rpartition('.')[2]}", float(value))

    # -- single algorithms ---------------------------------------------------------------------------------------------

    def steps(self, _: str, value: Any) -> None:
        """Convert a batch of steps, by default 1,000, to trajectories."""
        value = int(value or 1000)
        trajectories = math.ceil(value / _TRAJECTORY)
        length = math.ceil(value / trajectories)
        self.settings |= {"agent.round_steps": length, "replay.args.trajectory_steps": length}
        self.settings["sender.chunk_steps"] = min(64, length)
        self.take("learner.batch_size", trajectories)

    def episodes(self, key: str, _: Any) -> None:
        if not self.given.get("PG_OPTIONS", {}).get("timesteps_per_batch"):
            self.leave_out(key, "a batch is counted in steps: it is 1,000; learner.batch_size times trajectory_steps")

    def icm(self, _: str, __: Any) -> None:
        self.taken += 1
        if self.given.get("use_icm"):
            given = {"nu": 0.8, "beta": 0.2, "lr": 1e-3} | (self.given.get("icm") or {})
            names = {"nu": "reward_scale", "beta": "forward_share", "lr": "learning_rate"}
            self.settings["learner.args.icm"] = {names[name]: given[name] for name in names}

    def subtype(self, _: str, value: Any) -> None:
        if value != "ppo":
            self.take("learner.args.subtype", value)
            return
        self.taken += 1
        given = {"clip_e": 0.2, "learning_rate": 1e-3, "n_epochs": 4, "minibatch_size": None}
        given |= self.given.get("PPO") or {}
        self.settings |= {
            "learner.class": "surreal.learner.PPOLearner",
            "learner.args.clip_range": given["clip_e"],
            "learner.args.initial_learning_rate": given["learning_rate"],
            "learner.args.policy_iterations": given["n_epochs"],
            "learner.args.mini_batch": given["minibatch_size"],
        }

    def drawn(self, _: str, value: Any) -> None:
        """Convert a batch of transitions from a replay, with one update for each env step, like RELAAX."""
        self.take("learner.batch_size", value)
        self.settings["replay.samples_per_insert"] = float(int(self.given.get("loop_size", 1)) * value)

    def l2(self, _: str, __: Any) -> None:
        self.taken += 1
        decay = self.given.get("l2_decay", 0.01)
        self.settings["learner.args.l2_coeff"] = float(decay) if self.given.get("l2", True) else 0.0

    def noise(self, _: str, value: Any) -> None:
        self.take("agent.args.noise", "ornstein_uhlenbeck" if value else "gaussian")
        if not value:
            self.settings.pop("agent.args.noise_theta", None)

    def epsilon(self, key: str, value: dict[str, Any]) -> None:
        decay = value.get("decay_steps", 10_000)
        if isinstance(decay, list):
            decay = sum(decay) / len(decay)
            self.leave_out(f"{key}.decay_steps", "the decay uses the mean of its range")
        if value.get("stochastic"):
            self.leave_out(
                f"{key}.stochastic", "all agents follow one schedule; type: ape_x gives each its own epsilon"
            )
        schedule = {"type": "linear", "start": value.get("initial", 1.0), "end": value.get("end", 0.02)}
        self.take("agent.exploration", {**schedule, "steps": int(decay)})

    def alpha(self, _: str, value: Any) -> None:
        self.settings["replay.class"] = "surreal.replay.PrioritizedReplay"
        self.take("replay.args.priority_exponent", min(1.0, float(value)))
