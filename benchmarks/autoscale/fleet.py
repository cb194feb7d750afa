"""A model of a learner, its limiter and its agents, second by second, with the delay of their metrics.

The learner consumes experience at one speed, and agents send it at another. The limiter's band lies between them: when
it is empty, the learner waits; when it is full, the agents wait. `Dynamics.recorded` has the speeds of recorded runs.
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

#: Seconds of a step of the model, of the window of waiting ratios (`surreal.run.session.intake`), between two reports.
STEP_S, WINDOW_S, REPORT_S = 0.25, 10.0, 1.0
#: Window of a metrics server's mean CPU time, and the interval of new values, s.
_CPU_WINDOW_S = 15.0
#: Time from a new pod until its process starts, s, if the image is on the node.
_POD_START_S = 3.0


@dataclass(frozen=True)
class Dynamics:
    """The parameters of a run.

    Attributes:
        agent_rate: Env steps/s of an agent that never waits.
        learner_rate: Env steps/s that a learner uses if it never waits.
        band: Half the width of the limiter's band, env steps.
        jitter: Variation of the agents' rate from second to second, as a share of it.
        startup_s: Time from the start of an agent's process to its first experience.
        cpu: Cores that a busy agent uses.
    """

    agent_rate: float
    learner_rate: float
    band: float
    jitter: float
    startup_s: float
    cpu: float

    @classmethod
    def recorded(cls) -> Dynamics:
        """Return the parameters of the recorded runs."""
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
    """Return the number of agents with which neither side waits, by the ScaledObject's formula on a recorded row."""
    return row["agents_busy"] / (1 - row["learner_waiting"])


@dataclass
class _Pod:
    acts_s: float  #: time when it starts to act
    busy: deque[float] = field(default_factory=lambda: deque([0.0] * int(WINDOW_S / STEP_S), int(WINDOW_S / STEP_S)))


class Fleet:
    """A simulated run.

    Args:
        dynamics: Parameters of the run.
        pods: Number of agents that act at the beginning.
        rng: Random generator of the jitter.

    Attributes:
        now_s: Current time.
        load: Current speed of the learner as a multiple of the recorded one.
        learner_waits: Share of the last step in which the learner waited.
    """

    def __init__(self, dynamics: Dynamics, *, pods: int, rng: np.random.Generator) -> None:
        self.now_s = 0.0
        self.load = 1.0
        self.learner_waits = 0.0
        self._dynamics = dynamics
        self._rng = rng
        self._pods = [_Pod(0.0) for _ in range(pods)]
        self._waits: deque[float] = deque(maxlen=int(WINDOW_S / STEP_S))
        self._ahead = 0.0  # env steps in the band that the learner could use at once
        self._jitter = 0.0
        self._cpu: deque[float] = deque(maxlen=int(_CPU_WINDOW_S / STEP_S))
        self._said: dict[str, float] = {}
        self._said_cpu = 0.0

    @property
    def pods(self) -> int:
        """The number of requested pods."""
        return len(self._pods)

    @property
    def ready(self) -> int:
        """The number of pods that act."""
        return sum(pod.acts_s <= self.now_s for pod in self._pods)

    def scale(self, pods: int) -> None:
        """Start pods, or end the youngest, which drain and stop acting."""
        self._pods.sort(key=lambda pod: pod.acts_s)
        del self._pods[pods:]
        begins_s = self.now_s + _POD_START_S + self._dynamics.startup_s
        self._pods += [_Pod(begins_s) for _ in range(pods - len(self._pods))]

    def lose(self, pods: int) -> None:
        """Kill pods; Kubernetes replaces them."""
        there = len(self._pods)
        del self._pods[:pods]
        self.scale(there)

    def figures(self) -> Mapping[str, float]:
        """Return the values that `surreal metrics` would export now: the last reports of the processes."""
        return self._said

    def cpu_utilization(self, request: float) -> float:
        """Return the metrics server's value: cores that an acting pod uses, as a share of its request."""
        return self._said_cpu / request

    def step(self) -> None:
        """Advance the simulation by one step."""
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
