"""`Recovery`: from the end of a disturbance until the run is what it was: all are alive, and it acts and learns."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from surreal.base.system.process import process_age_s
from surreal.plugins.chaos.observing.reader import Life, Standing


class Downtime(NamedTuple):
    """Parts of the time from a kill to the first step of the next life, s."""

    backoff_s: float  #: until the launcher had started it again
    lease_s: float
    restore_s: float
    first_step_s: float


@dataclass
class Recovery:
    """One disturbance and what came after it.

    Args:
        number: among the disturbances.
        kind: kill, pause, ...
        target: name of the process or server.
        began_s: when, s since the start.
        held_s: how long it lasted, as planned, s.
        detail: more about it, for people.
        killed: id of the life that was ended; "" for none.

    Attributes:
        ended_s: when it was over; None while it lasts.
        recovered_s: when the run had recovered; None before.
        downtime: downtime of the process that was killed; None before its next life works, or where that is on another
            machine.
    """

    number: int
    kind: str
    target: str
    began_s: float
    held_s: float = 0.0
    detail: str = ""
    killed: str = ""
    ended_s: float | None = None
    recovered_s: float | None = None
    downtime: Downtime | None = None
    missing: str = field(default="", repr=False)  #: what was not there yet at the last look
    _at_end: Standing | None = field(default=None, repr=False)

    @property
    def is_over(self) -> bool:
        """Whether it has ended, and the run is itself again."""
        return self.recovered_s is not None

    @property
    def took_s(self) -> float | None:
        """Time that the run took to recover after the end of the disturbance, s."""
        return None if self.recovered_s is None or self.ended_s is None else self.recovered_s - self.ended_s

    def end(self, now_s: float, standing: Standing) -> None:
        """The disturbance is over.

        Args:
            now_s: s since the start.
            standing: standing of the run, as far as it is known now.
        """
        self.ended_s, self._at_end = now_s, standing

    def look(self, now_s: float, standing: Standing, expected: Collection[str]) -> bool:
        """Look whether the run is itself again.

        Args:
            now_s: s since the start.
            standing: standing of the run now.
            expected: names of the processes that a whole run has.
        """
        if self._at_end is None or self.is_over:
            return self.is_over
        alive = standing.alive()
        away = sorted(name for name in expected if name not in alive or alive[name].id == self.killed)
        if away:
            self.missing = f"{', '.join(away)} not back"
        elif standing.steps <= self._at_end.steps:
            self.missing = "no env step since"
        elif standing.publications <= self._at_end.publications:
            self.missing = "no new version since"
        else:
            self.missing, self.recovered_s = "", now_s
        return self.is_over

    def look_at_start(self, now_s: float, life: Life | None) -> None:
        """Take over what the next life of a killed process says about its start.

        Args:
            now_s: s since the start of the campaign.
            life: that has the name now.
        """
        if not self.killed or self.downtime is not None or life is None or life.id == self.killed:
            return
        age_s = process_age_s(life.pid) if life.is_here else None
        if life.start is not None and age_s is not None:
            self.downtime = Downtime(max(0.0, now_s - self.began_s - age_s), *life.start)

    def is_late(self, now_s: float, within_s: float) -> bool:
        """Whether it takes longer than it may."""
        return self.ended_s is not None and not self.is_over and now_s - self.ended_s > within_s
