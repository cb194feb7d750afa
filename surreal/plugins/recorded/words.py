"""Metrics in words: titles of charts, and labels of their axes with units."""

from __future__ import annotations

from typing import NamedTuple

_MIB = 1 / (1 << 20)


class Words(NamedTuple):
    """A metric in words."""

    title: str  #: "" for a name without a group
    axis: str  #: what the values are, with their unit
    scale: float = 1.0  #: values are multiplied by it to have this unit


_KNOWN = {
    "eval/episode_return": Words("Evaluation return", "mean return of a round"),
    "eval/episode_return_best": Words("Best evaluation return", "mean return of the best round"),
    "eval/episode_return_std": Words("Spread of the evaluation", "standard deviation of the return"),
    "eval/episode_length": Words("Length of evaluation episodes", "env steps per episode"),
    "eval/success_ratio": Words("Successful evaluation episodes", "share, 0 to 1"),
    "agent/episode_return_recent": Words("Training return", "mean of the last 100 episodes"),
    "agent/episode_return": Words("Training return, newest episodes", "mean return"),
    "agent/episode_length": Words("Length of training episodes", "env steps per episode"),
    "agent/env_steps_per_s": Words("Speed of acting", "env steps per second"),
    "agent/epsilon": Words("Exploration rate", "share of random actions"),
    "learner/updates_per_s": Words("Speed of learning", "updates per second"),
    "learner/policy_lag_versions": Words("Policy lag", "versions behind the learner"),
    "learner/loss": Words("Loss", "loss"),
    "learner/policy_loss": Words("Policy loss", "loss"),
    "learner/value_loss": Words("Value loss", "loss"),
    "learner/entropy": Words("Entropy of the policy", "nats"),
    "learner/kl": Words("Change of the policy per update", "KL divergence, nats"),
    "learner/explained_variance": Words("Explained variance of returns", "share, at most 1"),
    "learner/learning_rate": Words("Learning rate", "learning rate"),
    "learner/gradient_norm": Words("Gradient norm before clipping", "norm"),
    "learner/q_mean": Words("Mean Q value", "return"),
    "replay/fill_ratio": Words("Replay fill", "share of its capacity"),
    "replay/samples_per_insert": Words("Use of each env step", "samples per insert"),
    "sender/wait_s_total": Words("Waiting of senders", "seconds in total"),
}
#: Units by the end of a name.
_UNITS = {
    "_bytes_total": ("MiB in total", _MIB),
    "_bytes": ("MiB", _MIB),
    "_s_total": ("seconds in total", 1.0),
    "_total": ("total", 1.0),
    "_count": ("number", 1.0),
    "_per_s": ("per second", 1.0),
    "_ms": ("milliseconds", 1.0),
    "_s": ("seconds", 1.0),
    "_ratio": ("share, 0 to 1", 1.0),
    "_versions": ("versions", 1.0),
}


def words_of(name: str) -> Words:
    """Describe a metric; one that is not known is described by its name and the unit at the name's end."""
    if name in _KNOWN:
        return _KNOWN[name]
    group, slash, stem = name.partition("/")
    if not slash:
        return Words("", name)
    end = next((end for end in _UNITS if f"_{stem}".endswith(end)), "")
    words = (f"_{stem}".removesuffix(end).strip("_") or stem).replace("_", " ")
    unit, scale = _UNITS.get(end, (words, 1.0))
    return Words(f"{words[:1].upper()}{words[1:]} ({group})", unit, scale)
