"""Human demonstrations: you play with the keyboard, and a policy learns your moves from the replay.

Walk along gymnasium's cliff: type moves (w up, a left, s down, d right) and press Enter; end with Ctrl-D. The shortest
path is up, eleven times right, and down. The learner below is a complete implementation of behavioral cloning.

    python examples/demonstrations.py        prints the board after each line, and the policy's return at the end
"""

import sys

import gymnasium
import numpy as np
from torch import nn

import surreal
from surreal.run.evaluation import Evaluator

KEYS = "wdsa"  # index: the action's number


class CloningLearner(surreal.GradientLearner):
    """Makes likely what the person did."""

    def learn(self, i, batch):
        loss = nn.functional.cross_entropy(self.model(batch.obs), batch.action)
        self.step(loss)
        return {"loss": loss}


def demonstrate(client: surreal.RedisClient, env: gymnasium.Env) -> int:
    """Take what is typed for moves, and send them; returns how many there were."""
    obs, _ = env.reset()
    print(env.render(), "your moves (w a s d, then Enter; Ctrl-D ends):", sep="\n", flush=True)
    with surreal.ExpSender(client) as sender:
        for line in sys.stdin:
            for action in [KEYS.index(key) for key in line if key in KEYS]:
                new_obs, reward, terminated, truncated, _ = env.step(action)
                sender.send([obs, new_obs], action, float(reward), terminated or truncated, truncated=truncated)
                obs = env.reset()[0] if terminated or truncated else new_obs
            print(env.render(), flush=True)
    return sender.global_step


def main(updates: int = 300) -> None:
    """Watch the person, learn, and do it alone."""
    board = gymnasium.make("CliffWalking-v1", render_mode="ansi", max_episode_steps=100)
    env, model = gymnasium.wrappers.FlattenObservation(board), surreal.QFunction([64], action_space=4)
    with surreal.temporary_run() as client:
        if not (steps := demonstrate(client, env)):
            sys.exit("nothing was shown, so there is nothing to learn")
        with surreal.UniformReplay(client, batch_size=64, start_size=steps) as replay:
            learner, batches = CloningLearner(model, replay), replay.batch_iterator()
            for _ in range(updates):
                learner.optimize(*next(batches))
    (score,) = Evaluator(surreal.QAgent(model), [env], rng=np.random.default_rng(1)).play(1)
    print(f"the policy learned from {steps} moves returns {score.episode_return:.0f} in {score.length} moves")


if __name__ == "__main__":
    sys.exit(surreal.run_program("demonstrations", main, log_level="WARNING"))
