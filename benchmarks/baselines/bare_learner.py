"""A minimal DQN learner: tensors in memory, random rows, double Q-learning, fused Adam."""

import torch
from torch import nn
from torch.nn import functional as F


def make_network(width):
    return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2))


class BareLearner:
    def __init__(self, width, batch_size, stored):
        self.online, self.target = make_network(width), make_network(width)
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=1e-3, fused=True)
        self.obs, self.next_obs = torch.rand(stored, 4), torch.rand(stored, 4)
        self.action, self.reward = torch.randint(0, 2, (stored,)), torch.rand(stored)
        self.discount = torch.full((stored,), 0.99)
        self.batch_size, self.updates = batch_size, 0

    def run(self, updates):
        for _ in range(updates):
            rows = torch.randint(0, len(self.obs), (self.batch_size,))
            next_obs = self.next_obs[rows]
            q = self.online(self.obs[rows]).gather(1, self.action[rows].unsqueeze(1)).squeeze(1)
            with torch.no_grad():
                best = self.online(next_obs).argmax(1, keepdim=True)
                value = self.target(next_obs).gather(1, best).squeeze(1)
                target = self.reward[rows] + self.discount[rows] * value
            self.optimizer.zero_grad(set_to_none=True)
            F.smooth_l1_loss(q, target).backward()
            nn.utils.clip_grad_norm_(self.online.parameters(), 10.0, foreach=True)
            self.optimizer.step()
            self.updates += 1
            if self.updates % 100 == 0:
                self.target.load_state_dict(self.online.state_dict())
