"""`Versions`: published versions only rise, and each is one publication; what processes hold only rises, too.

Order is (epoch, version): where Redis was emptied the epoch is another one, and versions may begin lower.
"""

from __future__ import annotations

from collections.abc import Iterable

from surreal.plugins.chaos.invariants.verdict import Complaints
from surreal.plugins.chaos.observing.sights import Life, PolicySight


class Versions:
    """Those of all policies of a run.

    Attributes:
        publications: seen, over all epochs; only grows.
        epochs: of the parameters.
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
        """Compare what is published now with what was."""
        for policy, epoch, version, publication in sights:
            before = self._seen.get((policy, epoch))
            self.epochs.add(epoch)
            if before is not None:
                if version < before[0]:
                    self.broken.add(f"policy {policy}: version {version} was published after version {before[0]}")
                elif version == before[0] and publication != before[1]:
                    self.broken.add(f"policy {policy}: version {version} was published twice")
            if before is None or (version, publication) != before:
                # Those between two looks count as well.
                self.publications += max(version - before[0], 1) if before is not None else 1
            self._seen[policy, epoch] = (version, publication)
            self.newest = max(self.newest, version)

    def hear(self, lives: Iterable[Life]) -> None:
        """Compare the versions that processes hold with those that they held."""
        for life in lives:
            held, epochs = self._held.get(life.id, (0, len(self.epochs)))
            if life.version < held and epochs == len(self.epochs):
                self.broken.add(f"{life.name} (process {life.pid}) went back from version {held} to {life.version}")
            self._held[life.id] = (life.version, len(self.epochs))
        self.lives = len(self._held)
