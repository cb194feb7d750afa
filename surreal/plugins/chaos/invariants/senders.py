"""`Acknowledgements`: what agents were told is stored, against what the streams held.

Each life of an agent counts what was acknowledged and tells it in its heartbeats, which are never ahead of Redis. So
whoever reads the heartbeats first, and then the streams, must find at least as much there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from surreal.plugins.chaos.invariants.verdict import Complaints
from surreal.plugins.chaos.observing.sights import Life


class Acknowledgements:
    """Those of all lives of all agents.

    Args:
        is_new: whether the run began while it is watched; otherwise what lives say in `settle` is where they begin.
    """

    def __init__(self, *, is_new: bool = True) -> None:
        self.lost = Complaints()
        self.dropped_chunks = 0
        self._is_settled = is_new
        self._first: dict[str, tuple[int, int]] = {}
        self._newest: dict[str, tuple[int, int, int]] = {}

    @property
    def lives(self) -> int:
        """How many senders had something acknowledged."""
        return sum(chunks > 0 for chunks, _ in self._since())

    @property
    def chunks(self) -> int:
        """Acknowledged while watched, as the agents say."""
        return sum(chunks for chunks, _ in self._since())

    @property
    def steps(self) -> int:
        """The same in env steps."""
        return sum(steps for _, steps in self._since())

    def hear(self, lives: Iterable[Life]) -> None:
        """Take what heartbeats say."""
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
        """From now on, what lives say counts; what they have said is where they begin."""
        self._is_settled = True

    def compare(self, chunks: int, steps: int) -> None:
        """Compare with what the streams have taken since the watching began, read after the heartbeats."""
        if self._is_settled and (self.chunks > chunks or self.steps > steps):
            self.lost.add(
                f"agents were told that {self.chunks} chunks of {self.steps} env steps are stored; "
                f"the streams had {chunks} of {steps}"
            )

    def _since(self) -> Iterator[tuple[int, int]]:
        """Chunks and env steps of each life since the watching began."""
        for life, (chunks, steps, _) in self._newest.items():
            first_chunks, first_steps = self._first.get(life, (0, 0))
            yield chunks - first_chunks, steps - first_steps
