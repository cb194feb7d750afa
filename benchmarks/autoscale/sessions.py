"""RLX servers and their sessions: how long these wait, and how they get to servers that are new.

Each session asks for an action, waits for it, and thinks. A server answers whoever waits in one batch, which takes a
while, and a little more for each row. So a server that is not full answers at once, and one that is keeps everyone
waiting in proportion to its sessions. Sessions stay where they are until their server sends them away, once they are
of a certain age, at the end of an episode.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Serving:
    """How servers and sessions behave.

    Attributes:
        think_s: of a session between an action and its next question.
        batch_s: of an answer, however many it is for.
        row_s: more for each.
        reconnect_s: mean age at which a session is sent away (rlx.timeout_s, and the rest of its episode).
        start_s: from the wish for a server until it takes sessions.
    """

    think_s: float = 0.05
    batch_s: float = 0.004
    row_s: float = 0.0008
    reconnect_s: float = 60.0
    start_s: float = 12.0


class Servers:
    """Servers of a run, with what `surreal metrics` says of them.

    Args:
        serving: how they behave.
        pods: at the beginning.
        rng: chooses servers for sessions.

    Attributes:
        now_s: the time.
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
        """Those that there are to be."""
        return len(self._ready_s)

    @property
    def ready(self) -> int:
        """Those that take sessions."""
        return sum(at_s <= self.now_s for at_s in self._ready_s)

    @property
    def sessions(self) -> int:
        """Of all servers."""
        return sum(self._sessions)

    @property
    def answer_s(self) -> float:
        """How long a session waits, on average."""
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
        """Sessions come, or go if the number is negative."""
        if sessions > 0:
            self._place(sessions)
        if sessions < 0:
            gone = self._rng.multivariate_hypergeometric(self._sessions, -sessions)
            self._sessions = [count - left for count, left in zip(self._sessions, gone.tolist(), strict=True)]

    def figures(self) -> Mapping[str, float]:
        """What `surreal metrics` would say now."""
        found = {"surreal_rlx_sessions": float(self.sessions)}
        return {**found, "surreal_rlx_queue_seconds": self.answer_s} if self.sessions else found

    def step(self) -> None:
        """Let a step of time pass."""
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
        """At once, or until the others have had their turn."""
        serving = self._serving
        return max(serving.batch_s + serving.row_s, serving.batch_s + serving.row_s * sessions - serving.think_s)
