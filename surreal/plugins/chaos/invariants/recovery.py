"""`Recovery`: the time from the end of a disturbance until all processes are alive and the run acts and learns."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from surreal.base.system.process import process_age_s
from surreal.plugins.chaos.observing import Life, Standing


class Downtime(NamedTuple):
    """Parts of the time from a kill to the first step of the next life, s."""

    backoff_s: float  #: time until the launcher started it again
    lease_s: float
    restore_s: float
    first_step_s: float


@dataclass
class Recovery:
    """One disturbance and its consequences; times are s since the start."""

    number: int
    kind: str
    target: str  #: name of the process or server
    began_s: float
    held_s: float = 0.0  #: planned duration
    detail: str = ""  #: for the output
    killed: str = ""  #: id of the life that was ended; "" for none
    ended_s: float | None = None  #: None while it lasts
    recovered_s: float | None = None  #: time when the run had recovered; None before
    downtime: Downtime | None = None  #: of the killed process; None before its next life works, or if it is elsewhere
    missing: str = field(default="", repr=False)  #: missing parts of the recovery at the last look
    _at_end: Standing | None = field(default=None, repr=False)

    @property
    def is_over(self) -> bool:
        """Whether it has ended, and the run has recovered."""
        return self.recovered_s is not None

    @property
    def took_s(self) -> float | None:
        """Time that the run took to recover after the end of the disturbance, s."""
        return None if self.recovered_s is None or self.ended_s is None else self.recovered_s - self.ended_s

    def end(self, now_s: float, standing: Standing) -> None:
        """Record the end of the disturbance, and the run's progress at that time."""
        self.ended_s, self._at_end = now_s, standing

    def look(self, now_s: float, standing: Standing, expected: Collection[str]) -> bool:
        """Return whether the run has recovered; `expected` are the names of its processes."""
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
        """Compute the downtime of a killed process from the start of its next life."""
        if not self.killed or self.downtime is not None or life is None or life.id == self.killed:
            return
        age_s = process_age_s(life.pid) if life.is_here else None
        if life.start is not None and age_s is not None:
            self.downtime = Downtime(max(0.0, now_s - self.began_s - age_s), *life.start)

    def is_late(self, now_s: float, within_s: float) -> bool:
        """Whether the recovery takes too long."""
        return self.ended_s is not None and not self.is_over and now_s - self.ended_s > within_s
