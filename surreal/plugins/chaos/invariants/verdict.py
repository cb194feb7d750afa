"""Verdicts of invariants, and the invariants of what senders report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from surreal.plugins.chaos.observing import Life

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
        """Return the sentences."""
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
        """Read the counts in heartbeats."""
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
