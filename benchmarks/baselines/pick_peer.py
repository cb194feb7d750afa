"""TQC of sb3-contrib with hindsight on FetchPickAndPlace, with the settings of `benchmarks/hil/pick.yaml`.

    python pick_peer.py STEPS DEMONSTRATIONS SEED EPISODES

Its replay begins with demonstrations of the same expert. Four environments play as many each, so their number is
rounded up. There is no layer norm in its networks. Prints the share of episodes at whose end the block is at the goal.
"""

from __future__ import annotations

import copy
import math
import sys
from typing import Any

import numpy as np
import torch
from sb3_contrib import TQC
from stable_baselines3 import HerReplayBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv

from benchmarks.hil.pick import Expert
from surreal.envs.ids import find_env

_ENV, _NUM_ENVS = "FetchPickAndPlace-v4", 4


def demonstrate(model: Any, env: VecEnv, episodes: int) -> None:
    """Put whole episodes of the expert into the replay; all of them end at the same step."""
    expert, played = Expert(), 0
    obs: Any = env.reset()
    while played < episodes:
        rows = [{key: value[i] for key, value in obs.items()} for i in range(_NUM_ENVS)]
        action = np.stack([expert(row, None) for row in rows])
        after, reward, done, infos = env.step(action)
        following: Any = copy.deepcopy(after)
        for i in np.flatnonzero(done):
            played += 1
            for key, value in infos[i]["terminal_observation"].items():
                following[key][i] = value
        model.replay_buffer.add(obs, following, action, reward, done, infos)
        obs = after


def success_ratio(model: Any, env: VecEnv, episodes: int) -> float:
    successes = list[bool]()
    obs: Any = env.reset()
    while len(successes) < episodes:
        obs, _, done, infos = env.step(model.predict(obs, deterministic=True)[0])
        successes += [bool(infos[i]["is_success"]) for i in np.flatnonzero(done)]
    return float(np.mean(successes[:episodes]))


def main() -> None:
    steps, demonstrations, seed, episodes = map(int, sys.argv[1:])
    torch.set_num_threads(1)
    find_env(_ENV)  # it loads the package
    env = make_vec_env(_ENV, _NUM_ENVS, seed=seed)
    model = TQC(
        "MultiInputPolicy",
        env,
        learning_rate=5e-4,
        buffer_size=400_000,
        learning_starts=_NUM_ENVS * 250,
        batch_size=512,
        tau=0.005,
        gamma=0.98,
        train_freq=1,
        gradient_steps=_NUM_ENVS // 2,  # 256 samples per env step
        replay_buffer_class=HerReplayBuffer,
        replay_buffer_kwargs={"n_sampled_goal": 4, "goal_selection_strategy": "future"},
        ent_coef="auto_0.05",
        top_quantiles_to_drop_per_net=2,
        policy_kwargs={"net_arch": [256, 256], "n_critics": 2, "n_quantiles": 25},
        seed=seed,
        device="cpu",
    )
    demonstrate(model, env, _NUM_ENVS * math.ceil(demonstrations / _NUM_ENVS))
    model.learn(steps)
    print(success_ratio(model, make_vec_env(_ENV, _NUM_ENVS, seed=seed + 1_000_000), episodes))


if __name__ == "__main__":
    main()
