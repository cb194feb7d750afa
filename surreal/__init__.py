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

from surreal.base.moved import MovedFinder

__version__ = "0.1.0"

_STUB = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
#: Public name -> its module.
_MODULES = {name: module for module, name in re.findall(r"^from (\S+) import \w+ as (\w+)$", _STUB, re.MULTILINE)}
__all__ = list(_MODULES)

# Files of users that name modules by the paths of earlier versions continue to load.
sys.meta_path.insert(0, MovedFinder())


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
