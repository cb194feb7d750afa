"""Actions at a fixed rate do not depend on the learner or the server: both stop, one after the other, and come back."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace

ARM = """
import pathlib

import gymnasium
import numpy as np
from gymnasium import spaces


class Arm(gymnasium.Env):
    '''Notes each action in a file: `s`, the safe one, or `p`, one of the policy.'''

    observation_space = spaces.Box(-1.0, 1.0, (3,))
    action_space = spaces.Box(-2.0, 2.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action):
        with pathlib.Path(__file__).with_name("actions").open("a") as file:
            file.write("s" if action[0] == 0.125 else "p")
        return self.observation_space.sample(), 0.0, False, False, {}


gymnasium.register("Arm-v0", entry_point=Arm, max_episode_steps=100)
"""


def test_actions_keep_leaving_while_the_learner_and_then_the_server_are_stopped(
    workplace: Workplace, start_redis: Callable[..., Any]
) -> None:
    (workplace.folder / "arm.py").write_text(ARM)
    notes = workplace.folder / "actions"
    settings = [
        "env.id=arm:Arm-v0",
        "env.rate_hz=50",
        "env.safe_action=[0.125]",
        "env.num_envs=1",
        "eval.enabled=false",
    ]
    settings += ["replay.samples_per_insert=null", "replay.start_size=64", "sender.max_delay_s=0.2", "python_path=[.]"]
    settings += ["run.max_env_steps=1000000", "run.stop_at_return=null"]
    server = start_redis()
    command = workplace.start(
        *("run", "pendulum-sac", "--redis", server.address, *workplace.one_agent),
        *(part for setting in settings for part in ("--set", setting)),
    )

    def noted(begin: int) -> str:
        return notes.read_text()[begin:]

    def updates() -> int:
        return int(workplace.status()["updates"])

    workplace.wait_for(lambda: workplace.knows() and updates() > 0, "learning")
    learner = workplace.role_pid("learner")
    os.kill(learner, signal.SIGSTOP)
    begin, stopped_at = len(noted(0)), updates()
    workplace.wait_for(lambda: noted(begin).count("p") > 100, "actions of the last parameters")
    assert updates() == stopped_at
    server.pause()
    begin = len(noted(0))
    workplace.wait_for(lambda: noted(begin).endswith("s" * 100), "safe actions")
    server.resume()
    os.kill(learner, signal.SIGCONT)
    begin = len(noted(0))
    workplace.wait_for(lambda: "p" * 10 in noted(begin), "the policy's return")
    workplace.wait_for(lambda: updates() > stopped_at, "the learner's return")
    command.interrupt()
    assert command.wait() == 130, command.output
