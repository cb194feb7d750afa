"""Makes and changes apps: `surreal new`, `surreal generate -e`, `surreal config -a` and `-e`.

An app.yaml is composed of the sections of an environment's template and those of an algorithm's settings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml.comments import CommentedMap

from surreal.base.errors import ConfigError
from surreal.config.classes import add_python_path
from surreal.config.loading import parse_override
from surreal.plugins.apps.configurations import (
    SECTIONS,
    Configuration,
    algorithm_of,
    choose,
    comment_sections,
    configurations,
    families,
    find_algorithm,
)
from surreal.plugins.apps.document import (
    back_up,
    get_value,
    join_sections,
    merge,
    parse_document,
    read_document,
    save_text,
    set_value,
    split_sections,
    to_text,
)
from surreal.plugins.apps.environments import TEMPLATES, Template, find_template, template_of
from surreal.plugins.apps.local_copy import is_local, use_local

CONFIG_NAME = "app.yaml"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class Change(NamedTuple):
    """A change of an app."""

    template: Template | None  #: template of its environment; None: it was not made from one
    configuration: Configuration | None  #: new settings of its algorithm; None: they stayed
    kept: list[Path]  #: paths of the earlier files
    warning: str = ""


def new_app(folder: Path, environment: str, algorithm: str | None) -> Change:
    """Make an app with the name of its folder, for a template's name or alias, or a name that a pattern matches.

    Raises:
        ConfigError: the folder exists, or the environment or algorithm is unknown; nothing was written.
    """
    name = folder.name
    if not _NAME.fullmatch(name):
        must = "1 to 64 letters, digits, dots, dashes and underscores, the first a letter or digit"
        raise ConfigError(f"{name!r} is not a name for an app; it must be {must}", key="NAME")
    if folder.exists():
        raise ConfigError(f"{folder} already exists; choose another name, or change it with `surreal generate`")
    template = find_template(environment)
    add_python_path([str(folder.resolve().parent)])  # the user's classes may be there
    template, configuration = _choose_variant(template, find_algorithm(algorithm or template.algorithm))
    text = compose(name, template, configuration)
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be made: {error.strerror}") from error
    (folder / CONFIG_NAME).write_text(text, encoding="utf-8")
    (folder / ".gitignore").write_bytes((TEMPLATES / "common" / "gitignore").read_bytes())
    _write_files(folder, template, name)
    return Change(template, configuration, [])


def _choose_variant(template: Template, algorithm: str) -> tuple[Template, Configuration]:
    """Choose an environment of the template that suits the algorithm, and the algorithm's settings."""
    problem: ConfigError | None = None
    for variant in template.variants():
        try:
            return variant, choose(algorithm, families(variant, _env_id(variant)))
        except ConfigError as error:
            problem = problem or error
    raise problem or ConfigError(f"template {template.name} has no environment", key="-e")


def switch_environment(config: Path, environment: str, *, has_files: bool) -> Change:
    """Replace an app's environment. The algorithm stays, and so do its settings if they suit both environments.

    With `has_files`, program and README are replaced too; the earlier ones are kept under other names.

    Raises:
        ConfigError: the environment is unknown, or has no settings of the app's algorithm; nothing was written.
    """
    document, template = read_document(config), find_template(environment)
    app = str(document.get("name") or config.resolve().parent.name)
    before, now = fitting_families(document), families(template, _env_id(template))
    configuration = choose(_algorithm_of(document) or find_algorithm(template.algorithm), now)
    text = config.read_text(encoding="utf-8")
    text = _replace(text, _ENVIRONMENT, _environment(app, template, configuration))
    has_new_settings = not set(before) & set(now)
    if has_new_settings:
        text = _with_algorithm(text, configuration, config.parent)
    kept = [save_text(config, text)]
    if has_files:
        for path in (config.parent / "environment", config.parent / "README.md"):
            kept.append(back_up(path))
            path.unlink(missing_ok=True)  # a folder has been moved
        _write_files(config.parent, template, app)
    return Change(template, configuration if has_new_settings else None, [each for each in kept if each is not None])


def switch_algorithm(config: Path, name: str, *, keeps_settings: bool = False) -> Change:
    """Replace an app's algorithm and its settings, by the name of an algorithm or of a configuration.

    With `keeps_settings`, nothing changes if the app already has this algorithm.

    Raises:
        ConfigError: the name is unknown, or has no settings for the app's environment; nothing was written.
    """
    document = read_document(config)
    found = next((each for each in configurations() if each.name == name), None)
    if keeps_settings and found is None and find_algorithm(name) == _algorithm_of(document):
        return Change(template_of(document), None, [])
    among = fitting_families(document)
    configuration = found or choose(find_algorithm(name), among)
    warning = ""
    if among and configuration.family not in among:
        env_id = get_value(document, "env.id")
        warning = f"{configuration.name} is made for another kind of environment than {env_id}; check model and limits"
    kept = save_text(config, _with_algorithm(config.read_text(encoding="utf-8"), configuration, config.parent))
    return Change(template_of(document), configuration, [] if kept is None else [kept], warning)


def _algorithm_of(document: Mapping[str, Any]) -> str | None:
    learner_class, gradients = (str(get_value(document, f"learner.{name}") or "") for name in ("class", "gradients"))
    return algorithm_of(learner_class, gradients)


def switch_local(config: Path, *, to_local: bool) -> Change:
    """Make an app.yaml use the files in its folder `algorithm`, or the package's."""
    document = read_document(config)
    use_local(document, config.parent, is_local=to_local)
    return _saved(config, document)


def set_settings(config: Path, settings: Mapping[str, str]) -> Change:
    """Change settings of an app.yaml, all or none of them; its comments stay.

    Raises:
        ConfigError: a setting is unknown, or its value is wrong; nothing was written.
    """
    document = read_document(config)
    for key, text in settings.items():
        name, value = parse_override(f"{key.replace('-', '_')}={text}")
        set_value(document, name, value)
    return _saved(config, document)


def _saved(config: Path, document: CommentedMap) -> Change:
    kept = save_text(config, to_text(document))
    return Change(template_of(document), None, [] if kept is None else [kept])


def _with_algorithm(text: str, configuration: Configuration, folder: Path) -> str:
    """Replace the algorithm in the text of an app.yaml; its environment stays, except the preparation of images."""
    before, new = parse_document(text, CONFIG_NAME), _algorithm(configuration)
    env = before["env"]
    if configuration.env_id() == env.get("id"):
        _prepare(env, configuration.sections())
        new["env"] = env
    text = _replace(text, (*SECTIONS, *(["env"] if "env" in new else [])), new)
    document = parse_document(text, CONFIG_NAME)
    if is_local(before):
        use_local(document, folder, is_local=True, only_if_there=True)
    return to_text(document)


def fitting_families(document: CommentedMap) -> list[str]:
    """List the families of settings that suit an app's environment."""
    template, env_id = template_of(document), str(get_value(document, "env.id"))
    if template is None:
        shows_images = len(get_value(document, "env.observation_space.shape") or ()) in (2, 3)
        template = Template("", "", "", configurations=("image",) if shows_images else ())
        if get_value(document, "env.observation_space") is not None and not template.configurations:
            template = Template("", "", "", configurations=("cartpole", "pendulum"))
    return families(template, env_id)


def _env_id(template: Template) -> str:
    return str(template.sections("app", "")["env"]["id"])


def _write_files(folder: Path, template: Template, app: str) -> None:
    for inside, content in template.files(app):
        path = folder / inside
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


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


def _environment(app: str, template: Template, configuration: Configuration) -> CommentedMap:
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
