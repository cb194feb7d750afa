"""Configurations of new apps: algorithms, comments and the preset that each starts from."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ruamel.yaml.comments import CommentedMap

from surreal.base.errors import ConfigError, EnvError
from surreal.config.preset_files import PRESETS
from surreal.config.problems import nearest
from surreal.plugins.apps.document import parse_document
from surreal.plugins.apps.environments import TEMPLATES, Template
from surreal.plugins.apps.explaining import class_summary, meaning_of

#: Algorithms by the name with which presets end: their learner, which stands for the first algorithm that has it, and
#: other names.
ALGORITHMS: dict[str, tuple[str, ...]] = {
    "pg": ("PolicyGradientLearner", "policy-gradient", "reinforce"),
    "a2c": ("A2CLearner",),
    "a3c": ("A2CLearner", "da3c"),  # agents compute its gradients
    "ppo": ("PPOLearner", "dppo"),
    "trpo": ("TRPOLearner",),
    "vtrace": ("VTraceLearner", "impala"),
    "ipg": ("IPGLearner",),
    "dqn": ("DQNLearner",),
    "rainbow": ("QuantileDQNLearner",),
    "r2d2": ("R2D2Learner",),
    "ddpg": ("DDPGLearner",),
    "td3": ("DDPGLearner",),
    "sac": ("SACLearner",),
}


def find_algorithm(name: str) -> str:
    """Return an algorithm's key in ALGORITHMS."""
    wanted = name.lower().replace("_", "-")
    known = {each: own for own, (_, *others) in ALGORITHMS.items() for each in (own, *others)}
    if wanted in known:
        return known[wanted]
    similar = nearest(wanted, list(known))
    advice = f"use one of {', '.join(known)}" if similar is None else f"did you mean {similar}?"
    raise ConfigError(f"{name} is not an algorithm; {advice}", key="-a")


def algorithm_of(class_path: str, gradients: str = "learner") -> str | None:
    """Return the algorithm of `learner.class` and `learner.gradients`, None for a user's class."""
    learner = class_path.rpartition(".")[2]
    found = next((own for own, names in ALGORITHMS.items() if names[0] == learner), None)
    return "a3c" if found == "a2c" and gradients == "agents" else found


_WIDTH = 120
#: Column of a comment next to its setting.
_COLUMN = 38


def comment_sections(document: CommentedMap) -> None:
    """Add a comment to each setting that has none."""
    for section, _ in document.items():
        if isinstance(document[section], CommentedMap):
            for path, mapping, name in list(_settings(document[section], section)):
                _comment(document, path, mapping, name)


def _settings(mapping: CommentedMap, prefix: str) -> Iterator[tuple[str, CommentedMap, str]]:
    """Yield the settings on separate lines: dotted key, mapping that contains the setting, name in it."""
    for name, value in mapping.items():
        path = f"{prefix}.{name}"
        if isinstance(value, CommentedMap) and not value.fa.flow_style():
            if name == "args":
                yield from _settings(value, path)
            continue
        yield path, mapping, name


def _comment(document: CommentedMap, path: str, mapping: CommentedMap, name: str) -> None:
    if _has_comment(mapping, name) or (isinstance(mapping[name], list) and not mapping[name].fa.flow_style()):
        return
    is_class = name == "class" and "." not in path.removesuffix(".class")
    text = class_summary(path.partition(".")[0], document) if is_class else meaning_of(path, document)
    # The first sentence, without parentheses, which mostly cite sources.
    text = re.sub(r" \([^()]*\)", "", text).partition(". ")[0].rstrip(".")
    if not text:
        return
    indent = 2 * path.count(".")
    used = indent + len(f"{name}: {mapping[name]}")
    column = max(_COLUMN, used + 2)
    if column + len(text) + 2 <= _WIDTH:
        mapping.yaml_add_eol_comment(text, name, column=column)
    else:
        lines = textwrap.wrap(text, _WIDTH - indent - 2)
        mapping.yaml_set_comment_before_after_key(name, before="\n".join(lines), indent=indent)


def _has_comment(mapping: CommentedMap, name: str) -> bool:
    noted = mapping.ca.items.get(name)
    return noted is not None and any(
        "#" in token.value for each in noted if each for token in (each if isinstance(each, list) else [each])
    )


