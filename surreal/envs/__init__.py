"""Environments: the plain loop's classes, and the pools that an agent drives. No torch and no Redis here."""

import gymnasium

from surreal.envs.atari import Atari
from surreal.envs.base import Env, GymEnv, Wrapper
from surreal.envs.frame_stack import FrameStack
from surreal.envs.local_pool import LocalEnvPool
from surreal.envs.make import check_env_id, make_env, make_vector_env, record_video
from surreal.envs.monitor import EpisodeMonitor
from surreal.envs.pool import EnvPool
from surreal.envs.subproc_pool import SubprocEnvPool
from surreal.envs.visualization import Visualization
from surreal.envs.wrappers import WrapperSpec

__all__ = [
    "Atari",
    "Env",
    "EnvPool",
    "EpisodeMonitor",
    "FrameStack",
    "GymEnv",
    "LocalEnvPool",
    "SubprocEnvPool",
    "Visualization",
    "Wrapper",
    "WrapperSpec",
    "check_env_id",
    "make_env",
    "make_vector_env",
    "record_video",
]

# gymnasium's registry is how ids become environments, so it is filled on import, as gymnasium's own packages do.
if "surreal/CartPoleDict-v0" not in gymnasium.registry:
    gymnasium.register(
        "surreal/CartPoleDict-v0",
        entry_point="surreal.envs.examples:CartPoleDict",
        max_episode_steps=500,
        reward_threshold=475.0,
    )
