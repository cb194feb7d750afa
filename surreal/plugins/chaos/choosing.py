"""`Chooser`: picks the target of a planned disturbance among the processes and servers that are alive."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial

from redis.exceptions import RedisError

from surreal.base.system.health import RecentDeaths
from surreal.plugins.chaos.audit import Audit
from surreal.plugins.chaos.disturbances.processes import (
    Disturbance,
    Guard,
    Kill,
    Kind,
    NotDoneError,
    Pause,
    find_process,
)
from surreal.plugins.chaos.disturbances.servers import Cut, Flush, Full, Restart
from surreal.plugins.chaos.observing import Life
from surreal.plugins.chaos.plan import ChaosOptions, Planned, pick, role_of
from surreal.plugins.chaos.subjects.subject import Keeps, Server, Subject

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
        if server.kill is None:
            raise ValueError(f"no process would start {server.name} again")
        self._deaths[server.name].add()
        return Restart(server.name, server.kill, server.start, partial(self._before_restart, server))

    def _choose_life(self, planned: Planned, hit: set[str]) -> Life | None:
        """Choose a process that may be hit, of each role equally often."""
        roles = self._options.roles_of(planned.kind)
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
        """Whether one more death would end the run."""
        return len(self._deaths[name]) >= self._subject.config.run.restart_limit

    def _look_and(self, server: Server, and_then: Callable[..., object]) -> None:
        self._audit.expect_emptying(server.client)
        self._audit.look_at(server.client, and_then)

    def _before_restart(self, server: Server) -> None:
        if server.keeps is Keeps.NEARLY_ALL:
            self._audit.expect_rollback(server.client)
        elif server.keeps is Keeps.NOTHING:
            # No process writes between the last snapshot and the end.
            server.client.execute("CLIENT", "PAUSE", _LAST_LOOK_MS, "WRITE")
            self._look_and(server, lambda _: None)

    def _pids(self) -> list[int]:
        return [life.pid for life in self._audit.standing.lives if life.is_here and life.is_alive]
