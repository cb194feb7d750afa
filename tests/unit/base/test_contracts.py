"""The classes that are passed where a contract is asked for have its members, with signatures that fit."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from functools import cache
from textwrap import dedent
from typing import Any

import pytest

import surreal.agent
import surreal.learner
import surreal.replay
from surreal.agent.exported import ExportedAgent
from surreal.base import contracts
from surreal.base.contracts import (
    AgentView,
    BatchIntake,
    BatchSource,
    Broadcaster,
    EnvPool,
    Kept,
    LearnerView,
    ModelView,
    ReplayView,
    RoundParameters,
    Stepper,
    StepSender,
)
from surreal.base.pytorch import Module
from surreal.distributed import ExpSender, TorchBroadcaster
from surreal.envs.pools.game_pool import GamePool
from surreal.envs.pools.local_pool import LocalEnvPool
from surreal.envs.pools.subproc_pool import SubprocEnvPool
from surreal.learner.stepping.optimizers import Optimizer
from surreal.learner.stepping.stepper import LocalStepper, PartStepper, RankStepper, SendingStepper
from surreal.model import Model
from surreal.rlx.pool.pool import RlxEnvPool
from surreal.run.roles.parameter_server import GradientIntake
from surreal.run.session.acting import ListenedParameters
from surreal.run.session.intake import SteppedIntake, ThreadedIntake
from surreal.run.session.ranks.replay import RankReplay


def exported(package: Any, base: type[Any]) -> list[type[Any]]:
    """The public classes of a package that extend `base`."""
    found = [getattr(package, name) for name in package.__all__]
    return [each for each in found if isinstance(each, type) and issubclass(each, base)]


REPLAYS = exported(surreal.replay, surreal.replay.Replay)
IMPLEMENTATIONS: dict[type[Any], list[type[Any]]] = {
    EnvPool: [LocalEnvPool, SubprocEnvPool, GamePool, RlxEnvPool],
    ModelView: [Module, Model],
    AgentView: [*exported(surreal.agent, surreal.agent.Agent), ExportedAgent],
    StepSender: [ExpSender],
    RoundParameters: [ListenedParameters],
    ReplayView: [*REPLAYS, RankReplay],
    BatchIntake: [ThreadedIntake, SteppedIntake, RankReplay, GradientIntake],
    BatchSource: [*REPLAYS, GradientIntake],
    LearnerView: exported(surreal.learner, surreal.learner.Learner),
    Kept: [Module, Optimizer],
    Stepper: [LocalStepper, RankStepper, SendingStepper, PartStepper],
    Broadcaster: [TorchBroadcaster],
}
PAIRS = [(contract, cls) for contract, classes in IMPLEMENTATIONS.items() for cls in classes]


def members(contract: type[Any]) -> dict[str, Any]:
    """What a contract asks for: its functions and properties, and None for each attribute."""
    found: dict[str, Any] = {}
    for owner in reversed(contract.__mro__):
        if owner.__module__ == contracts.__name__:
            found |= dict.fromkeys(inspect.get_annotations(owner))
            found |= {name: each for name, each in vars(owner).items() if not name.startswith("_")}
    return found


def misfits(contract: type[Any], cls: type[Any]) -> Iterator[str]:
    for name, asked in members(contract).items():
        given = inspect.getattr_static(cls, name, None)
        if not inspect.isfunction(asked):
            if not has_attribute(cls, name):
                yield f"{name} is missing"
        elif not inspect.isfunction(given):
            yield f"{name}() is missing"
        elif problem := misfit(inspect.signature(asked), inspect.signature(given)):
            yield f"{name}{inspect.signature(given)} {problem}"


def has_attribute(cls: type[Any], name: str) -> bool:
    """Whether the class has an attribute, or one of its methods sets it."""
    return name in dir(cls) or any(name in stored(each) for each in cls.__mro__ if each.__module__[:8] == "surreal.")


@cache
def stored(cls: type[Any]) -> set[str]:
    """The names of attributes that the methods of a class set, not counting those of its bases."""
    nodes = ast.walk(ast.parse(dedent(inspect.getsource(cls))))
    return {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}


def misfit(asked: inspect.Signature, given: inspect.Signature) -> str:
    """Say why a function cannot be called as the contract says; "" if it can."""
    wanted, found = list(asked.parameters.values())[1:], list(given.parameters.values())[1:]
    for place, parameter in enumerate(wanted):
        if place >= len(found):
            return f"lacks {parameter.name}"
        other = found[place]
        by_name = parameter.kind is not inspect.Parameter.POSITIONAL_ONLY
        if (by_name and other.name != parameter.name) or other.kind is inspect.Parameter.KEYWORD_ONLY:
            return f"has {other.name} where {parameter.name} is asked for"
        if parameter.default is not inspect.Parameter.empty and other.default is inspect.Parameter.empty:
            return f"needs {parameter.name}"
    more = [each.name for each in found[len(wanted) :] if each.default is inspect.Parameter.empty]
    return f"needs {', '.join(more)} too" if more else ""


@pytest.mark.parametrize(("contract", "cls"), PAIRS, ids=lambda each: each.__name__)
def test_class_satisfies_its_contract(contract: type[Any], cls: type[Any]) -> None:
    assert list(misfits(contract, cls)) == []


def test_each_contract_has_a_class() -> None:
    stated = {
        each for each in vars(contracts).values() if inspect.isclass(each) and each.__module__ == contracts.__name__
    }
    assert stated == set(IMPLEMENTATIONS)


def test_signature_that_does_not_fit_is_found() -> None:
    class Sender:
        global_step = 0
        sent_through = ("", 0)

        def send_batch(self, batch: object) -> None: ...

        def send_outcomes(self, rows: object) -> None: ...

        def send_actions(self, env_ids: object, record: object, action: object, shard: int) -> None: ...

        def flush_due(self, timeout_s: float = 0.0) -> None: ...

    assert [each.partition("(")[0] for each in misfits(StepSender, Sender)] == [
        "send_batch",
        "send_outcomes",
        "send_actions",
        "flush",
    ]
