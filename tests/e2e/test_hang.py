"""A process that hangs is found by its watchdog, which acts as the settings say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace

HANGING = """
import pathlib
import time

import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv


class Hanging(CartPoleEnv):
    def step(self, action):
        marker = pathlib.Path(__file__).with_name("hung")
        if not marker.exists():
            marker.touch()
            time.sleep(3600)
        return super().step(action)


gymnasium.register("Hanging-v0", entry_point=Hanging, max_episode_steps=100)
"""


@pytest.mark.parametrize("on_hang", ["restart", "end"])
def test_environment_that_hangs(workplace: Workplace, on_hang: str) -> None:
    (workplace.folder / "hanging.py").write_text(HANGING)
    settings = [
        "env.id=hanging:Hanging-v0",
        f"run.on_hang={on_hang}",
        "run.hang_timeout_s=5",
        "eval.enabled=false",
        "python_path=[.]",
    ]
    settings += ["run.stop_at_return=null", "run.max_env_steps=300", "agent.count=1", "replay.start_size=100"]
    code, output = workplace.run("run", "cartpole-dqn", *(part for setting in settings for part in ("--set", setting)))
    assert "agent-0: warning: the main loop hangs in step (hanging.py line 14)" in output
    if on_hang == "restart":
        assert code == 0, output
        assert "agent-0 was killed by SIGKILL; starting it again" in output
        # The learner says so, unless it is so busy that the launcher does.
        assert "ended: max_env_steps" in output or "ended: the agents are done after" in output
    else:
        assert code == 1, output
        assert "error: agent-0 failed: the main loop hangs in step (hanging.py line 14), for 5 s now" in output
    log = (workplace.run_dir() / "logs" / "agent-0.log").read_text()
    assert "time.sleep(3600)" in log
