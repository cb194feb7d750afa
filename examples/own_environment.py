"""Train a policy for your environment: Redis, learner, agent and evaluation start automatically.

All you need is a file with a class that has gymnasium's interface. This one is a room with a heater: the temperature
should stay at 20 degrees, whatever the weather.

    python examples/own_environment.py       20 s; shows the live view, then the mean return before and after learning
"""

import sys
from pathlib import Path

import numpy as np
from gymnasium import Env, spaces

import surreal


class Thermostat(Env):
    """Action 1 heats; a step costs a tenth of the distance to 20 degrees, and an episode lasts for 100 steps."""

    observation_space = spaces.Box(-50.0, 50.0, (2,))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.outside = 0, self.np_random.uniform(-5.0, 10.0)
        self.inside = self.outside
        return self.see(), {}

    def step(self, action):
        self.steps += 1
        self.inside += 4.0 * action + 0.1 * (self.outside - self.inside)
        return self.see(), -0.1 * abs(self.inside - 20.0), False, self.steps == 100, {}

    def see(self):
        return np.array([self.inside - 20.0, self.outside], np.float32) / 10.0


def random_return(seed: int) -> float:
    """Play an episode at random."""
    env = Thermostat()
    env.reset(seed=seed)
    return sum(env.step(env.np_random.integers(2))[1] for _ in range(100))


def main(steps: int = 20_000) -> None:
    """Train, and compare."""
    overrides = {"name": "thermostat", "run.max_env_steps": steps, "run.stop_at_return": None}
    # The run's processes import the class by the name of its module, from this folder.
    overrides |= {"env.id": f"{Path(__file__).stem}:Thermostat", "python_path": [str(Path(__file__).parent)]}
    result = surreal.train("cartpole-ppo", seed=1, overrides=overrides)  # it fits vectors and discrete actions
    learned = surreal.evaluate(surreal.load(result), episodes=20, seed=1).mean_return
    at_random = np.mean([random_return(seed) for seed in range(20)])
    print(f"mean return: {at_random:.1f} at random, {learned:.1f} learned; all else is in {result.folder}")


if __name__ == "__main__":
    sys.exit(surreal.run_program("own-environment", main, log_level="WARNING"))
