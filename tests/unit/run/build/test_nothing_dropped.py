"""What is given acts or is refused: every setting, and every argument of every class that a configuration may name."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

import surreal
import surreal.agent
import surreal.learner
import surreal.model
import surreal.replay
from surreal.agent import SessionAgent
from surreal.base.errors import ConfigError, EnvError
from surreal.base.schedules import schedule_from_config
from surreal.config import Config, accepted_names, load_config
from surreal.config.schema.environment import WrapperConfig
from surreal.config.schema.rlx import TrainingConfig, TrainingServerConfig
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.shards import ReplayShards
from surreal.envs.make import make_env
from surreal.envs.wrappers.named import WrapperSpec, find_wrapper, wrapper_names
from surreal.run.build import learning
from surreal.run.build.acting import AGENT, MODEL
from surreal.run.build.construct import Recipe, Setting, check
from surreal.run.build.learning import LEARNER, REPLAY
from surreal.run.process.arguments import RoleArguments
from surreal.run.roles.rlx_client import ClientArguments
from surreal.run.roles.rlx_server import ServerArguments
from tests.pages import load_script

public_classes = load_script("reference_pages").public_classes
PARTS = ((surreal.model, MODEL), (surreal.agent, AGENT), (surreal.learner, LEARNER), (surreal.replay, REPLAY))
CLASSES = [(recipe, cls) for module, recipe in PARTS for cls in public_classes(module, recipe.base)]
NAMES = [f"{recipe.section}: {cls.__name__}" for recipe, cls in CLASSES]

#: A value for each setting that only a class can act on, other than its default.
VALUES: dict[str, Any] = {
    "agent.exploration": 0.25, "device": "cpu", "learner.batch_size": 16, "learner.gamma": 0.5, "learner.n_step": 2,
    "replay.capacity": 5000, "replay.follow": True, "replay.max_age_s": 60.0, "replay.max_bytes": 2**25,
    "replay.mirror_max_bytes": 2**20, "replay.observations": "auto", "replay.pin_memory": False, "replay.prefetch": 3,
    "replay.samples_per_insert": 1.0, "replay.samples_per_insert_tolerance": 1e6, "replay.start_size": 50,
}  # fmt: skip

#: Arguments without which a class cannot be created.
REQUIRED: dict[type[object], dict[str, Any]] = {
    SessionAgent: {"agent.args.session": "my_package.MySession"},
    surreal.replay.DemonstrationReplay: {"replay.args.demonstrations": "my_archive"},
}

#: Sections that only clients read, by their path in the file.
OF_CLIENTS = {TrainingConfig: "environment", TrainingServerConfig: "relaax_rlx_server"}

SOURCES = [path for path in Path(surreal.__file__).parent.rglob("*.py") if "config" not in path.parts[-3:]]


def config_of(recipe: Recipe[Any], cls: type[object], given: dict[str, Any], folder: Path) -> Config:
    """A small file that names the class and gives these settings."""
    sections: dict[str, Any] = {"env": {"id": "CartPole-v1"}}
    for key, value in {f"{recipe.section}.class": f"{cls.__module__}.{cls.__name__}", **given}.items():
        *section, name = key.split(".")
        target = sections
        for part in section:
            target = target.setdefault(part, {})
        target[name] = value
    path = folder / "app.yaml"
    path.write_text(json.dumps(sections))
    return load_config(path)


# -- classes ---------------------------------------------------------------------------------------------------------


def test_there_is_a_value_for_every_setting_of_a_class() -> None:
    assert {setting.key for _, recipe in PARTS for setting in recipe.settings} == VALUES.keys()


@pytest.mark.parametrize(("recipe", "cls"), CLASSES, ids=NAMES)
def test_setting_of_a_class_reaches_it_or_is_refused(recipe: Recipe[Any], cls: type[object], tmp_path: Path) -> None:
    accepted = accepted_names(cls)
    required = REQUIRED.get(cls, {})
    for setting in recipe.settings:
        given = {setting.key: VALUES[setting.key], **required}
        if setting.argument == "samples_per_insert_tolerance":
            given["replay.samples_per_insert"] = 1.0
        config = config_of(recipe, cls, given, tmp_path)
        if setting.argument in accepted:
            check(config, recipe)
            continue
        with pytest.raises(ConfigError, match=f"{cls.__name__} has no argument") as caught:
            check(config, recipe)
        assert caught.value.key in given
        assert "app.yaml line 1" in str(caught.value)


@pytest.mark.parametrize("setting", REPLAY.settings, ids=[setting.key for setting in REPLAY.settings])
def test_setting_of_a_replay_is_handed_over(setting: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "construct", lambda config, recipe, collaborators, offered: offered)
    given = {setting.key: VALUES[setting.key]}
    if setting.argument == "samples_per_insert_tolerance":
        given["replay.samples_per_insert"] = 1.0
    config = config_of(REPLAY, surreal.replay.UniformReplay, given, tmp_path)
    offered: Any = learning.build_replay(config, ReplayShards.of(RedisClient("unix:///nowhere")), seed=0)
    expected = False if setting.argument == "is_owner" else VALUES[setting.key]
    assert offered[setting.argument] == expected


def test_a_follower_bounds_what_it_uses_of_the_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "construct", lambda config, recipe, collaborators, offered: offered)
    given = {"replay.follow": True, "replay.max_bytes": 2**25}
    config = config_of(REPLAY, surreal.replay.UniformReplay, given, tmp_path)
    offered: Any = learning.build_replay(config, ReplayShards.of(RedisClient("unix:///nowhere")), seed=0)
    assert (offered["is_owner"], offered["max_bytes"]) == (False, 2**25)


@pytest.mark.parametrize(("recipe", "cls"), CLASSES, ids=NAMES)
def test_argument_that_a_class_does_not_have_is_refused(recipe: Recipe[Any], cls: type[object], tmp_path: Path) -> None:
    config = config_of(recipe, cls, {f"{recipe.section}.args": {"no_such_thing": 1}}, tmp_path)
    with pytest.raises(ConfigError, match=f"no_such_thing is not an argument of {cls.__name__}"):
        check(config, recipe)


@pytest.mark.parametrize("name", wrapper_names())
def test_argument_that_a_wrapper_does_not_have_is_refused(name: str) -> None:
    with pytest.raises(EnvError, match="no_such_thing"):
        make_env("CartPole-v1", wrappers=[WrapperSpec(name, {"no_such_thing": 1})])


def _constructors() -> Iterator[type[object]]:
    named = [cls for _, cls in CLASSES] + [find_wrapper(name) for name in wrapper_names()]
    owners = {owner for cls in named if inspect.isclass(cls) for owner in cls.__mro__ if "__init__" in vars(owner)}
    ours = [owner for owner in owners if owner.__module__.startswith("surreal.")]
    yield from sorted(ours, key=lambda owner: owner.__qualname__)


@pytest.mark.parametrize("cls", list(_constructors()), ids=lambda cls: cls.__name__)
def test_constructor_uses_every_argument(cls: type[object]) -> None:
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(cls.__init__))).body  # type: ignore[misc]
    assert isinstance(function, ast.FunctionDef)
    given = function.args
    names = {argument.arg for argument in (*given.posonlyargs, *given.args[1:], *given.kwonlyargs)}
    names |= {argument.arg for argument in (given.vararg, given.kwarg) if argument is not None}
    assert names <= {node.id for statement in function.body for node in ast.walk(statement) if type(node) is ast.Name}


# -- settings --------------------------------------------------------------------------------------------------------


def _settings(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[str, str, str]]:
    """Section, name and key of every setting; sections that are named twice are read twice."""
    for name, field in model.model_fields.items():
        inner = field.annotation
        if inspect.isclass(inner) and issubclass(inner, BaseModel):
            if inner not in OF_CLIENTS:
                yield from _settings(inner, (*path, name))
        else:
            yield (path or ("config",))[-1], name, ".".join((*path, name))


def _reads() -> frozenset[tuple[str, str]]:
    """What is read of what, over the whole package: `config.rlx.port` and, of a name, `rlx.port`."""
    found = set()
    for path in SOURCES:
        tree = ast.parse(path.read_text())
        aliases = {
            target.id: value.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            for target, value in _pairs(node)
            if isinstance(target, ast.Name) and isinstance(value, ast.Attribute)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                holder = node.value
                name = holder.attr if isinstance(holder, ast.Attribute) else getattr(holder, "id", "")
                found |= {(name, node.attr), (aliases.get(name, name), node.attr)}
    return frozenset(found)


def _pairs(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=False)
        else:
            yield target, node.value


#: Settings that are read through a property: its section, or `config`, and its name.
DERIVED = {
    "replay.shards": ("config", "num_shards"),
    "sender.lookahead": ("config", "lookahead"),
    "redis.replay_address": ("config", "replay_addresses"),
    "env.interventions": ("env", "has_interventions"),
}
SETTINGS = [*_settings(Config), *_settings(WrapperConfig, ("wrapper",))]


def test_every_setting_is_read() -> None:
    reads, unread = _reads(), []
    handed_over = {setting.key for _, recipe in PARTS for setting in recipe.settings}
    for section, name, key in SETTINGS:
        read = DERIVED.get(key, (section, name))
        if name not in ("class_path", "args", "version") and key not in handed_over and read not in reads:
            unread.append(key)
    # Clients read theirs by their path, or the process that starts them does.
    text = "".join(path.read_text() for path in SOURCES)
    for model, section in OF_CLIENTS.items():
        for name in model.model_fields:
            read = (section, "count" if name == "n_environments" else name)
            if f"{section}/{name}" not in text and read not in reads:
                unread.append(f"{section}.{name}")
    assert len(SETTINGS) > 100
    assert unread == []


@pytest.mark.parametrize(
    ("exploration", "change"),
    [
        ({"type": "constant", "value": 0.5}, {"value": 0.25}),
        *(({"type": "linear", "steps": 100}, change) for change in (
            {"start": 0.5}, {"end": 0.0}, {"steps": 50}, {"begin": 10}
        )),
        ({"type": "piecewise", "points": [[0, 1.0], [100, 0.0]]}, {"points": [[0, 1.0], [100, 0.5]]}),
        *(({"type": "ape_x"}, change) for change in ({"base": 0.5}, {"alpha": 3.0})),
    ],
)  # fmt: skip
def test_setting_of_an_exploration_acts(exploration: dict[str, Any], change: dict[str, Any], tmp_path: Path) -> None:
    def rates(settings: dict[str, Any]) -> list[Any]:
        config = config_of(AGENT, surreal.agent.QAgent, {"agent.exploration": settings}, tmp_path)
        plain = config.agent.exploration_settings()
        assert plain is not None
        schedule = schedule_from_config(plain, indices=[0, 1], count=4)
        return [np.asarray(schedule(step)).tolist() for step in (0, 30, 60, 100)]

    assert rates(exploration) != rates({**exploration, **change})


# -- options of the command line -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [RoleArguments, ServerArguments, ClientArguments])
def test_option_is_read(kind: type) -> None:
    source = "\n".join(path.read_text() for path in SOURCES if "run" in path.parts)
    for field in dataclasses.fields(kind):
        is_read = re.search(rf"(arguments|self|given)\.{field.name}\b", source)
        assert is_read, f"{field.name} is parsed and not looked at"
