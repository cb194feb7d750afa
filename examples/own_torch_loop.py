"""Your own PyTorch training loop on Surreal's replay, without Surreal's agents, learners and models.

The acting part is a plain loop, which sends each step. The learning part samples batches of three-step transitions as
tensors, and does deep Q-learning by hand. Each part could be a separate process on any machine.

    python examples/own_torch_loop.py         20 s; prints the mean return of the last 100 episodes as it grows
"""

import copy
import random
import sys

import torch
from torch import nn

from surreal import EpisodeMonitor, ExpSender, GymEnv, UniformReplay, run_program, temporary_run


def main(steps: int = 8000) -> None:
    """Act and learn in turns."""
    env = EpisodeMonitor(GymEnv("CartPole-v1"), report_every_s=2.0)
    q = nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2))
    target, optimizer = copy.deepcopy(q), torch.optim.Adam(q.parameters(), lr=2.3e-3)
    with (
        temporary_run() as client,  # to share a run between programs: RedisClient("HOST:PORT", run="NAME")
        UniformReplay(client, batch_size=128, start_size=200, gamma=0.99, n_step=3) as replay,
        ExpSender(client, chunk_steps=32, lookahead=2) as sender,  # lookahead: n_step - 1
    ):
        batches, (obs, _) = replay.batch_iterator(), env.reset(seed=1)
        for step in range(steps):
            action = int(q(torch.from_numpy(obs)).argmax())
            if random.random() < max(0.05, 1.0 - 2 * step / steps):
                action = random.randrange(2)
            new_obs, reward, done, info = env.step(action)
            sender.send([obs, new_obs], action, reward, done, info)
            obs = env.reset()[0] if done else new_obs
            if step >= 500 and step % 2 == 0:  # by now, the replay has enough for a batch
                _, batch = next(batches)
                with torch.no_grad():
                    wanted = batch.reward + batch.discount * target(batch.next_obs).amax(1)
                loss = nn.functional.smooth_l1_loss(q(batch.obs).gather(1, batch.action[:, None])[:, 0], wanted)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            if step % 100 == 0:
                target.load_state_dict(q.state_dict())
    returns = [episode_return for episode_return, _ in env.episodes]
    first, last = sum(returns[:20]) / 20, sum(returns[-5:]) / 5
    print(f"mean return: {first:.1f} in the first 20 episodes, {last:.1f} in the last 5")


if __name__ == "__main__":
    sys.exit(run_program("own-torch-loop", main, log_level="WARNING"))
