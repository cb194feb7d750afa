"""Dict observations and action masks: an agent, a replay and a learner in one loop, without a configuration.

An elevator observes a dictionary and goes where it is called. `info["action_mask"]` has the legal moves.

    python examples/dict_and_masks.py         10 s; prints the median return of random moves and of the learned policy
"""

import sys

import numpy as np
from gymnasium import Env, spaces

import surreal


class Lift(Env):
    """Ten floors; action 0 is down and 1 is up, and each move costs 1."""

    observation_space = spaces.Dict({"at": spaces.Box(0, 9, (1,)), "to": spaces.Box(0, 9, (1,))})
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.to = self.np_random.choice(10, size=2, replace=False)
        return self.see()

    def step(self, action):
        self.at += (-1, 1)[action]
        if not 0 <= self.at <= 9:
            raise ValueError("through the roof, or the floor")
        return self.see()[0], -1.0, bool(self.at == self.to), False, self.see()[1]

    def see(self):
        mask = np.array([self.at > 0, self.at < 9])
        return {"at": np.array([self.at], np.float32), "to": np.array([self.to], np.float32)}, {"action_mask": mask}


def main(steps: int = 10_000) -> None:
    """Gather random experience, then learn and act in turns."""
    model = surreal.QFunction([64, 64], action_space=2)  # the agent and the learner share it: nothing is broadcast
    agent = surreal.QAgent(model, surreal.LinearSchedule(1.0, 0.02, steps // 2))
    returns: list[float] = []
    with (
        surreal.temporary_run() as client,
        surreal.LocalEnvPool([Lift] * 8) as pool,
        surreal.UniformReplay(client, batch_size=128, start_size=500, gamma=0.95) as replay,
        surreal.ExpSender(client, chunk_steps=64) as sender,
    ):
        loop = surreal.AgentLoop(pool, agent, sender, on_episode=lambda score, *_: returns.append(score))
        learner = surreal.DQNLearner(model, replay, initial_learning_rate=2.3e-3)
        loop.run(max_env_steps=1000)
        for i, batch in replay.batch_iterator():
            learner.optimize(i, batch)
            if loop.step() and loop.env_steps >= steps:
                break
    print(f"median return: {np.median(returns[:50])} at random, {np.median(returns[-100:])} in the last 100 episodes")


if __name__ == "__main__":
    sys.exit(surreal.run_program("lift", main, log_level="WARNING"))
