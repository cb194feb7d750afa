"""What gymnasium's own checker says of an environment, in plain words, and without what is said of every other one."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import NamedTuple

from gymnasium.error import Error
from gymnasium.utils.env_checker import check_env

from surreal.plugins.doctor.environment.faults import CHECKER, CHECKER_FAILS
from surreal.plugins.doctor.environment.play import Env
from surreal.plugins.doctor.frame.finding import Finding, ok


class _Saying(NamedTuple):
    """A message of the checker.

    Attributes:
        pattern: that its text has.
        text: what it means; "" if it is harmless here, or another check says it better.
        remedy: what helps.
    """

    pattern: str
    text: str = ""
    remedy: str = ""


_SEED_REMEDY = "def reset(self, *, seed=None, options=None): super().reset(seed=seed)"
_SAYINGS = (
    # Bounds of spaces that are usual, and treated by filters and squashing.
    _Saying(r"probably too (low|high)|recommend using a symmetric|different from the unwrapped"),
    # Found by our own checks, with values.
    _Saying(r"not within the observation space|numpy array dtype to be|share an object|reward is (a NaN|an inf)"),
    _Saying(r"non-deterministic|are not (equivalent|equal)", "the same seed does not repeat it exactly", _SEED_REMEDY),
    _Saying(
        r"does not call `super\(\)\.reset|random number generator to have been generated|not properly been updated",
        "reset does not seed the environment's own random numbers",
        _SEED_REMEDY,
    ),
    _Saying(r"`seed` (or|instead)|cannot be reset with a random seed", "reset takes no seed", _SEED_REMEDY),
    _Saying(r"`options`", "reset takes no options", _SEED_REMEDY),
    _Saying(r"default seed argument", "reset has a seed by default, so all episodes are the same", "seed=None"),
    _Saying(r"tuple of the form|2-tuple|should be `\(obs, info\)`", "reset does not return (obs, info)", "return both"),
    _Saying(
        r"four or five element|old step API",
        "step does not return its five values",
        "return obs, reward, terminated, truncated, info",
    ),
    _Saying(
        r"signal to be a boolean", "terminated or truncated is no boolean", "bool(...) around what comes from numpy"
    ),
    _Saying(r"reward returned by `step\(\)` must be", "a reward is no plain number", "float(reward)"),
    _Saying(r"expecting a numpy array|should be an int or np.int64", "an observation is no array", "np.asarray(...)"),
    _Saying(r"`info`.*dictionary|not a dictionary", "info is no dictionary", "return {} where there is nothing to say"),
    _Saying(r"`seed` function is dropped|`return_info`", "it has parts of the old gym interface", "remove them"),
)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def checker(env: Env) -> Iterator[Finding]:
    """Ask gymnasium's checker about the bare environment."""
    problem = ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check_env(env.unwrapped, skip_render_check=True)
        except (AssertionError, Error, TypeError, ValueError, AttributeError) as error:
            problem = f"{type(error).__name__}: {error}" if not str(error) else str(error)
    is_silent = True
    for message in dict.fromkeys(str(warning.message) for warning in caught):
        if (said := translate(message)) is not None:
            is_silent = False
            yield CHECKER.found(*said)
    if problem and (said := translate(problem)) is not None:
        is_silent = False
        yield CHECKER_FAILS.found(*said)
    if is_silent:
        yield ok("gymnasium's checker finds nothing")


def translate(message: str) -> tuple[str, str] | None:
    """Give text and remedy for a message of the checker; None if it is not worth a word."""
    plain = " ".join(_COLOURS.sub("", message).removeprefix("WARN: ").split()).removeprefix("WARN: ")
    for saying in _SAYINGS:
        if re.search(saying.pattern, plain):
            return (f"gymnasium's checker: {saying.text}", saying.remedy) if saying.text else None
    return f"gymnasium's checker: {plain[:300]}", ""
