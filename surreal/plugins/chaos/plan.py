"""Options of the disturbances, and the plan of times and kinds, drawn from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from surreal.base.errors import ConfigError
from surreal.plugins.chaos.disturbances.processes import REDIS_KINDS, Kind
from surreal.run.process.roles import AGENT, EVAL, LEARNER, PARAMETER_SERVER, RLX_SERVER, Role

#: Roles with a heartbeat, by which their processes are found.
ROLES: tuple[Role, ...] = (LEARNER, PARAMETER_SERVER, AGENT, RLX_SERVER, EVAL)
ALL = "all"


@dataclass(frozen=True)
class ChaosOptions:
    """Options of the disturbances."""

    kinds: tuple[Kind, ...]  #: one is drawn each time
    kill_roles: frozenset[str] = frozenset()  #: roles whose processes may be killed
    pause_roles: frozenset[str] = frozenset()
    for_s: float = 60.0  #: duration of the disturbances
    most: int | None = None  #: maximum number of disturbances; None: as many as fit into `for_s`
    every_s: float = 6.0  #: mean time between two disturbances
    hold_s: float = 3.0  #: maximum duration of a pause, a cut, or a full or absent Redis
    within_s: float = 60.0  #: maximum time to recover from a disturbance
    seed: int = 0
    is_default: bool = False  #: no kind was named, so impossible kinds and those that lose experience are left out

    def roles_of(self, kind: Kind) -> frozenset[str]:
        """Return the roles whose processes a kind disturbs; empty: it does not disturb processes."""
        return {Kind.KILL: self.kill_roles, Kind.PAUSE: self.pause_roles}.get(kind, frozenset())


def read_kinds(
    kill: Sequence[str], pause: Sequence[str], redis: Sequence[str], *, cuts: bool
) -> tuple[tuple[Kind, ...], frozenset[str], frozenset[str]]:
    """Read the options of the command line, and return kinds, roles to kill, and roles to pause.

    Without any, processes are killed and paused, connections cut, and Redis is restarted.

    Raises:
        ConfigError: a word is unknown.
    """
    if not (kill or pause or redis or cuts):
        kill, pause, redis, cuts = [ALL], [ALL], [Kind.RESTART], True
    kill_roles, pause_roles = _roles(kill, "--kill"), _roles(pause, "--pause")
    asked = [word for text in redis for word in text.split(",")]
    for word in asked:
        if word not in REDIS_KINDS:
            raise ConfigError(f"--redis is {word!r}; it must be {', '.join(REDIS_KINDS)}", key="--redis")
    kinds = [
        *([Kind.KILL] if kill_roles else []),
        *([Kind.PAUSE] if pause_roles else []),
        *([Kind.CUT] if cuts else []),
        *(kind for kind in REDIS_KINDS if kind in asked),
    ]
    return tuple(kinds), kill_roles, pause_roles


def _roles(texts: Sequence[str], option: str) -> frozenset[str]:
    words = [word for text in texts for word in text.split(",")]
    known = [role.name for role in ROLES]
    for word in words:
        if word not in (*known, ALL):
            raise ConfigError(f"{option} is {word!r}; it must be {', '.join(known)} or {ALL}", key=option)
    return frozenset(known if ALL in words else words)


def role_of(name: str) -> str:
    """Return the role of a process by its name in the run: `agent` for `agent-3`."""
    found = [role.name for role in ROLES if name == role.name or name.startswith(f"{role.name}-")]
    return found[0] if found else ""


#: A gap is drawn from an exponential distribution, and kept within these multiples of its mean.
_SHORTEST, _LONGEST = 0.2, 3.0
_LEAST_HOLD = 0.2


class Planned(NamedTuple):
    """A planned disturbance."""

    at_s: float  #: time since the start, s
    kind: Kind
    hold: float  #: duration, 0.2 .. 1 of the maximum
    role: float  #: draw of the role, 0 .. 1
    member: float  #: draw of the role's process, or of the server, 0 .. 1


class Plan:
    """Draws disturbances, one after the other; all kinds are equally likely, `every_s` is their mean distance."""

    def __init__(self, rng: np.random.Generator, kinds: Sequence[Kind], every_s: float) -> None:
        self._rng = rng
        self._kinds = list(kinds)
        self._every_s = every_s

    def next(self, now_s: float) -> Planned:
        """Draw the next disturbance after now."""
        gap = float(np.clip(self._rng.exponential(), _SHORTEST, _LONGEST))
        kind = self._kinds[int(self._rng.integers(len(self._kinds)))]
        hold, role, member = self._rng.random(3).tolist()
        return Planned(now_s + gap * self._every_s, kind, _LEAST_HOLD + (1 - _LEAST_HOLD) * hold, role, member)


def pick(options: Sequence[str], draw: float) -> str:
    """Pick one of several by a number from 0 to 1."""
    return options[min(int(draw * len(options)), len(options) - 1)]
