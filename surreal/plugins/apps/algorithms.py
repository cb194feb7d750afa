"""The algorithms by name: ours, and what the ancestor calls them."""

from __future__ import annotations

from typing import NamedTuple

from surreal.base.errors import ConfigError
from surreal.config.problems import nearest


class Algorithm(NamedTuple):
    """An algorithm.

    Attributes:
        learner: name of the class that learns by it; of several with one class, the first counts as its algorithm.
        others: names of the same.
    """

    learner: str
    others: tuple[str, ...] = ()


#: By our name, which presets end with.
ALGORITHMS: dict[str, Algorithm] = {
    "pg": Algorithm("PolicyGradientLearner", ("policy-gradient", "reinforce")),
    "a2c": Algorithm("A2CLearner"),
    "a3c": Algorithm("A2CLearner", ("da3c",)),  # whose gradients agents compute
    "ppo": Algorithm("PPOLearner", ("dppo",)),
    "trpo": Algorithm("TRPOLearner"),
    "vtrace": Algorithm("VTraceLearner", ("impala",)),
    "ipg": Algorithm("IPGLearner"),
    "dqn": Algorithm("DQNLearner"),
    "rainbow": Algorithm("QuantileDQNLearner"),
    "r2d2": Algorithm("R2D2Learner"),
    "ddpg": Algorithm("DDPGLearner"),
    "td3": Algorithm("DDPGLearner"),
    "sac": Algorithm("SACLearner"),
}


def find_algorithm(name: str) -> str:
    """Give our name of an algorithm.

    Raises:
        ConfigError: there is none of that name; the message has the nearest.
    """
    wanted = name.lower().replace("_", "-")
    for own, algorithm in ALGORITHMS.items():
        if wanted in (own, *algorithm.others):
            return own
    known = [each for own, algorithm in ALGORITHMS.items() for each in (own, *algorithm.others)]
    similar = nearest(wanted, known)
    advice = f"there are {', '.join(known)}" if similar is None else f"did you mean {similar}?"
    raise ConfigError(f"{name} is no algorithm; {advice}", key="-a")


def algorithm_of(class_path: str, gradients: str = "learner") -> str | None:
    """Give our name of the algorithm that a class learns by, None if it is a user's own.

    Args:
        class_path: the setting `learner.class`.
        gradients: the setting `learner.gradients`.
    """
    learner = class_path.rpartition(".")[2]
    found = next((own for own, algorithm in ALGORITHMS.items() if algorithm.learner == learner), None)
    return "a3c" if found == "a2c" and gradients == "agents" else found
