"""A model of RLX servers and their sessions: how long sessions wait, and how they reach new servers.

Each session asks for an action, waits for it, and thinks. A server answers all waiting sessions in one batch, which
takes a fixed time plus a little for each row. So a server with spare time answers at once, and an overloaded one makes
sessions wait in proportion to their number. A session stays with its server until it has reached a certain age; then
the server ends it after an episode.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Serving:
    """The parameters of servers and sessions.

    Attributes:
        think_s: Time of a session between an action and its next request.
        batch_s: Fixed time of a batch of answers.
        row_s: Additional time for each answer.
        reconnect_s: Mean age at which a server ends a session (rlx.timeout_s, plus the rest of its episode).
        start_s: Time from the decision for a new server until it accepts sessions.
    """

    think_s: float = 0.05
    batch_s: float = 0.004
    row_s: float = 0.0008
    reconnect_s: float = 60.0
    start_s: float = 12.0


class Servers:
    """The servers of a run, with the metrics of `surreal metrics`.

    Args:
        serving: Parameters of servers and sessions.
        pods: Number of servers at the beginning.
        rng: Random generator that chooses servers for sessions.

    Attributes:
        now_s: Current time.
    """

    step_s = 1.0

    def __init__(self, serving: Serving, *, pods: int, rng: np.random.Generator) -> None:
        self.now_s = 0.0
        self._serving = serving
        self._rng = rng
        self._ready_s = [0.0] * pods
        self._sessions = [0] * pods

    @property
    def pods(self) -> int:
        """The number of requested servers."""
        return len(self._ready_s)

    @property
    def ready(self) -> int:
        """The number of servers that accept sessions."""
        return sum(at_s <= self.now_s for at_s in self._ready_s)

    @property
    def sessions(self) -> int:
        """The total over all servers."""
        return sum(self._sessions)

    @property
    def answer_s(self) -> float:
        """The mean wait of a session."""
        waits = [self._wait_s(count) * count for count in self._sessions]
        return sum(waits) / max(1, self.sessions)

    def scale(self, pods: int) -> None:
        """Start servers, or end the youngest, whose sessions go to the others."""
        homeless = sum(self._sessions[pods:])
        del self._ready_s[pods:], self._sessions[pods:]
        for _ in range(pods - len(self._ready_s)):
            self._ready_s.append(self.now_s + self._serving.start_s)
            self._sessions.append(0)
        self._place(homeless)

    def connect(self, sessions: int) -> None:
        """Add sessions, or remove them if the number is negative."""
        if sessions > 0:
            self._place(sessions)
        if sessions < 0:
            gone = self._rng.multivariate_hypergeometric(self._sessions, -sessions)
            self._sessions = [count - left for count, left in zip(self._sessions, gone.tolist(), strict=True)]

    def figures(self) -> Mapping[str, float]:
        """Return the values that `surreal metrics` would export now."""
        found = {"surreal_rlx_sessions": float(self.sessions)}
        return {**found, "surreal_rlx_queue_seconds": self.answer_s} if self.sessions else found

    def step(self) -> None:
        """Advance the simulation by one step."""
        away = self._rng.binomial(self._sessions, self.step_s / self._serving.reconnect_s)
        self._sessions = [count - gone for count, gone in zip(self._sessions, away.tolist(), strict=True)]
        self._place(int(away.sum()))
        self.now_s += self.step_s

    def _place(self, sessions: int) -> None:
        ready = [place for place, at_s in enumerate(self._ready_s) if at_s <= self.now_s]
        came = self._rng.multinomial(sessions, [1 / len(ready)] * len(ready))
        for place, count in zip(ready, came.tolist(), strict=True):
            self._sessions[place] += count

    def _wait_s(self, sessions: int) -> float:
        """Return the wait for an answer, which is longer if other sessions come first."""
        serving = self._serving
        return max(serving.batch_s + serving.row_s, serving.batch_s + serving.row_s * sessions - serving.think_s)
