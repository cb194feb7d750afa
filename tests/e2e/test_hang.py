"""A process that hangs is found by its watchdog, which acts as the settings say."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from surreal.base.system.probe import LIVENESS, PROBES, STARTUP, probe

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


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="elsewhere the kernel does not say when a process began"
)
def test_probes_tell_a_process_that_waits_from_one_that_hangs(
    workplace: Workplace, redis_server: Any, run_id: str
) -> None:
    (workplace.folder / "hanging.py").write_text(HANGING)
    health = workplace.folder / "health"
    settings = ("--set", "env.id=hanging:Hanging-v0", "--set", "run.hang_timeout_s=1", "--set", "python_path=[.]")
    place = ("--run", run_id, "--redis", redis_server.address, "--index", "auto", "--resume", "--stay")
    agent = workplace.start("agent", "cartpole-dqn", *place, *settings, SURREAL_HEALTH=str(health))

    def passed() -> set[str]:
        return {name for name in PROBES if probe(str(health), "agent", name)[0]}

    # It waits for a learner, that has parameters, before it acts without; then its environment hangs.
    workplace.wait_for(lambda: passed() == {STARTUP, LIVENESS}, "an agent that waits")
    workplace.wait_for(lambda: passed() == {STARTUP}, "an agent that hangs")
    assert probe(str(health), "agent", LIVENESS) == (False, "the main loop hangs in step (hanging.py line 14)")
    psutil.Process(agent.pid).send_signal(signal.SIGKILL)
    assert agent.wait() == -signal.SIGKILL
    assert passed() == set()
