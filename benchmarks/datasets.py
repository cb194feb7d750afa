"""Record datasets for learning offline, as archives: `make datasets`.

    python -m benchmarks.datasets datasets              all of them
    python -m benchmarks.datasets datasets pendulum     of one task

For each task there are four: `TASK-random` of uniform actions; `TASK-expert` of a pretrained policy; and, from the
start of a training run of a preset, `TASK-replay`, all that it experienced, and `TASK-medium`, of its best policy.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np

import surreal
from surreal.config import load_config
from surreal.distributed import EmbeddedRedis, ExpSender, RedisClient, temporary_run
from surreal.distributed.experience.shards import ReplayShards
from surreal.replay.archive import export_replay
from surreal.replay.stream.info import replay_info

_RUN = "datasets"
_SERVER_BYTES, _REPLAY_BYTES = 512 << 20, 256 << 20


class Task(NamedTuple):
    """A task, and the presets whose policies act in it."""

    preset: str  #: of the training run, off-policy, because its replay keeps what it experienced
    expert: str  #: with a pretrained policy
    train_steps: int  #: env steps of the training run
    steps: int  #: env steps of each of the other datasets


TASKS = {
    "pendulum": Task("pendulum-sac", "pendulum-sac", 4500, 10_000),
    "hopper": Task("hopper-sac", "hopper-ppo", 100_000, 100_000),
}


def main(arguments: list[str] | None = None) -> None:
    """Record what is not there yet, and print the mean return of each dataset."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.datasets")
    parser.add_argument("folder", type=Path)
    parser.add_argument("tasks", nargs="*", default=list(TASKS))
    given = parser.parse_args(arguments)
    for name in given.tasks:
        record(TASKS[name], given.folder / name)


def record(task: Task, path: Path) -> None:
    """Record the four datasets of a task, whose paths begin with `path`."""
    with tempfile.TemporaryDirectory() as folder, EmbeddedRedis(maxmemory_bytes=_SERVER_BYTES) as server:
        medium = train(task, Path(folder) / "run", server.address, path.with_name(f"{path.name}-replay"))
        expert = surreal.load(task.expert)
        env_id = load_config(task.preset).env.id
        space = gymnasium.make(env_id).action_space
        space.seed(0)
        policies: dict[str, Callable[[Any], Any]] = {
            "random": lambda _: space.sample(),
            "medium": medium.act,
            "expert": expert.act,
        }
        for name, act in policies.items():
            mean = play(env_id, act, task.steps, path.with_name(f"{path.name}-{name}"))
            print(f"{path.name}-{name}: mean return {mean:.1f} of {task.steps} env steps")


def train(task: Task, folder: Path, redis: str, archive: Path) -> surreal.Policy:
    """Train for a while, write the replay into an archive, and return the best policy so far."""
    program = [sys.executable, "-m", "surreal", "run", task.preset, "--quiet", "--seed", "0"]
    options = ["--run", _RUN, "--run-dir", str(folder), "--redis", redis, "--set", "run.stop_at_return=null"]
    options += ["--set", f"replay.max_bytes={_REPLAY_BYTES}"]
    with subprocess.Popen([*program, *options]) as process, RedisClient(redis, run=_RUN) as client:
        while replay_info(ReplayShards.of(client), 0).steps < task.train_steps:
            if process.poll() is not None:
                sys.exit(f"the training run ended with status {process.returncode}")
            time.sleep(2.0)
        export_replay(client, archive)
        process.send_signal(signal.SIGINT)
    return surreal.load(folder)


def play(env_id: str, act: Callable[[Any], Any], steps: int, path: Path) -> float:
    """Write whole episodes of at least this many steps into an archive; returns their mean return."""
    env, returns = gymnasium.make(env_id), list[float]()
    with temporary_run() as client:
        with ExpSender(client, chunk_steps=1000) as sender:
            taken = 0
            while taken < steps:
                obs, _ = env.reset(seed=len(returns))
                returns.append(0.0)
                is_over = False
                while not is_over:
                    action = np.clip(act(obs), env.action_space.low, env.action_space.high)  # type: ignore[attr-defined]
                    following, reward, terminated, truncated, _ = env.step(action)
                    is_over = terminated or truncated
                    sender.send([obs, following], action, float(reward), is_over, truncated=truncated)
                    returns[-1] += float(reward)
                    obs, taken = following, taken + 1
        export_replay(client, path)
    return float(np.mean(returns))


if __name__ == "__main__":
    main()
