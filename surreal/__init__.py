"""Surreal: distributed reinforcement learning with Redis in the middle.

Agents act and send experience to a replay in Redis; a learner samples it, improves a model, and broadcasts the
parameters back. Begin with the command line:

    surreal run cartpole-dqn            train on this machine, until it is solved
    surreal presets [NAME]              what can be trained; `surreal --help` lists the other commands

The same from a program or a notebook:

    result = surreal.train("cartpole-ppo", seed=1)    or train(MyEnv, "ppo"), with an environment's id or class
    policy = surreal.load(result)       then policy.act(obs), surreal.evaluate(policy)

Write your own parts, and name them in a YAML file (`class: my_classes.MyAgent`):

    from surreal import Agent, Learner, Model, Replay

    Agent._act(obs, explore)            actions for a batch of observations       see help("surreal.agent.base")
    Learner.learn(i, batch)             one update from a batch                   see help("surreal.learner.base")
    Replay._sample(batch_size)          which transitions make a batch            see help("surreal.replay.base")
    Model.forward(obs)                  the network                               see help("surreal.model.base")

Or leave the launcher out and write the loops yourself, in fifty lines: scripts/run_cartpole_agent.py, _learner.py and
_eval.py use `RedisClient`, `ExpSender`, `TorchListener`, `TorchBroadcaster` and the classes below. Ten small programs,
each a thing people ask for, are in examples/ (docs/examples.md).

All settings are in docs/configuration.md, the options of all classes and wrappers in docs/options.md.

`import surreal` alone imports nothing heavy: no torch, no Redis, no gymnasium. The names below come when they are used.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from surreal.base.moved import MovedFinder

__version__ = "0.1.0"

if TYPE_CHECKING:  # `_MODULES` is read from these lines
    from surreal.agent import Agent as Agent
    from surreal.agent import AgentLoop as AgentLoop
    from surreal.agent import DeterministicAgent as DeterministicAgent
    from surreal.agent import NoisyQAgent as NoisyQAgent
    from surreal.agent import PolicyAgent as PolicyAgent
    from surreal.agent import QAgent as QAgent
    from surreal.agent import SamplingAgent as SamplingAgent
    from surreal.agent import SessionAgent as SessionAgent
    from surreal.api import Policy as Policy
    from surreal.api import Result as Result
    from surreal.api import evaluate as evaluate
    from surreal.api import load as load
    from surreal.api import train as train
    from surreal.base.errors import SurrealError as SurrealError
    from surreal.base.schedules import LinearSchedule as LinearSchedule
    from surreal.base.system.program import run_program as run_program
    from surreal.config import Config as Config
    from surreal.config import load_config as load_config
    from surreal.distributed import DurableReplay as DurableReplay
    from surreal.distributed import ExpSender as ExpSender
    from surreal.distributed import RedisClient as RedisClient
    from surreal.distributed import TorchBroadcaster as TorchBroadcaster
    from surreal.distributed import TorchListener as TorchListener
    from surreal.distributed import temporary_run as temporary_run
    from surreal.envs import Atari as Atari
    from surreal.envs import Env as Env
    from surreal.envs import EpisodeMonitor as EpisodeMonitor
    from surreal.envs import FrameStack as FrameStack
    from surreal.envs import GymEnv as GymEnv
    from surreal.envs import LocalEnvPool as LocalEnvPool
    from surreal.envs import Visualization as Visualization
    from surreal.envs import Wrapper as Wrapper
    from surreal.learner import A2CLearner as A2CLearner
    from surreal.learner import ActorCriticLearner as ActorCriticLearner
    from surreal.learner import APPOLearner as APPOLearner
    from surreal.learner import BCLearner as BCLearner
    from surreal.learner import CQLLearner as CQLLearner
    from surreal.learner import DDPGLearner as DDPGLearner
    from surreal.learner import DQNLearner as DQNLearner
    from surreal.learner import GradientLearner as GradientLearner
    from surreal.learner import IPGLearner as IPGLearner
    from surreal.learner import IQLLearner as IQLLearner
    from surreal.learner import Learner as Learner
    from surreal.learner import PolicyGradientLearner as PolicyGradientLearner
    from surreal.learner import PPOLearner as PPOLearner
    from surreal.learner import PQNLearner as PQNLearner
    from surreal.learner import QuantileDQNLearner as QuantileDQNLearner
    from surreal.learner import R2D2Learner as R2D2Learner
    from surreal.learner import RemoteLearner as RemoteLearner
    from surreal.learner import SACLearner as SACLearner
    from surreal.learner import TD3BCLearner as TD3BCLearner
    from surreal.learner import TRPOLearner as TRPOLearner
    from surreal.learner import VTraceLearner as VTraceLearner
    from surreal.model import ActorCritic as ActorCritic
    from surreal.model import ConvQFunction as ConvQFunction
    from surreal.model import DeterministicActorCritic as DeterministicActorCritic
    from surreal.model import DiscreteSoftActorCritic as DiscreteSoftActorCritic
    from surreal.model import ImplicitActorCritic as ImplicitActorCritic
    from surreal.model import Model as Model
    from surreal.model import NoisyQFunction as NoisyQFunction
    from surreal.model import NoisyQuantileQFunction as NoisyQuantileQFunction
    from surreal.model import QFunction as QFunction
    from surreal.model import QuantileQFunction as QuantileQFunction
    from surreal.model import SoftActorCritic as SoftActorCritic
    from surreal.replay import DemonstrationReplay as DemonstrationReplay
    from surreal.replay import FIFOReplay as FIFOReplay
    from surreal.replay import HindsightReplay as HindsightReplay
    from surreal.replay import MixedReplay as MixedReplay
    from surreal.replay import MixedTrajectoryReplay as MixedTrajectoryReplay
    from surreal.replay import PrioritizedReplay as PrioritizedReplay
    from surreal.replay import PrioritizedSequenceReplay as PrioritizedSequenceReplay
    from surreal.replay import Replay as Replay
    from surreal.replay import SequenceReplay as SequenceReplay
    from surreal.replay import TrajectoryReplay as TrajectoryReplay
    from surreal.replay import UniformReplay as UniformReplay
    from surreal.run.observers import STOP as STOP
    from surreal.run.observers import Callback as Callback
    from surreal.run.observers import StopWithoutImprovement as StopWithoutImprovement

_LINES = re.compile(r"^    from (\S+) import \w+ as (\w+)$", re.MULTILINE)
#: Public name -> its module.
_MODULES = {name: module for module, name in _LINES.findall(Path(__file__).read_text(encoding="utf-8"))}
__all__ = list(_MODULES)  # pyright: ignore[reportUnsupportedDunderAll]

# Files of users that name modules by the paths of earlier versions continue to load.
sys.meta_path.insert(0, MovedFinder())


if not TYPE_CHECKING:  # with it, any name would pass for a public one

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
