"""Verdicts of invariants, and the invariants of what senders report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from surreal.plugins.chaos.observing import Life

#: Number of violations that are listed for each invariant; the others are counted.
_MOST = 20


@dataclass(frozen=True)
class Verdict:
    """The verdict on one invariant.

    Attributes:
        name: the promise.
        evidence: the counts that were compared.
        violations: a sentence for each violation.
        not_promised: losses without a promise, such as those of an emptied Redis.
    """

    name: str
    evidence: str
    violations: tuple[str, ...] = ()
    not_promised: tuple[str, ...] = ()

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

    @property
    def lives(self) -> int:
        """Number of senders with an acknowledged chunk."""
        return sum(chunks > 0 for chunks, _ in self._since())

    @property
    def chunks(self) -> int:
        """Number of chunks that were acknowledged while watched, as reported by the agents."""
        return sum(chunks for chunks, _ in self._since())

    @property
    def steps(self) -> int:
        """The same in env steps."""
        return sum(steps for _, steps in self._since())

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
        if self._is_settled and (self.chunks > chunks or self.steps > steps):
            self.lost.add(
                f"agents were told that {self.chunks} chunks of {self.steps} env steps are stored; "
                f"the streams had {chunks} of {steps}"
            )

    def _since(self) -> Iterator[tuple[int, int]]:
        """Yield chunks and env steps of each life since the watching began."""
        for life, (chunks, steps, _) in self._newest.items():
            first_chunks, first_steps = self._first.get(life, (0, 0))
            yield chunks - first_chunks, steps - first_steps
