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
    """Gathers violations, each once; more than a person reads are only counted."""

    def __init__(self) -> None:
        self._texts: dict[str, None] = {}

    def __bool__(self) -> bool:
        return bool(self._texts)

    def add(self, text: str) -> None:
        self._texts[text] = None

    def extend(self, texts: Iterable[str]) -> None:
        self._texts.update(dict.fromkeys(texts))

    def all(self) -> tuple[str, ...]:
        """The sentences."""
        texts = list(self._texts)
        left = len(texts) - _MOST
        return (*texts[:_MOST], *([f"and {left} more of the kind"] if left > 0 else []))
