"""When disturbances happen and which kind: options, and the plan drawn from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from surreal.base.errors import ConfigError
from surreal.plugins.chaos.disturbances.processes import REDIS_KINDS, Kind
from surreal.run.process.roles import AGENT, EVAL, LEARNER, PARAMETER_SERVER, RLX_SERVER, Role

#: Those that have a heartbeat, by which their processes are found.
ROLES: tuple[Role, ...] = (LEARNER, PARAMETER_SERVER, AGENT, RLX_SERVER, EVAL)
ALL = "all"


@dataclass(frozen=True)
class ChaosOptions:
    """Options of the disturbances.

    Args:
        kinds: what is done; each time one of them is drawn.
        kill_roles: roles whose processes may be killed.
        pause_roles: roles whose processes may be stopped for a while.
        for_s: how long disturbances come, s.
        most: most of them; None: as many as there is time for.
        every_s: mean time from one to the next, s.
        hold_s: how long a pause, a cut, a full or an absent Redis lasts at most, s.
        within_s: how long the run may take after each to be itself again, s.
        seed: seed of all that is drawn.
        is_default: whether nothing was asked for by name, so that what is not possible, or would lose experience, is
            left out.
    """

    kinds: tuple[Kind, ...]
    kill_roles: frozenset[str] = frozenset()
    pause_roles: frozenset[str] = frozenset()
    for_s: float = 60.0
    most: int | None = None
    every_s: float = 6.0
    hold_s: float = 3.0
    within_s: float = 60.0
    seed: int = 0
    is_default: bool = False

    def roles_of(self, kind: Kind) -> frozenset[str]:
        """Roles whose processes a kind disturbs; empty: the kind does not disturb processes."""
        return {Kind.KILL: self.kill_roles, Kind.PAUSE: self.pause_roles}.get(kind, frozenset())


def read_kinds(
    kill: Sequence[str], pause: Sequence[str], redis: Sequence[str], *, cuts: bool
) -> tuple[tuple[Kind, ...], frozenset[str], frozenset[str]]:
    """Read the words of the command line: kinds, roles to be killed, roles to be paused.

    Without any, processes are killed and paused, connections cut, and Redis is restarted.

    Raises:
        ConfigError: a word is none of those that are known.
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
    """The role of a process, by its name in the run: `agent` for `agent-3`."""
    found = [role.name for role in ROLES if name == role.name or name.startswith(f"{role.name}-")]
    return found[0] if found else ""


#: A gap is drawn from an exponential distribution, and kept within these multiples of its mean.
_SHORTEST, _LONGEST = 0.2, 3.0
_LEAST_HOLD = 0.2


class Planned(NamedTuple):
    """One disturbance that is to come."""

    at_s: float  #: since the first may come, s
    kind: Kind
    hold: float  #: how long it lasts, 0.2 .. 1 of the most
    role: float  #: which of the roles it hits, 0 .. 1
    member: float  #: which of those of the role, or of the servers, 0 .. 1


class Plan:
    """Draws disturbances, one after the other.

    Args:
        rng: that draws.
        kinds: each as likely as the others.
        every_s: mean time between two, s.
    """

    def __init__(self, rng: np.random.Generator, kinds: Sequence[Kind], every_s: float) -> None:
        self._rng = rng
        self._kinds = list(kinds)
        self._every_s = every_s

    def next(self, now_s: float) -> Planned:
        """The next one, counted from now, s."""
        gap = float(np.clip(self._rng.exponential(), _SHORTEST, _LONGEST))
        kind = self._kinds[int(self._rng.integers(len(self._kinds)))]
        hold, role, member = self._rng.random(3).tolist()
        return Planned(now_s + gap * self._every_s, kind, _LEAST_HOLD + (1 - _LEAST_HOLD) * hold, role, member)


def pick(options: Sequence[str], draw: float) -> str:
    """One of several, in their order, by a number from 0 to 1."""
    return options[min(int(draw * len(options)), len(options) - 1)]
