"""`Campaign`: disturbs a run by a plan, watches it meanwhile, and heals it.

One thread takes several turns a second: it reads the run, continues the disturbances that last, and begins the one that
is due. However it ends, no process stays paused, and no Redis stays full or down.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np

from surreal.base.errors import SurrealError
from surreal.plugins.chaos.audit import Audit
from surreal.plugins.chaos.disturbances.processes import Disturbance, Guard, Kind, NotDoneError
from surreal.plugins.chaos.plan import ROLES, ChaosOptions, Chooser, Plan, Planned
from surreal.plugins.chaos.subject import Subject
from surreal.plugins.chaos.verdicts import Complaints, Recovery, Verdict

logger = logging.getLogger(__name__)

_TURN_S = 0.1
#: Time limit for a run to start, or to show that it continues, s.
_WHOLE_WITHIN_S = 180.0


class _Active(NamedTuple):
    """A disturbance that lasts."""

    disturbance: Disturbance
    recovery: Recovery
    until_s: float


class Campaign:
    """Disturbs one run."""

    def __init__(
        self,
        subject: Subject,
        options: ChaosOptions,
        guard: Guard,
        *,
        say: Callable[[str], object],
        stop: threading.Event,
        is_over: Callable[[], str] = lambda: "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.audit = Audit(subject, clock)
        self.recoveries: list[Recovery] = []
        self.expected: frozenset[str] = frozenset()
        self._subject, self._options = subject, options
        self._chooser = Chooser(subject, options, guard, self.audit)
        self._say, self._stop, self._is_over, self._clock = say, stop, is_over, clock
        self._began_s = clock()
        self._active: list[_Active] = []
        self._late: set[int] = set()
        self._complaints = Complaints()

    @property
    def now_s(self) -> float:
        """Time since the first disturbance could come, s."""
        return self._clock() - self._began_s

    def wait_until_whole(self) -> None:
        """Wait until every process of the run is alive, acts and learns."""
        config = self._subject.config
        wanted = {role.process_name(number) for role in ROLES for number in range(role.count(config))}
        deadline_s = self._clock() + _WHOLE_WITHIN_S
        while not self._stop.is_set():
            self.audit.look()
            standing = self.audit.standing
            names = set(standing.alive())
            missing = sorted(wanted - names) if self._subject.is_new else []
            if not missing and standing.steps and standing.publications > 1:
                self.expected = frozenset(names)
                return
            if reason := self._is_over():
                raise SurrealError(f"{self._subject.title} has ended before it could be disturbed: {reason}")
            if self._clock() > deadline_s:
                what = f"{', '.join(missing)} missing" if missing else "it does not act and learn"
                raise SurrealError(f"{self._subject.title} is not whole after {_WHOLE_WITHIN_S:.0f} s: {what}")
            self._stop.wait(_TURN_S)

    def disturb(self) -> None:
        """Disturb the run for the requested time, then wait until it has recovered; heal it in any case."""
        options = self._options
        self._began_s = self._clock()
        plan = Plan(np.random.default_rng(options.seed), options.kinds, options.every_s)
        planned = plan.next(0.0)
        try:
            while not self._stop.is_set() and not self._is_over():
                is_done = self.now_s >= options.for_s or len(self.recoveries) == options.most
                if is_done and not self._active:
                    break
                self._turn()
                if not is_done and planned.at_s <= self.now_s and self._begin(planned):
                    planned = plan.next(self.now_s)
                self._stop.wait(_TURN_S)
        finally:
            with ExitStack() as stack:  # ends all of them even if one raises
                for active in self._active:
                    stack.callback(self._end, active)
        while any(not each.is_over and not each.is_late(self.now_s, options.within_s) for each in self.recoveries):
            if self._stop.is_set() or self._is_over():
                break
            self._turn()
            self._stop.wait(_TURN_S)

    def wait_for(self, condition: Callable[[], bool]) -> bool:
        """Watch the run until a condition is true or `within_s` have passed; return whether it is true."""
        deadline_s = self._clock() + self._options.within_s
        while not condition():
            if self._stop.is_set() or self._is_over() or self._clock() > deadline_s:
                return False
            self._turn()
            self._stop.wait(_TURN_S)
        return True

    def verdict(self) -> Verdict:
        took = [recovery.took_s for recovery in self.recoveries if recovery.took_s is not None]
        text = f"{len(took)} of {len(self.recoveries)} times all processes were back, acted and learned again"
        if took:
            text += f", within {max(took):.1f} s (allowed: {self._options.within_s:g})"
        standing = self.audit.standing
        text += f"; {standing.steps:,} env steps, {standing.publications:,} versions meanwhile"
        return Verdict("learning continues", text, self._complaints.all())

    # -- a turn ------------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        for active in list(self._active):
            if self.now_s >= active.until_s:
                self._end(active)
            else:
                active.disturbance.turn()
        if not self.audit.look():
            return
        hit, alive = self._hit(), self.audit.standing.alive()
        for recovery in self.recoveries:
            recovery.look_at_start(self.now_s, alive.get(recovery.target))
            # Processes that other disturbances have hit come back later.
            expected = self.expected - (hit - {recovery.target})
            if not recovery.is_over and recovery.look(self.now_s, self.audit.standing, expected):
                took = f"after {recovery.took_s:.1f} s" if recovery.took_s else "at once"
                self._say(f"{self.now_s:7.1f} s  {recovery.number:3}  recovered {took}")
            if recovery.is_late(self.now_s, self._options.within_s) and recovery.number not in self._late:
                self._late.add(recovery.number)
                within = f"within {self._options.within_s:g} s"
                self._complaints.add(
                    f"after disturbance {recovery.number} ({recovery.kind} {recovery.target}) the run did not recover "
                    f"{within}: {recovery.missing or 'Redis did not answer'}"
                )

    def _end(self, active: _Active) -> None:
        self._active.remove(active)
        active.disturbance.end()
        active.recovery.detail = active.disturbance.detail
        active.recovery.end(self.now_s, self.audit.standing)
        self._say(f"{self.now_s:7.1f} s  {active.recovery.number:3}  end of {_words(active.recovery)}")

    # -- what is due -------------------------------------------------------------------------------------------------

    def _begin(self, planned: Planned) -> bool:
        """Begin the disturbance that is due; return false if it has no target now, and must be tried again."""
        is_redis_hit = any(active.disturbance.kind not in (Kind.KILL, Kind.PAUSE) for active in self._active)
        found = self._chooser.choose(planned, self._hit(), is_redis_hit=is_redis_hit)
        if found is None:
            return False
        disturbance, killed = found
        hold_s = planned.hold * self._options.hold_s if disturbance.lasts else 0.0
        try:
            disturbance.begin()
        except NotDoneError as error:
            logger.debug("%s of %s was not done: %s", disturbance.kind, disturbance.target, error)
            return False
        now_s = self.now_s
        recovery = Recovery(
            len(self.recoveries) + 1, disturbance.kind, disturbance.target, now_s, hold_s, disturbance.detail, killed
        )
        self.recoveries.append(recovery)
        self._say(f"{now_s:7.1f} s  {recovery.number:3}  {_words(recovery)}")
        if disturbance.lasts:
            self._active.append(_Active(disturbance, recovery, now_s + hold_s))
        else:
            recovery.end(now_s, self.audit.standing)
        return True

    def _hit(self) -> set[str]:
        """Return the processes that are paused, or were killed and are not back."""
        killed = {recovery.target for recovery in self.recoveries if recovery.killed and not recovery.is_over}
        return killed | {active.recovery.target for active in self._active}


def _words(recovery: Recovery) -> str:
    text = f"{recovery.kind} {recovery.target}"
    if recovery.held_s and recovery.ended_s is None:
        text += f" for {recovery.held_s:.1f} s"
    return text + (f" ({recovery.detail})" if recovery.detail else "")
