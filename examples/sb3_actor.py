"""A Stable-Baselines3 policy acts, and Surreal learns: its network is improved from Surreal's replay.

SB3's `predict` chooses the actions, its evaluation scores the policy, and it saves the file at the end. Surreal's
sender, replay and learner are in between, and could run elsewhere. Needs `pip install stable-baselines3`.

    python examples/sb3_actor.py             20 s; prints the mean return before and after
"""

import sys

import gymnasium

from surreal import DQNLearner, ExpSender, Model, UniformReplay, run_program, temporary_run

try:
    import stable_baselines3
    from stable_baselines3.common.evaluation import evaluate_policy
except ImportError:
    sys.exit("this example needs Stable-Baselines3: pip install stable-baselines3")


class NetworkOfSB3(Model):
    """The Q-network of an SB3 policy, with the interface that Surreal's learners expect."""

    def __init__(self, policy):
        super().__init__()
        self.q_net = policy.q_net

    def forward(self, obs, state=None, is_first=None):
        return self.q_net(obs)


def main(steps: int = 10_000, save: str = "") -> None:
    """Act and learn in turns."""
    env = gymnasium.make("CartPole-v1")
    sb3 = stable_baselines3.DQN("MlpPolicy", env, policy_kwargs={"net_arch": [128, 128]}, seed=3, device="cpu")
    before, _ = evaluate_policy(sb3, env, n_eval_episodes=10, warn=False)
    with (
        temporary_run() as client,
        UniformReplay(client, batch_size=128, start_size=200, n_step=3) as replay,
        ExpSender(client, chunk_steps=32, lookahead=2) as sender,
    ):
        learner = DQNLearner(NetworkOfSB3(sb3.policy), replay, initial_learning_rate=2.3e-3)
        batches, (obs, _) = replay.batch_iterator(), env.reset(seed=1)
        for step in range(steps):
            sb3.exploration_rate = max(0.05, 1.0 - 2 * step / steps)
            action, _ = sb3.predict(obs)
            new_obs, reward, terminated, truncated, _ = env.step(action)
            sender.send([obs, new_obs], action, float(reward), terminated or truncated, truncated=truncated)
            obs = env.reset()[0] if terminated or truncated else new_obs
            if step >= 500 and step % 2 == 0:
                learner.optimize(*next(batches))
    after, _ = evaluate_policy(sb3, env, n_eval_episodes=10, warn=False)
    print(f"mean return: {before:.0f} before, {after:.0f} after")
    if save:
        sb3.save(save)


if __name__ == "__main__":
    sys.exit(run_program("sb3-actor", main, log_level="WARNING"))
