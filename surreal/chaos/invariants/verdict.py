"""`Verdict`: one invariant, whether it held, and by which counts one knows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

#: Of one invariant, so many of its violations are told; the others are counted.
_MOST = 20


@dataclass(frozen=True)
class Verdict:
    """One invariant.

    Attributes:
        name: what is promised.
        evidence: the counts that were compared.
        violations: a sentence for each time that it was broken.
        not_promised: what happened that nobody promised to prevent, such as the losses of an emptied Redis.
    """

    name: str
    evidence: str
    violations: tuple[str, ...] = ()
    not_promised: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        return not self.violations


class Complaints:
    """Gathers violations, each once, and not more than a person reads."""

    def __init__(self) -> None:
        self._texts: dict[str, None] = {}
        self._number = 0

    def __bool__(self) -> bool:
        return self._number > 0

    def add(self, text: str) -> None:
        if text in self._texts:
            return
        self._number += 1
        if self._number <= _MOST:
            self._texts[text] = None

    def extend(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.add(text)

    def all(self) -> tuple[str, ...]:
        """The sentences."""
        left = self._number - len(self._texts)
        return (*self._texts, *([f"and {left} more of the kind"] if left else []))
