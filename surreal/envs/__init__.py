"""Environments: classes for a plain loop, and the pools that agents drive. Neither torch nor Redis.

pools/       what the agent loop drives: environments here, in worker processes, or vectorized
plain/       environments for a hand-written loop
wrappers/    the wrappers that a configuration names
atari/       the preprocessing of Atari games
"""

import gymnasium

from surreal.base.contracts import EnvPool
from surreal.envs.ids import render_modes
from surreal.envs.make import check_env_id, make_env, make_vector_env, record_video
from surreal.envs.plain.base import Atari, Env, GymEnv, Wrapper
from surreal.envs.plain.wrappers import EpisodeMonitor, FrameStack, Visualization
from surreal.envs.pools.envpool import ThreadedEnvPool
from surreal.envs.pools.local_pool import LocalEnvPool
from surreal.envs.pools.subproc_pool import SubprocEnvPool
from surreal.envs.window import ShownEnv
from surreal.envs.wrappers.named import WrapperSpec

__all__ = [
    "Atari", "Env", "EnvPool", "EpisodeMonitor", "FrameStack", "GymEnv", "LocalEnvPool", "ShownEnv", "SubprocEnvPool",
    "ThreadedEnvPool", "Visualization", "Wrapper", "WrapperSpec", "check_env_id", "make_env", "make_vector_env",
    "record_video", "render_modes",
]  # fmt: skip

# gymnasium's registry is how ids become environments, so it is filled on import, as gymnasium's own packages do.
if "surreal/Bandit-v0" not in gymnasium.registry:
    gymnasium.register("surreal/Bandit-v0", entry_point="surreal.envs.examples:Bandit", reward_threshold=0.75)
    gymnasium.register("surreal/BitFlip-v0", entry_point="surreal.envs.examples:BitFlip")
    for _name in ("CartPoleDict", "CartPoleNovel"):
        gymnasium.register(
            f"surreal/{_name}-v0",
            entry_point=f"surreal.envs.examples:{_name}",
            max_episode_steps=500,
            reward_threshold=475.0,
        )
