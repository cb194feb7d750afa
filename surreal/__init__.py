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

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from surreal.base.moved import MovedFinder

if TYPE_CHECKING:
    from surreal.agent import (
        Agent,
        AgentLoop,
        DeterministicAgent,
        NoisyQAgent,
        PolicyAgent,
        QAgent,
        SamplingAgent,
        SessionAgent,
    )
    from surreal.api import Policy, Result, evaluate, load, train
    from surreal.base.errors import SurrealError
    from surreal.base.schedules import LinearSchedule
    from surreal.base.system.program import run_program
    from surreal.config import Config, load_config
    from surreal.distributed import (
        DurableReplay,
        ExpSender,
        RedisClient,
        TorchBroadcaster,
        TorchListener,
        temporary_run,
    )
    from surreal.envs import (
        Atari,
        Env,
        EpisodeMonitor,
        FrameStack,
        GymEnv,
        LocalEnvPool,
        Visualization,
        Wrapper,
    )
    from surreal.learner import (
        A2CLearner,
        ActorCriticLearner,
        APPOLearner,
        DDPGLearner,
        DQNLearner,
        GradientLearner,
        IPGLearner,
        Learner,
        PolicyGradientLearner,
        PPOLearner,
        PQNLearner,
        QuantileDQNLearner,
        R2D2Learner,
        RemoteLearner,
        SACLearner,
        TRPOLearner,
        VTraceLearner,
    )
    from surreal.model import (
        ActorCritic,
        ConvQFunction,
        DeterministicActorCritic,
        DiscreteSoftActorCritic,
        Model,
        NoisyQFunction,
        NoisyQuantileQFunction,
        QFunction,
        QuantileQFunction,
        SoftActorCritic,
    )
    from surreal.replay import (
        FIFOReplay,
        HindsightReplay,
        MixedReplay,
        MixedTrajectoryReplay,
        PrioritizedReplay,
        PrioritizedSequenceReplay,
        Replay,
        SequenceReplay,
        TrajectoryReplay,
        UniformReplay,
    )
    from surreal.run.observers import STOP, Callback, StopWithoutImprovement

__version__ = "0.1.0"

#: Module -> the public names in it.
_MODULES = {
    "run.observers": ("STOP", "Callback", "StopWithoutImprovement"),
    "api": (
        "Policy",
        "Result",
        "evaluate",
        "load",
        "train",
    ),
    "agent": (
        "Agent",
        "AgentLoop",
        "DeterministicAgent",
        "NoisyQAgent",
        "PolicyAgent",
        "QAgent",
        "SamplingAgent",
        "SessionAgent",
    ),
    "base.errors": ("SurrealError",),
    "base.schedules": ("LinearSchedule",),
    "base.system.program": ("run_program",),
    "config": (
        "Config",
        "load_config",
    ),
    "distributed": (
        "DurableReplay",
        "ExpSender",
        "RedisClient",
        "TorchBroadcaster",
        "TorchListener",
        "temporary_run",
    ),
    "envs": (
        "Atari",
        "Env",
        "EpisodeMonitor",
        "FrameStack",
        "GymEnv",
        "LocalEnvPool",
        "Visualization",
        "Wrapper",
    ),
    "learner": (
        "A2CLearner",
        "APPOLearner",
        "ActorCriticLearner",
        "DDPGLearner",
        "DQNLearner",
        "GradientLearner",
        "IPGLearner",
        "Learner",
        "PPOLearner",
        "PQNLearner",
        "PolicyGradientLearner",
        "QuantileDQNLearner",
        "R2D2Learner",
        "RemoteLearner",
        "SACLearner",
        "TRPOLearner",
        "VTraceLearner",
    ),
    "model": (
        "ActorCritic",
        "ConvQFunction",
        "DeterministicActorCritic",
        "DiscreteSoftActorCritic",
        "Model",
        "NoisyQFunction",
        "NoisyQuantileQFunction",
        "QFunction",
        "QuantileQFunction",
        "SoftActorCritic",
    ),
    "replay": (
        "FIFOReplay",
        "HindsightReplay",
        "MixedReplay",
        "MixedTrajectoryReplay",
        "PrioritizedReplay",
        "PrioritizedSequenceReplay",
        "Replay",
        "SequenceReplay",
        "TrajectoryReplay",
        "UniformReplay",
    ),
}
__all__ = [
    "STOP",
    "A2CLearner",
    "APPOLearner",
    "ActorCritic",
    "ActorCriticLearner",
    "Agent",
    "AgentLoop",
    "Atari",
    "Callback",
    "Config",
    "ConvQFunction",
    "DDPGLearner",
    "DQNLearner",
    "DeterministicActorCritic",
    "DeterministicAgent",
    "DiscreteSoftActorCritic",
    "DurableReplay",
    "Env",
    "EpisodeMonitor",
    "ExpSender",
    "FIFOReplay",
    "FrameStack",
    "GradientLearner",
    "GymEnv",
    "HindsightReplay",
    "IPGLearner",
    "Learner",
    "LinearSchedule",
    "LocalEnvPool",
    "MixedReplay",
    "MixedTrajectoryReplay",
    "Model",
    "NoisyQAgent",
    "NoisyQFunction",
    "NoisyQuantileQFunction",
    "PPOLearner",
    "PQNLearner",
    "Policy",
    "PolicyAgent",
    "PolicyGradientLearner",
    "PrioritizedReplay",
    "PrioritizedSequenceReplay",
    "QAgent",
    "QFunction",
    "QuantileDQNLearner",
    "QuantileQFunction",
    "R2D2Learner",
    "RedisClient",
    "RemoteLearner",
    "Replay",
    "Result",
    "SACLearner",
    "SamplingAgent",
    "SequenceReplay",
    "SessionAgent",
    "SoftActorCritic",
    "StopWithoutImprovement",
    "SurrealError",
    "TRPOLearner",
    "TorchBroadcaster",
    "TorchListener",
    "TrajectoryReplay",
    "UniformReplay",
    "VTraceLearner",
    "Visualization",
    "Wrapper",
    "evaluate",
    "load",
    "load_config",
    "run_program",
    "temporary_run",
    "train",
]

# Files of users that name modules by the paths of earlier versions continue to load.
sys.meta_path.insert(0, MovedFinder())


def __getattr__(name: str) -> object:
    module = next((module for module, names in _MODULES.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
