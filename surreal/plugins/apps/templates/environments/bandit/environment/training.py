"""The environment program: an agent in another process pulls the arms. `environment.run` in app.yaml starts it."""

from __future__ import annotations

import sys
from collections import Counter

from bandit import ARMS, Bandit

from surreal.rlx import TrainingBase


class Training(TrainingBase):
    """Lets the agent pull arms; an episode never ends by itself, so it has `environment.steps` pulls."""

    def episode(self, number: int) -> float:
        """Play an episode, and return the sum of its rewards."""
        steps = self.options.get("environment/steps", 1000)
        report_every = self.options.get("environment/report_every", 500)
        bandit, pulls, total = Bandit(), Counter[int](), 0.0
        arm = self.agent.update(reward=None, state=[])
        for step in range(1, steps + 1):
            reward = bandit.pull(arm)
            pulls[arm] += 1
            total += reward
            if step % report_every == 0:
                shares = "  ".join(f"arm {each}: {pulls[each] / report_every:.0%}" for each in range(len(ARMS)))
                print(f"{step} pulls  {shares}")
                pulls.clear()
            arm = self.agent.update(reward, [])
        return total


if __name__ == "__main__":
    sys.exit(not Training().run())
