"""A minimal agent loop: a vector environment, a network, and epsilon-greedy actions, without recording."""

import gymnasium
import numpy as np
import torch
from torch import nn


def make_env(mode, num_envs):
    return gymnasium.make_vec("CartPole-v1", num_envs, vectorization_mode=mode)


def balance(layers):
    """Set weights that keep the pole up, so that episodes end about as often as late in training."""
    with torch.no_grad():
        for layer in layers:
            layer.weight.zero_()
            layer.bias.zero_()
        push = torch.tensor([0.05, 0.2, 1.0, 0.5])
        layers[0].weight[0], layers[0].weight[1] = push, -push
        layers[1].weight[0, 0] = layers[1].weight[1, 1] = layers[2].weight[1, 0] = layers[2].weight[0, 1] = 1.0


class BareAgent:
    def __init__(self, mode, num_envs, hidden, epsilon):
        self.env, self.epsilon = make_env(mode, num_envs), epsilon
        layers = [nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 2)]
        self.network = nn.Sequential(*layers)
        balance(layers[::2])
        self.rng = np.random.default_rng(0)
        self.obs, _ = self.env.reset(seed=0)

    def run(self, steps):
        env, network, epsilon, rng, obs = self.env, self.network, self.epsilon, self.rng, self.obs
        with torch.inference_mode():
            for _ in range(steps):
                actions = network(torch.from_numpy(obs)).argmax(1).numpy()
                actions = np.where(rng.random(len(actions)) < epsilon, rng.integers(0, 2, len(actions)), actions)
                obs, _, _, _, _ = env.step(actions)
        self.obs = obs
