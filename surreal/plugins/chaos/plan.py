"""Options of the disturbances, the plan of times and kinds, drawn from a seed, and the targets that are alive."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from redis.exceptions import RedisError

from surreal.base.errors import ConfigError
from surreal.base.system.health import RecentDeaths
from surreal.distributed.connection.client import RedisClient
from surreal.plugins.chaos.audit import Audit
from surreal.plugins.chaos.disturbances.failover import Failover
from surreal.plugins.chaos.disturbances.processes import (
    MACHINE_KINDS,
    REDIS_KINDS,
    Disturbance,
    Guard,
    Kill,
    Kind,
    NotDoneError,
    Pause,
    Starve,
    find_process,
)
from surreal.plugins.chaos.disturbances.servers import ClockOrDisk, Cut, Flush, Full, Restart, Shrink
from surreal.plugins.chaos.observing import Life
from surreal.plugins.chaos.subject import Keeps, Server, Subject
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


def read_kinds(
    kill: Sequence[str], pause: Sequence[str], redis: Sequence[str], machine: Sequence[str] = (), *, cuts: bool
) -> tuple[tuple[Kind, ...], frozenset[str], frozenset[str]]:
    """Read the options of the command line, and return kinds, roles to kill, and roles to pause.

    Without any, processes are killed and paused, connections cut, and Redis is restarted.
    """
    if not (kill or pause or redis or machine or cuts):
        kill, pause, redis, cuts = [ALL], [ALL], [Kind.RESTART], True
    kill_roles, pause_roles = _roles(kill, "--kill"), _roles(pause, "--pause")
    asked = [*_words(redis, "--redis", REDIS_KINDS), *_words(machine, "--machine", MACHINE_KINDS)]
    kinds = [
        *([Kind.KILL] if kill_roles else []),
        *([Kind.PAUSE] if pause_roles else []),
        *([Kind.CUT] if cuts else []),
        *(kind for kind in (*REDIS_KINDS, *MACHINE_KINDS) if kind in asked),
    ]
    return tuple(kinds), kill_roles, pause_roles


def _roles(texts: Sequence[str], option: str) -> frozenset[str]:
    known = [role.name for role in ROLES]
    words = _words(texts, option, (*known, ALL))
    return frozenset(known if ALL in words else words)


def _words(texts: Sequence[str], option: str, known: Sequence[str]) -> list[str]:
    words = [word for text in texts for word in text.split(",")]
    for word in words:
        if word not in known:
            raise ConfigError(f"{option} is {word!r}; it must be {', '.join(known[:-1])} or {known[-1]}", key=option)
    return words


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
        gap = float(np.clip(self._rng.exponential(), _SHORTEST, _LONGEST))
        kind = self._kinds[int(self._rng.integers(len(self._kinds)))]
        hold, role, member = self._rng.random(3).tolist()
        return Planned(now_s + gap * self._every_s, kind, _LEAST_HOLD + (1 - _LEAST_HOLD) * hold, role, member)


def pick(options: Sequence[str], draw: float) -> str:
    """Pick one of several by a number from 0 to 1."""
    return options[min(int(draw * len(options)), len(options) - 1)]


#: Time that writes are blocked while a server is read for the last time, ms.
_LAST_LOOK_MS = 2000


class Chooser:
    """Makes planned disturbances; the audit learns which data will be lost, and which processes must end."""

    def __init__(self, subject: Subject, options: ChaosOptions, guard: Guard, audit: Audit) -> None:
        self._subject, self._options, self._guard, self._audit = subject, options, guard, audit
        self._deaths: defaultdict[str, RecentDeaths] = defaultdict(RecentDeaths)

    def choose(self, planned: Planned, hit: set[str], *, is_redis_hit: bool) -> tuple[Disturbance, str] | None:
        """Return the disturbance and the life that it ends; None if no target is alive now.

        What is already disturbed is left alone: processes in `hit`, and Redis if `is_redis_hit`.
        """
        kind = planned.kind
        if kind in (Kind.KILL, Kind.PAUSE):
            life = self._choose_life(planned, hit)
            if life is None:
                return None
            if kind is Kind.PAUSE:
                return Pause(life, self._guard), ""
            try:
                self._audit.processes.note(find_process(life))  # its child processes must end with it
            except NotDoneError:
                return None
            self._deaths[life.name].add()
            return Kill(life), life.id
        if kind is Kind.MEMORY:  # the launcher, which starts the others again, is spared
            lives = [life for life in self._audit.standing.lives if life.is_alive and role_of(life.name)]
            return None if is_redis_hit else (Starve(lives), "")
        if kind in MACHINE_KINDS:
            machine = self._subject.machine
            return None if is_redis_hit or machine is None else (ClockOrDisk(kind, machine), "")
        server = None if is_redis_hit else self._choose_server(planned)
        return None if server is None else (self._disturbance(kind, server), "")

    def _disturbance(self, kind: Kind, server: Server) -> Disturbance:
        client = server.client
        if kind is Kind.CUT:
            return Cut(server.name, client, is_exclusive=server.is_exclusive, pids=self._pids)
        if kind is Kind.FLUSH:
            return Flush(server.name, client, partial(self._look_and, server))
        if kind is Kind.FULL:
            return Full(server.name, client, self._options.hold_s)
        if kind is Kind.SHRINK:
            return Shrink(server.name, client)
        if kind is Kind.FAILOVER and server.replicas is not None:
            return Failover(server.name, server.replicas, partial(self._before_failover, server))
        if server.kill is None:
            raise ValueError(f"no process would start {server.name} again")
        self._deaths[server.name].add()
        return Restart(server.name, server.kill, server.start, partial(self._before_restart, server))

    def _choose_life(self, planned: Planned, hit: set[str]) -> Life | None:
        """Choose a process that may be hit, of each role equally often."""
        roles = self._options.kill_roles if planned.kind is Kind.KILL else self._options.pause_roles
        by_role: dict[str, dict[str, Life]] = {}
        for name, life in sorted(self._audit.standing.alive().items()):
            is_spent = planned.kind is Kind.KILL and self._is_spent(name)
            if role_of(name) in roles and life.is_here and name not in hit and not is_spent:
                by_role.setdefault(role_of(name), {})[name] = life
        if not by_role:
            return None
        members = by_role[pick(sorted(by_role), planned.role)]
        return members[pick(list(members), planned.member)]

    def _choose_server(self, planned: Planned) -> Server | None:
        try:
            servers = {each.name: each for each in self._subject.servers if not each.refusal(planned.kind)}
        except RedisError:  # it is away
            return None
        if planned.kind is Kind.RESTART:
            servers = {name: server for name, server in servers.items() if not self._is_spent(name)}
        return servers[pick(list(servers), planned.member)] if servers else None

    def _is_spent(self, name: str) -> bool:
        return len(self._deaths[name]) >= self._subject.config.run.restart_limit

    def _look_and(self, server: Server, and_then: Callable[..., object]) -> None:
        self._audit.expect_emptying(server.client)
        self._audit.look_at(server.client, and_then)

    def _before_restart(self, server: Server) -> None:
        if server.keeps is Keeps.NEARLY_ALL:
            self._audit.expect_rollback(server.client)
        elif server.keeps is Keeps.NOTHING:
            self._stop_writes(server)
            self._look_and(server, lambda _: None)

    def _before_failover(self, server: Server, replica: RedisClient) -> None:
        self._stop_writes(server)
        self._audit.look_at(server.client)
        self._audit.expect_failover(server.client, replica)

    def _stop_writes(self, server: Server) -> None:
        """Stop all writes, so that none comes between the last snapshot and the end of a server."""
        server.client.execute("CLIENT", "PAUSE", _LAST_LOOK_MS, "WRITE")

    def _pids(self) -> list[int]:
        return [life.pid for life in self._audit.standing.lives if life.is_here and life.is_alive]
