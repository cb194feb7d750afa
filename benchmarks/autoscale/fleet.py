"""A learner, its limiter and its agents, second by second: what they do, what they say of it, and when that is known.

The learner consumes experience at its own speed, and agents send it at theirs; between them lies the limiter's band.
When it is empty the learner waits, when it is full the agents do. That is all that a run has to do with how many agents
there are, and how it was recorded: `Dynamics.recorded`.
"""

from __future__ import annotations

import json
import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

_RECORDING = Path(__file__).with_name("recording.json")

#: Of a step of the model, s; of what processes say shares of (`surreal.run.session.waiting`); between their reports.
STEP_S, WINDOW_S, REPORT_S = 0.25, 10.0, 1.0
#: A metrics server's mean of the CPU time, and how often it has a new one, s.
_CPU_WINDOW_S = 15.0
#: What Kubernetes takes before a container's process begins, s; its image is on the node.
_POD_START_S = 3.0


@dataclass(frozen=True)
class Dynamics:
    """How a run behaves.

    Attributes:
        agent_rate: env steps/s of an agent that never waits.
        learner_rate: env steps/s that a learner uses that never waits.
        band: half the width of the limiter's band, env steps.
        jitter: of the agents' rate, from second to second, as a share of it.
        startup_s: from the start of an agent's process to its first experience.
        cpu: cores that a busy agent takes.
    """

    agent_rate: float
    learner_rate: float
    band: float
    jitter: float
    startup_s: float
    cpu: float

    @classmethod
    def recorded(cls) -> Dynamics:
        """As it was recorded."""
        found = json.loads(_RECORDING.read_text())
        rows = found["rows"]
        starved = [row for row in rows if row["learner_waiting"] > 0.1]
        agent_rate = statistics.fmean(row["env_steps_per_s"] / row["agents"] for row in starved)
        return cls(
            agent_rate=agent_rate,
            learner_rate=agent_rate * statistics.fmean(map(agents_needed, rows)),
            band=statistics.fmean(row["band_env_steps"] for row in rows),
            jitter=max(row["rate_cv"] for row in rows),
            startup_s=statistics.median(found["startup_s"]),
            cpu=statistics.fmean(row["cpu"] * row["agents"] / row["agents_busy"] for row in rows),
        )


def agents_needed(row: Mapping[str, float]) -> float:
    """Of how many neither side would wait, as a row of the recording has it: what the ScaledObject's formula says."""
    return row["agents_busy"] / (1 - row["learner_waiting"])


@dataclass
class _Pod:
    acts_s: float  #: from when on it acts
    busy: deque[float] = field(default_factory=lambda: deque([0.0] * int(WINDOW_S / STEP_S), int(WINDOW_S / STEP_S)))


class Fleet:
    """A run.

    Args:
        dynamics: as recorded, or otherwise.
        pods: that act at the beginning.
        rng: of the jitter.

    Attributes:
        now_s: the time.
        load: times the recorded learner's speed that this one has now.
        learner_waits: share of the last step in which it waited.
    """

    def __init__(self, dynamics: Dynamics, *, pods: int, rng: np.random.Generator) -> None:
        self.now_s = 0.0
        self.load = 1.0
        self.learner_waits = 0.0
        self._dynamics = dynamics
        self._rng = rng
        self._pods = [_Pod(0.0) for _ in range(pods)]
        self._waits: deque[float] = deque(maxlen=int(WINDOW_S / STEP_S))
        self._ahead = 0.0  # env steps in the band, of what the learner could use at once
        self._jitter = 0.0
        self._cpu: deque[float] = deque(maxlen=int(_CPU_WINDOW_S / STEP_S))
        self._said: dict[str, float] = {}
        self._said_cpu = 0.0

    @property
    def pods(self) -> int:
        """Those that there are to be."""
        return len(self._pods)

    @property
    def ready(self) -> int:
        """Those that act."""
        return sum(pod.acts_s <= self.now_s for pod in self._pods)

    def scale(self, pods: int) -> None:
        """Start pods, or end the youngest: they drain, and act no more."""
        self._pods.sort(key=lambda pod: pod.acts_s)
        del self._pods[pods:]
        begins_s = self.now_s + _POD_START_S + self._dynamics.startup_s
        self._pods += [_Pod(begins_s) for _ in range(pods - len(self._pods))]

    def lose(self, pods: int) -> None:
        """Pods die; others are started in their place."""
        there = len(self._pods)
        del self._pods[:pods]
        self.scale(there)

    def figures(self) -> Mapping[str, float]:
        """What `surreal metrics` would say now: as the processes said it last."""
        return self._said

    def cpu_utilization(self, request: float) -> float:
        """What a metrics server says: cores that a pod that acts takes, of those it has requested."""
        return self._said_cpu / request

    def step(self) -> None:
        """Let a step of time pass."""
        dynamics = self._dynamics
        acting = [pod for pod in self._pods if pod.acts_s <= self.now_s]
        if self.now_s % 1.0 == 0.0:
            self._jitter = dynamics.jitter * self._rng.standard_normal() / max(1, len(acting)) ** 0.5
        could_send = len(acting) * dynamics.agent_rate * max(0.1, 1 + self._jitter) * STEP_S
        could_use = dynamics.learner_rate * self.load * STEP_S
        used = min(could_use, self._ahead + could_send)
        sent = min(could_send, 2 * dynamics.band - self._ahead + used)
        self._ahead += sent - used
        self.learner_waits = 1 - used / could_use
        busy = sent / could_send if acting else 0.0
        self._waits.append(self.learner_waits)
        for pod in acting:
            pod.busy.append(busy)
        self._cpu.append(dynamics.cpu * busy)
        self.now_s += STEP_S
        if self.now_s % REPORT_S == 0.0:
            together = sum(sum(pod.busy) / len(pod.busy) for pod in acting)
            waiting = sum(self._waits) / len(self._waits)
            self._said = {"surreal_agents_busy": together, "surreal_learner_waiting_ratio": waiting}
        if self.now_s % _CPU_WINDOW_S == 0.0:
            self._said_cpu = sum(self._cpu) / len(self._cpu)
