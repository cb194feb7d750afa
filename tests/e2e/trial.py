"""One run of a tiny configuration, in a folder of its own, and what it leaves there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surreal.base.checkpoint import load_checkpoint
from surreal.run.process.run_folder import newest_checkpoint

if TYPE_CHECKING:
    from tests.e2e.conftest import Command, Workplace

#: Small and slow, so that several of them leave each other time.
SETTINGS = """
name: tiny
env: {id: "slow_env:Slow-v0", num_envs: 1}
model: {args: {hidden_sizes: [8]}}
agent: {class: slow_env.Sleeper, count: 1}
learner: {batch_size: 8}
replay: {capacity: 1000, start_size: 20, samples_per_insert: 8}
sender: {chunk_steps: 8, max_delay_s: 0.1}
eval: {enabled: false, interval_s: 0.1, episodes: 1, confirm_episodes: 0}
checkpoint: {interval_updates: 10}
"""
ENVIRONMENT = """
import os, time
import gymnasium
from surreal.agent import QAgent
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

class Slow(CartPoleEnv):
    def step(self, action):
        time.sleep(0.005)
        if os.path.exists("runs/broken"):
            raise OverflowError("the cart left the rail")
        return super().step(action)

gymnasium.register("Slow-v0", Slow)

class Sleeper(QAgent):
    def close(self):
        if os.path.exists("runs/trial/redis.address"):  # not in the check before a run
            time.sleep(float(os.environ.get("SLEEP_AT_END_S", "0")))
"""


class Trial:
    """One run of the tiny configuration."""

    def __init__(self, workplace: Workplace) -> None:
        self.workplace = workplace
        runs = workplace.folder / "runs"
        runs.mkdir()
        (runs / "slow_env.py").write_text(ENVIRONMENT)
        (runs / "tiny.yaml").write_text(SETTINGS)
        self.folder = runs / "trial"

    def arguments(self, *overrides: str) -> list[str]:
        """Of the command that begins the run."""
        return ["run", "runs/tiny.yaml", "--run-dir", "runs/trial", *(f"--set={override}" for override in overrides)]

    def start(self, *overrides: str, is_resumed: bool = False, program: str = "", **environment: str) -> Command:
        """Begin the run, or go on with it.

        Args:
            overrides: settings.
            is_resumed: whether it goes on.
            program: Python source of what starts the command in place of this process.
            environment: further variables.
        """
        arguments = [*self.arguments(*overrides), *(["--resume"] if is_resumed else [])]
        if program:
            return self.workplace.start_python("-c", program, *arguments, **environment)
        return self.workplace.start(*arguments, **environment)

    def wait_until_it_learns(self, command: Command, updates: int = 0) -> None:
        """Wait for a checkpoint of more updates."""

        def has_learned() -> bool:
            assert command.process.poll() is None, command.output
            return self.updates() > updates

        self.workplace.wait_for(has_learned, "a checkpoint")

    def checkpoints(self) -> list[Path]:
        return sorted((self.folder / "checkpoints").glob("*.safetensors"))

    def result(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "result.json").read_text())
        return found

    def contents(self) -> dict[str, bytes]:
        """Every file in the folder."""
        return {str(path): path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}

    def updates(self) -> int:
        """Of the newest checkpoint, 0 if there is none."""
        return newest_checkpoint(self.folder)

    def assert_left(self, *, is_last: bool = True) -> None:
        """What is left is whole: the checkpoint of the last update, no temporary file, no address, no process."""
        if is_last:
            newest = load_checkpoint(self.checkpoints()[-1])
            assert newest.metadata["state"]["updates"] == self.result()["updates"] > 0
        self.assert_whole()
        assert not (self.folder / "redis.address").exists()
        self.workplace.assert_nothing_is_left()

    def assert_whole(self) -> None:
        """No file is half written."""
        for checkpoint in self.checkpoints():
            load_checkpoint(checkpoint)
        assert [path for path in self.folder.rglob("*") if path.name.endswith(".tmp")] == []
