"""Invariants of versions and scores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from surreal.plugins.chaos.invariants.verdict import Complaints, Verdict
from surreal.plugins.chaos.observing import Life, PolicySight


class Versions:
    """The versions of all policies of a run.

    Attributes:
        publications: number of publications over all epochs; it only grows.
        epochs: epochs of the parameters.
    """

    def __init__(self) -> None:
        self.broken = Complaints()
        self.publications = 0
        self.epochs: set[str] = set()
        self.newest = 0
        self.lives = 0
        self._seen: dict[tuple[str, str], tuple[int, str]] = {}
        self._held: dict[str, tuple[int, int]] = {}

    def look(self, sights: Iterable[PolicySight]) -> None:
        """Compare the published versions with the earlier ones."""
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

    def hear(self, lives: Iterable[Life]) -> None:
        """Compare the versions of processes with their earlier ones."""
        for life in lives:
            held, epochs = self._held.get(life.id, (0, len(self.epochs)))
            if life.version < held and epochs == len(self.epochs):
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
    return Verdict("evaluation continues", _evidence(returns, before, last_at), tuple(violations))


def _evidence(returns: Sequence[float], before: int, last_at: int) -> str:
    text = f"{len(returns)} rounds, {len(returns) - last_at} of them after the last disturbance"
    known = [value for value in returns if math.isfinite(value)]
    if not known:
        return text
    first = [value for value in returns[:before] if math.isfinite(value)][-1:] or known[:1]
    return f"{text}; mean return {first[0]:.1f} before the first, at best {max(known):.1f}, {known[-1]:.1f} at the end"
