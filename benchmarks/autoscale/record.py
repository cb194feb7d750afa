"""Record runs with one to four agents into recording.json, from which the model takes its parameters.

    python -m benchmarks.autoscaling --record

Learner and agents behave as on separate machines: updates and env steps mostly sleep, so they need little CPU time and
do not slow each other down. Everything else is as in any run: limiter, chunks, Redis.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from surreal.distributed.connection.client import RedisClient
from surreal.run.view.reader import RunReader
from surreal.run.view.run_view import RunView

RECORDING = Path(__file__).with_name("recording.json")

_PARTS = """
import time
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv
from surreal.learner import DQNLearner

class SlowCartPole(CartPoleEnv):
    def step(self, action):
        time.sleep(0.004)
        return super().step(action)

class SlowLearner(DQNLearner):
    def learn(self, i, batch):
        time.sleep(0.008)
        return super().learn(i, batch)

gymnasium.register("SlowCartPole-v0", SlowCartPole, max_episode_steps=500)
"""
_SETTINGS = """
version: 1
name: recorded
python_path: ["."]
env: {id: "slow_parts:SlowCartPole-v0", num_envs: 1}
model: {class: surreal.model.QFunction, args: {hidden_sizes: [32]}}
agent: {class: surreal.agent.QAgent, count: 4, exploration: {type: linear, start: 1.0, end: 1.0, steps: 1}}
learner: {class: slow_parts.SlowLearner, batch_size: 32}
replay: {capacity: 20000, start_size: START_SIZE, samples_per_insert: 8}
sender: {chunk_steps: 32, max_delay_s: 0.5}
eval: {enabled: false}
run: {max_env_steps: 10000000}
"""

_START_SIZE = 200
#: Time before a recording, and duration of a recording, s.
_SETTLE_S, _RECORD_S = 12.0, 20.0


class _Recorder:
    """One run whose agents start one by one, and end again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "slow_parts.py").write_text(_PARTS)
        (folder / "app.yaml").write_text(_SETTINGS.replace("START_SIZE", str(_START_SIZE)))
        self._address = f"unix://{folder}/redis.sock"
        self._reader = RunReader(RedisClient(self._address, run="recorded"))

    def record(self) -> dict[str, Any]:
        rows: list[dict[str, Any]] = []
        starts: list[float] = []
        with self._process(["redis-server", "--port", "0", "--unixsocket", "redis.sock", "--save", ""]) as _:
            time.sleep(1.0)
            with self._surreal("learner", "--run-dir", "run") as _:
                agents: list[subprocess.Popen[bytes]] = []
                for index in range(4):
                    began_s = time.monotonic()
                    agents.append(self._start("agent", "--run-dir", f"agent-{index}", "--index", str(index)))
                    self._wait(lambda now, name=f"agent-{index}": _metric(now, name, "sender/steps_total") > 0)
                    starts.append(time.monotonic() - began_s)
                    self._wait(lambda now: _metric(now, "learner", "learner/updates_total") > 50)
                    time.sleep(_SETTLE_S)
                    rows.append(self._look(agents))
                    sys.stderr.write(json.dumps(rows[-1]) + "\n")
                drains = [self._drain(agent) for agent in agents]
        return {
            "machine": f"{os.cpu_count()} cores {platform.machine()}",
            "rows": rows,
            "startup_s": starts,
            "drain_s": drains,
        }

    def _look(self, agents: list[subprocess.Popen[bytes]]) -> dict[str, Any]:
        processes = [psutil.Process(agent.pid) for agent in agents]
        cpu_before = [sum(process.cpu_times()[:2]) for process in processes]
        began, began_s = self._now(), time.monotonic()
        rates, positions = [], []
        while time.monotonic() - began_s < _RECORD_S:
            time.sleep(1.0)
            now = self._now()
            rates.append(sum(beat.metrics.get("agent/env_steps_per_s", 0.0) for beat in now.alive))
            positions.append(_metric(now, "learner", "replay/limiter_position_ratio"))
        end, took_s = self._now(), time.monotonic() - began_s
        cpu = [
            (sum(process.cpu_times()[:2]) - before) / took_s
            for process, before in zip(processes, cpu_before, strict=True)
        ]

        def grown(name: str, metric: str) -> float:
            return (_metric(end, name, metric) - _metric(began, name, metric)) / took_s

        names = [f"agent-{index}" for index in range(len(agents))]
        return {
            "agents": len(agents),
            "env_steps_per_s": round(sum(grown(name, "sender/steps_total") for name in names), 1),
            "updates_per_s": round(grown("learner", "learner/updates_total"), 1),
            "learner_waiting": round(grown("learner", "learner/wait_s_total"), 4),
            "agents_waiting": round(statistics.fmean(grown(name, "sender/wait_s_total") for name in names), 4),
            "agents_busy": round(sum(_metric(end, name, "agent/busy_ratio") for name in names), 3),
            "limiter_position": [round(each, 3) for each in positions],
            "rate_cv": round(statistics.pstdev(rates) / statistics.fmean(rates), 4),
            "cpu": round(statistics.fmean(cpu), 3),
            "band_env_steps": round(_band_env_steps(end), 1),
        }

    def _drain(self, agent: subprocess.Popen[bytes]) -> float:
        began_s = time.monotonic()
        agent.send_signal(signal.SIGTERM)
        agent.wait(60)
        return time.monotonic() - began_s

    def _now(self) -> RunView:
        return self._reader.read()

    def _wait(self, is_there: Any) -> None:
        deadline_s = time.monotonic() + 120
        while not (found := self._reader.read()).alive or not is_there(found):
            if time.monotonic() > deadline_s:
                raise TimeoutError("the run does not begin")
            time.sleep(0.1)

    def _start(self, role: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "surreal", role, "app.yaml", "--run", "recorded", "--redis", self._address]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        return subprocess.Popen([*command, *arguments], cwd=self._folder, env=environment, stdout=subprocess.DEVNULL)

    @contextmanager
    def _surreal(self, role: str, *arguments: str) -> Iterator[None]:
        process = self._start(role, *arguments)
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)

    @contextmanager
    def _process(self, command: list[str]) -> Iterator[None]:
        process = subprocess.Popen(command, cwd=self._folder, stdout=subprocess.DEVNULL)
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)


def _metric(now: RunView, name: str, metric: str) -> float:
    return next((beat.metrics.get(metric, 0.0) for beat in now.alive if beat.name == name), 0.0)


def _band_env_steps(now: RunView) -> float:
    """Half the width of the limiter's band, in env steps."""
    names = ("samples_per_insert_high", "samples_per_insert_low", "env_steps_total")
    high, low, steps = (_metric(now, "learner", f"replay/{name}") for name in names)
    middle = (high + low) / 2
    return (high - middle) * (steps - _START_SIZE) / middle


def record() -> None:
    """Record, and write the file."""
    with tempfile.TemporaryDirectory(prefix="srl-") as folder:
        found = _Recorder(Path(folder)).record()
    RECORDING.write_text(json.dumps(found, indent=1) + "\n")