#: Sections of an algorithm's settings.
SECTIONS = ("model", "agent", "learner", "replay", "sender", "broadcast")
#: Settings of a preset's agents that do not apply when an environment program plays.
_OF_AGENTS = ("count", "per_process", "show_ui")
#: The environment at the start of a preset; parsing all presets would take a second.
_ENV_ID = re.compile(r"^env:\n  id: (\S+)", re.MULTILINE)
#: Families for environments without presets, by their observations and actions.
_VECTORS, _CONTINUOUS, _IMAGES, _ATARI = "cartpole", "pendulum", "image", "atari"


class Configuration(NamedTuple):
    """Settings of an algorithm, for a family of environments."""

    name: str
    path: Path

    @property
    def algorithm(self) -> str:
        """Its key in ALGORITHMS, "" if it has none."""
        return next((each for each in ALGORITHMS if self.name.endswith(f"-{each}")), "")

    @property
    def family(self) -> str:
        return self.name.removesuffix(f"-{self.algorithm}")

    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    def title(self) -> str:
        return self.text().partition("\n")[0].removeprefix("#").strip()

    def env_id(self) -> str | None:
        found = _ENV_ID.search(self.text())
        return None if found is None else found[1]

    def sections(self) -> CommentedMap:
        """Return all its sections with their comments, without settings that only apply to the run's agents."""
        text = self.text()
        head = text[: text.index("\nversion:") + 1] if "\nversion:" in text else text.partition("\n")[0]
        sections = parse_document(text[len(head) :], self.name)
        for name in _OF_AGENTS:
            sections["agent"].pop(name, None)
        return sections


def configurations() -> list[Configuration]:
    """List all configurations by name, without the presets that only show RLX."""
    folders = (PRESETS, TEMPLATES / "configurations")  # the second one overrides the first
    paths = {path.stem: path for folder in folders for path in folder.glob("*.yaml")}
    return [Configuration(name, path) for name, path in sorted(paths.items()) if not name.endswith("-rlx")]


def families(template: Template, env_id: str) -> list[str]:
    """List the families of settings that suit an environment, the best first."""
    exact = dict.fromkeys(each.family for each in configurations() if each.algorithm and each.env_id() == env_id)
    if template.configurations:
        return list(dict.fromkeys([*exact, *template.configurations]))
    return list(dict.fromkeys([*exact, *_by_spaces(env_id)]))


def choose(algorithm: str, among: Sequence[str]) -> Configuration:
    """Choose the settings of an algorithm from families of settings, the best first."""
    known = {each.name: each for each in configurations()}
    for family in among:
        if f"{family}-{algorithm}" in known:
            return known[f"{family}-{algorithm}"]
    fitting = [each.algorithm for each in known.values() if each.family in among and each.algorithm]
    own = [each for each in known.values() if each.algorithm == algorithm and "continuous" not in each.family]
    suited = [env_id for each in own if (env_id := each.env_id())]  # by the id alone, without env.kwargs
    raise ConfigError(
        f"there are no {algorithm} settings for this kind of environment. It has settings for "
        f"{', '.join(dict.fromkeys(fitting)) or 'no algorithm'}; {algorithm} suits "
        f"{', '.join(dict.fromkeys(suited)) or 'no known environment'}",
        key="-a",
    )


def _by_spaces(env_id: str) -> Iterator[str]:
    """Yield families by an environment's spaces, or by its package if it cannot be made here."""
    from surreal.envs import check_env_id, make_env  # imports gymnasium
    from surreal.envs.ids import extra_of

    if env_id.startswith("ALE/"):
        yield from (_ATARI, _IMAGES)
        return
    check_env_id(env_id)
    try:
        env = make_env(env_id)
    except EnvError:
        yield _CONTINUOUS if extra_of(env_id) == "mujoco" else _VECTORS
        return
    shape, actions = env.observation_space.shape, env.action_space
    env.close()
    if shape is not None and len(shape) == 3:
        yield _IMAGES
    elif actions.__class__.__name__ == "Box":
        yield _CONTINUOUS
    else:
        yield _VECTORS
