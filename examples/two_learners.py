"""Two learners on one stream: two policies learn from the experience of one, with different kinds of replay.

The first learner owns the stream, and its policy acts. The second one follows: it has its own index, removes nothing
from Redis, and publishes its policy under another name. Each could be a process on its own machine; start the second
one with `surreal learner ... --set replay.follow=true --set broadcast.policy=second`.

    python examples/two_learners.py          20 s; prints the mean return of both policies
"""

import sys

import gymnasium
import numpy as np

import surreal
from surreal.run.evaluation import Evaluator

ENVS = [lambda: gymnasium.make("CartPole-v1")] * 8
POLICIES = ("first", "second")


def new_model() -> surreal.QFunction:
    """Build a network; those of the agent and both learners must have the same layers."""
    return surreal.QFunction([128, 128], action_space=2)


def main(steps: int = 10_000) -> None:
    """Act and learn in turns, then play with the published parameters of both policies."""
    with (
        surreal.temporary_run() as client,
        surreal.UniformReplay(client, batch_size=128, start_size=500, n_step=3) as uniform,
        surreal.PrioritizedReplay(client, batch_size=128, start_size=500, n_step=3, is_owner=False) as prioritized,
        surreal.LocalEnvPool(ENVS) as pool,
        surreal.ExpSender(client, chunk_steps=64, lookahead=2) as sender,
    ):
        replays = (uniform, prioritized)
        learners = [surreal.DQNLearner(new_model(), replay, initial_learning_rate=2.3e-3) for replay in replays]
        broadcasters = [surreal.TorchBroadcaster(client, learners[i].model, policy=POLICIES[i]) for i in (0, 1)]
        batches = [replay.batch_iterator() for replay in replays]
        agent = surreal.QAgent(new_model(), surreal.LinearSchedule(1.0, 0.05, steps // 2))
        listener = surreal.TorchListener(client, agent.model, policy=POLICIES[0])
        loop = surreal.AgentLoop(pool, agent, sender)
        loop.run(max_env_steps=1000)
        while loop.env_steps < steps:
            for learner, drawn, broadcaster in zip(learners, batches, broadcasters, strict=True):
                learner.optimize(*next(drawn))
                if learner.updates % 20 == 0:
                    broadcaster.broadcast(learner.model)
            listener.update_once()
            loop.step()
        for policy in POLICIES:
            surreal.TorchListener(client, agent.model, policy=policy).update_once()
            scores = Evaluator(agent, [make() for make in ENVS], rng=np.random.default_rng(1)).play(16)
            print(f"{policy} policy: mean return {np.mean([score.episode_return for score in scores]):.1f}")


if __name__ == "__main__":
    sys.exit(surreal.run_program("two-learners", main, log_level="WARNING"))
