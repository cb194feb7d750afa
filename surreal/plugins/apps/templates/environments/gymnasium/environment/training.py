"""The environment program: an agent in another process plays. `environment.run` in app.yaml starts it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

# Wrappers of this app are named in app.yaml as `environment.gym_env.Screen`.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from environment import gym_env

from surreal.rlx import TrainingBase
from surreal.rlx.client.gym_driver import to_env_action


class Training(TrainingBase):
    """Plays episodes of the environment; the arguments are those of `TrainingBase`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        sys.path += self.options.get("python_path", [])
        self.env = gym_env.make(self.options, training=not self.exploit, is_shown=lambda: self.show_ui)
        self._returns: list[float] = []

    def episode(self, number: int) -> float:
        """Play an episode, and return the sum of its rewards."""
        state, _ = self.env.reset()
        action = self.agent.update(reward=None, state=state)
        total, is_over = 0.0, False
        while not is_over:
            state, reward, terminated, truncated, _ = self.env.step(to_env_action(self.env.action_space, action))
            total += float(reward)
            is_over = terminated or truncated
            # A time limit is not an end: the learner still bootstraps from the last state.
            action = self.agent.update(float(reward), state, terminal=is_over, truncated=truncated and not terminated)
        self._report(number, total)
        return total

    def _report(self, number: int, total: float) -> None:
        self._returns.append(total)
        if (number + 1) % self.options.get("environment/report_every", 20) == 0:
            mean = sum(self._returns) / len(self._returns)
            print(f"episode {number + 1}: mean return {mean:.1f} of the last {len(self._returns)}")
            self._returns.clear()


if __name__ == "__main__":
    sys.exit(not Training().run())
