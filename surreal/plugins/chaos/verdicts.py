"""Verdicts of invariants: what senders report, versions and scores that rise, and recovery from each disturbance.

They are pure functions from snapshots to sentences about violations.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from surreal.base.system.process import process_age_s
from surreal.plugins.chaos.observing import Life, PolicySight, Standing

#: Names of the invariants whose violations a table of tests counts.
LOST, DOUBLED = "nothing acknowledged is lost", "nothing is doubled"
#: Number of violations that are listed for each invariant; the others are counted.
_MOST = 20


@dataclass(frozen=True)
class Verdict:
    """The verdict on one invariant."""

    name: str  #: the promise
    evidence: str  #: the counts that were compared
    violations: tuple[str, ...] = ()  #: a sentence for each
    not_promised: tuple[str, ...] = ()  #: losses without a promise, such as those of an emptied Redis

    @property
    def holds(self) -> bool:
        return not self.violations


class Complaints:
    """Collects violations, each once; beyond a limit they are only counted."""

    def __init__(self) -> None:
        self._texts: dict[str, None] = {}

    def __bool__(self) -> bool:
        return bool(self._texts)

    def add(self, text: str) -> None:
        self._texts[text] = None

    def extend(self, texts: Iterable[str]) -> None:
        self._texts.update(dict.fromkeys(texts))

    def all(self) -> tuple[str, ...]:
        texts = list(self._texts)
        left = len(texts) - _MOST
        return (*texts[:_MOST], *([f"and {left} more of the kind"] if left > 0 else []))


class Acknowledgements:
    """The acknowledged chunks of all lives of all agents.

    Args:
        is_new: whether the run began while it is watched; otherwise counting begins at `settle`.
    """

    def __init__(self, *, is_new: bool = True) -> None:
        self.lost = Complaints()
        self.dropped_chunks = 0
        self._is_settled = is_new
        self._first: dict[str, tuple[int, int]] = {}
        self._newest: dict[str, tuple[int, int, int]] = {}

    def counts(self) -> tuple[int, int, int]:
        """Return senders with an acknowledged chunk, and the chunks and env steps acknowledged while watched."""
        found = []
        for life, (chunks, steps, _) in self._newest.items():
            first_chunks, first_steps = self._first.get(life, (0, 0))
            found.append((chunks > first_chunks, chunks - first_chunks, steps - first_steps))
        lives, chunks, steps = (sum(column) for column in zip(*found, strict=True)) if found else (0, 0, 0)
        return lives, chunks, steps

    def hear(self, lives: Iterable[Life]) -> None:
        for life in lives:
            chunks, steps, dropped = self._newest.get(life.id, (0, 0, 0))
            self._newest[life.id] = (
                max(chunks, life.acknowledged_chunks),
                max(steps, life.acknowledged_steps),
                max(dropped, life.dropped_chunks),
            )
        if not self._is_settled:
            self._first = {life: (chunks, steps) for life, (chunks, steps, _) in self._newest.items()}
        self.dropped_chunks = sum(dropped for _, _, dropped in self._newest.values())

    def settle(self) -> None:
        """Begin to count from the current reports."""
        self._is_settled = True

    def compare(self, chunks: int, steps: int) -> None:
        """Compare with the chunks and steps in the streams since the watching began, read after the heartbeats."""
        _, told_chunks, told_steps = self.counts()
        if self._is_settled and (told_chunks > chunks or told_steps > steps):
            self.lost.add(
                f"agents were told that {told_chunks} chunks of {told_steps} env steps are stored; "
                f"the streams had {chunks} of {steps}"
            )


class Versions:
    """The versions of all policies of a run."""

    def __init__(self) -> None:
        self.broken = Complaints()
        self.returned = 0  # times that a process had an older version after a rollback
        self.publications = 0  #: number of publications over all epochs; it only grows
        self.epochs: set[str] = set()  #: epochs of the parameters
        self.newest = 0
        self.lives = 0
        self._seen: dict[tuple[str, str], tuple[int, str]] = {}
        self._held: dict[str, tuple[int, int]] = {}
        self._lost_until = -1  # the newest version before the last rollback

    def look(self, sights: Iterable[PolicySight]) -> None:
        for policy, epoch, version, publication in sights:
            before = self._seen.get((policy, epoch))
            self.epochs.add(epoch)
            if before is not None:
                if version < before[0]:
                    self.broken.add(f"policy {policy}: version {version} was published after version {before[0]}")
                elif version == before[0] and publication != before[1]:
                    self.broken.add(f"policy {policy}: version {version} was published twice")
            if before is None or (version, publication) != before:
                # Publications between two looks count too.
                self.publications += max(version - before[0], 1) if before is not None else 1
            self._seen[policy, epoch] = (version, publication)
            self.newest = max(self.newest, version)

    def expect_rollback(self) -> None:
        """Expect older publications and heartbeats: Redis may lose the newest ones now."""
        self._seen.clear()
        self._lost_until = self.newest

    def not_promised(self) -> tuple[str, ...]:
        """Describe the consequences of a rollback."""
        if not self.returned:
            return ()
        return (f"{self.returned} times a process had an older version after a replica had taken over",)

    def hear(self, lives: Iterable[Life]) -> None:
        """Compare the versions of processes with their earlier ones."""
        for life in lives:
            held, epochs = self._held.get(life.id, (0, len(self.epochs)))
            if life.version < held and epochs == len(self.epochs):
                if held <= self._lost_until:
                    self.returned += 1
                else:
                    self.broken.add(f"{life.name} (process {life.pid}) went back from version {held} to {life.version}")
            self._held[life.id] = (life.version, len(self.epochs))
        self.lives = len(self._held)


def judge_scores(rounds: Sequence[Mapping[str, Any]], *, before: int, last_at: int, may_go_back: bool) -> Verdict:
    """Judge the rounds of an evaluation, lines of `scores.jsonl` in their order.

    `before` is their number before the first disturbance, `last_at` when the last one ended. Versions may go back after
    Redis was emptied.
    """
    violations = []
    numbers = [int(line["round"]) for line in rounds]
    if any(after != before + 1 for before, after in pairwise(numbers)):
        text = ", ".join(map(str, numbers))
        text = text if len(text) < 120 else f"{text[:60]} ... {text[-50:]}"
        violations.append(f"rounds are numbered {text}, not one after the other")
    versions = [int(line["version"]) for line in rounds]
    if versions != sorted(versions) and not may_go_back:
        place = next(i for i in range(1, len(versions)) if versions[i] < versions[i - 1])
        violations.append(
            f"round {numbers[place]} played version {versions[place]} after version {versions[place - 1]}"
        )
    if len(rounds) <= last_at:
        violations.append("no round was played after the last disturbance")
    means = [line.get("mean_return") for line in rounds]
    returns = [float(mean) if isinstance(mean, int | float) else math.nan for mean in means]
    text = f"{len(returns)} rounds, {len(returns) - last_at} of them after the last disturbance"
    if known := [value for value in returns if math.isfinite(value)]:
        first = [value for value in returns[:before] if math.isfinite(value)][-1:] or known[:1]
        text += f"; mean return {first[0]:.1f} before the first, at best {max(known):.1f}, {known[-1]:.1f} at the end"
    return Verdict("evaluation continues", text, tuple(violations))


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
        return self.ended_s is not None and not self.is_over and now_s - self.ended_s > within_s
