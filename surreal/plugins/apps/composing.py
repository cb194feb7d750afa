"""Composes an app.yaml from the sections of an environment's template and those of an algorithm's settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ruamel.yaml.comments import CommentedMap

from surreal.plugins.apps.configurations import SECTIONS, Configuration, comment_sections
from surreal.plugins.apps.document import join_sections, merge, parse_document, split_sections, to_text
from surreal.plugins.apps.environments import Template

_ENVIRONMENT = ("env", "environment", "rlx", "eval", "checkpoint", "run")
#: Settings of a preset's environment that belong to its algorithm: they prepare images and rewards.
_PREPARATION = ("kwargs", "wrappers", "frame_stack")
_CHECKPOINTS = "checkpoint:\n  checkpoint_time_interval: 60\n"
_LIMIT = "run:\n  max_env_steps: 1_000_000\n"


def compose(app: str, template: Template, configuration: Configuration) -> str:
    """Return the text of a new app.yaml; `app` is the app's name."""
    environment = _environment(app, template, configuration)
    document = CommentedMap((name, environment[name]) for name in _ENVIRONMENT[:3])
    document |= _algorithm(configuration)
    document |= CommentedMap((name, environment[name]) for name in _ENVIRONMENT[3:])
    head = "# An app of Surreal. `surreal run` trains, `surreal config explain KEY` explains a setting.\n"
    imports = split_sections(to_text(template.sections(app, configuration.family))).get("python_path", "")
    return f"{head}version: 1\nname: {app}\n{imports}\n{spaced(document)}"


def with_environment(text: str, app: str, template: Template, configuration: Configuration) -> str:
    """Replace the environment in the text of an app.yaml; its algorithm stays."""
    return _replace(text, _ENVIRONMENT, _environment(app, template, configuration))


def with_algorithm(text: str, configuration: Configuration) -> str:
    """Replace the algorithm in the text of an app.yaml; its environment stays, except the preparation of images."""
    new = _algorithm(configuration)
    env = parse_document(text, "app.yaml")["env"]
    if configuration.env_id() == env.get("id"):
        _prepare(env, configuration.sections())
        new["env"] = env
    return _replace(text, (*SECTIONS, *(["env"] if "env" in new else [])), new)


def _environment(app: str, template: Template, configuration: Configuration) -> CommentedMap:
    """Return the sections around an algorithm: those of the template, else those of the settings."""
    mine, theirs = template.sections(app, configuration.family), configuration.sections()
    is_same = mine["env"].get("id") == (theirs.get("env") or {}).get("id")
    if mine["env"].get("observation_space") is None:
        _prepare(mine["env"], theirs)
    run = theirs.get("run") or parse_document(_LIMIT, "run")["run"]
    evaluation = mine.get("eval") or theirs.get("eval") or CommentedMap()
    if not is_same:  # another environment has other returns
        run.pop("stop_at_return", None)
        evaluation.pop("confirm_episodes", None)
    merge(run, mine.get("run") or CommentedMap())
    checkpoint = parse_document(_CHECKPOINTS, "checkpoint")["checkpoint"]
    merge(checkpoint, mine.get("checkpoint") or CommentedMap())
    found = CommentedMap((name, mine.get(name) or CommentedMap()) for name in _ENVIRONMENT[:3])
    found |= CommentedMap(eval=evaluation, checkpoint=checkpoint, run=run)
    comment_sections(found)
    return found


def _algorithm(configuration: Configuration) -> CommentedMap:
    theirs = configuration.sections()
    found = CommentedMap((name, theirs[name]) for name in SECTIONS if name in theirs)
    found["agent"].insert(1, "count", 0, comment="the environment program plays, not the run's agents")
    comment_sections(found)
    return found


def _prepare(env: CommentedMap, theirs: CommentedMap) -> None:
    """Copy a preset's preparation of observations and rewards; the program applies wrappers that a server cannot."""
    given = theirs.get("env") or CommentedMap()
    for name in _PREPARATION:
        if name in given and name not in env:
            env[name] = given[name]
    for wrapper in env.get("wrappers", ()):
        if "on_client" not in wrapper and not _is_remote(wrapper):
            wrapper["on_client"] = True


def _is_remote(wrapper: Any) -> bool:
    """Whether a server can apply a wrapper: it must be a function of an observation, a reward or an action."""
    from surreal.base.errors import EnvError
    from surreal.envs import WrapperSpec  # imports gymnasium
    from surreal.rlx.pool.wrapping import check_remote

    try:
        check_remote(WrapperSpec(wrapper.get("name") or wrapper["class"]))
    except EnvError:
        return False
    return True


def spaced(document: CommentedMap) -> str:
    """Write sections with an empty line before each."""
    return join_sections(
        {name: f"\n{text.strip()}\n" for name, text in split_sections(to_text(document)).items()}
    ).lstrip()


def _replace(text: str, names: Sequence[str], new: CommentedMap) -> str:
    """Replace sections of a text; new ones are inserted after the section that precedes them in `new`."""
    old, texts = split_sections(text), split_sections("\n" + spaced(new))
    result = {name: texts.get(name, part) for name, part in old.items() if name in texts or name not in names}
    order = list(texts)
    for number, name in enumerate(order):
        if name not in result:
            before = list(result)
            place = before.index(order[number - 1]) + 1 if number and order[number - 1] in before else len(before)
            result = {each: result.get(each, texts[name]) for each in (*before[:place], name, *before[place:])}
    return join_sections(result)
