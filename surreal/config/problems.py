"""From pydantic's findings to one clear sentence: the key, the value, the limit, the place, the nearest valid name."""

from __future__ import annotations

import difflib
import inspect
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from surreal.base.errors import ConfigError
from surreal.config.schema.fields import Section
from surreal.config.yaml_tree import join

_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping of names to values",
    "model_type": "a mapping of names to values",
    "model_attributes_type": "a mapping of names to values",
}
_LIMITS = {
    "greater_than_equal": (">=", "ge"),
    "greater_than": (">", "gt"),
    "less_than_equal": ("<=", "le"),
    "less_than": ("<", "lt"),
}
#: Settings of RELAAX, Stanford's Surreal and other systems, with the one that means the same here.
OTHER_WORDS = {
    "actor_learning_rate": "learner.args.initial_learning_rate",
    "algorithm": "learner.class",
    "buffer_size": "replay.capacity",
    "checkpoint_dir": "checkpoint.stores",
    "episode_len": "agent.round_steps",
    "gpu": "device",
    "history": "env.frame_stack",
    "hidden_sizes": "model.args.hidden_sizes",
    "learning_rate": "learner.args.initial_learning_rate",
    "lr": "learner.args.initial_learning_rate",
    "memory_size": "replay.capacity",
    "metrics_server": "redis.address",
    "n_envs": "env.num_envs",
    "n_steps": "agent.round_steps",
    "optimizer": "learner.args.optimizer",
    "replay_buffer_size": "replay.capacity",
    "rewards_gamma": "learner.gamma",
    "start_sample_step": "replay.start_size",
    "total_timesteps": "run.max_env_steps",
    "use_lstm": "model.args.use_lstm",
}


def nearest(name: str, candidates: Sequence[str]) -> str | None:
    """Return the candidate most like a misspelled name, first one that ends with it; None if none is like it."""
    longer = [candidate for candidate in candidates if candidate.lower().endswith(f"_{name.lower()}")]
    if longer:
        return min(longer, key=len)
    found = difflib.get_close_matches(name.lower(), [candidate.lower() for candidate in candidates], n=1, cutoff=0.6)
    return next((candidate for candidate in candidates if candidate.lower() == found[0]), None) if found else None


def all_keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield the dotted keys of all settings of a section and the sections in it."""
    for name, field in model.model_fields.items():
        key = join(prefix, field.alias or name)
        yield key
        sections = _sections(field.annotation)
        if len(sections) == 1 and typing.get_origin(field.annotation) is not list:
            yield from all_keys(sections[0], key)


def explain(root: type[BaseModel], error: ValidationError, places: Mapping[str, str], source: str) -> ConfigError:
    """Turn pydantic's findings on the section `root` into one error: the first one in full, and the keys of the others.
    `places` tells where each dotted key came from.
    """
    problems = [_explain_one(root, details, places, source) for details in error.errors(include_url=False)]
    # A misspelt key often leaves another one missing: the misspelling is the thing to say.
    problems.sort(key=lambda problem: " is missing" in str(problem))
    first, others = problems[0], sorted({problem.key for problem in problems[1:]} - {problems[0].key})
    if not others:
        return first
    return ConfigError(f"{first} (also wrong: {', '.join(others)})", key=first.key, source=first.source)


def show(value: object) -> str:
    """Show a value in a message: as YAML names it, and not at any length."""
    if value is None:
        return "empty"
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def place_of(key: str, places: Mapping[str, str], default: str) -> str:
    """Return where a key came from; for an absent key, the place of the keys in it, or else of its nearest parent."""
    within = {place for known, place in places.items() if known.startswith(f"{key}.")}
    if key and key not in places and len(within) == 1:
        return within.pop()
    while key and key not in places:
        key = key.rpartition(".")[0]
    return places.get(key, default)


def _explain_one(root: type[BaseModel], details: ErrorDetails, places: Mapping[str, str], source: str) -> ConfigError:
    parts, _ = _resolve(root, details["loc"])
    key = ".".join(parts)
    kind, context, value = details["type"], details.get("ctx", {}), details["input"]
    place = place_of(key, places, source)
    if kind == "extra_forbidden":
        return _unknown_key(root, details["loc"], place)
    if kind == "missing":
        return ConfigError(f"{key} is missing{_at(place)}; it has no default", key=key, source=place)
    subject = f"{key} is {show(value)}; "
    if kind == "union_tag_not_found":
        subject, must = f"{key}.type is missing; ", "it must be given, as in {type: linear, ...}"
    elif kind == "union_tag_invalid":
        subject = f"{key}.type is {show(context.get('tag'))}; "
        must = f"it must be one of {context.get('expected_tags')}"
    elif kind in _LIMITS:
        sign, name = _LIMITS[kind]
        must = f"it must be {sign} {context[name]}"
    elif kind in _EXPECTED:
        must = f"it must be {_EXPECTED[kind]}"
    elif kind == "literal_error":
        must = f"it must be {context['expected']}"
    elif kind == "string_pattern_mismatch":
        must = "it must be 1 to 64 letters, digits, dots, dashes and underscores, the first a letter or digit"
    elif kind == "value_error":
        must = str(context["error"])
    else:
        must = details["msg"]
    return ConfigError(f"{subject}{must}{_at(place)}", key=key, source=place)


def _unknown_key(root: type[BaseModel], loc: Sequence[str | int], place: str) -> ConfigError:
    """Explain that a key is not a setting, and which setting was probably meant."""
    parents, section = _resolve(root, loc[:-1])
    parent, name = ".".join(parents), str(loc[-1])
    fields = section.model_fields if section is not None else {}
    siblings = [field.alias or name for name, field in fields.items()]
    sibling = nearest(name, siblings)
    meant = OTHER_WORDS.get(name) or (join(parent, sibling) if sibling is not None else _elsewhere(root, name))
    advice = f"did you mean {meant}?" if meant is not None else f"{parent or 'the file'} has {', '.join(siblings)}"
    key = join(parent, name)
    return ConfigError(f"{key} is not a setting{_at(place)}; {advice}", key=key, source=place)


def _elsewhere(root: type[BaseModel], name: str) -> str | None:
    """Find a setting of (almost) that name in another section."""
    by_name: dict[str, list[str]] = {}
    for key in all_keys(root):
        by_name.setdefault(key.rpartition(".")[2], []).append(key)
    found = nearest(name, list(by_name))
    return None if found is None else by_name[found][0]


def _resolve(root: type[BaseModel], loc: Sequence[str | int]) -> tuple[list[str], type[BaseModel] | None]:
    """Follow a location through the sections; pydantic's union tags, which no file has, are left out of the path."""
    parts: list[str] = []
    candidates: list[type[BaseModel]] = [root]
    for item in loc:
        tagged = [section for section in candidates if len(candidates) > 1 and _tag(section) == item]
        if tagged:
            candidates = tagged
            continue
        parts.append(str(item))
        if isinstance(item, int) or (isinstance(item, str) and item.isdecimal()):
            continue
        candidates = [
            found
            for section in candidates
            for name, field in section.model_fields.items()
            if item == (field.alias or name)
            for found in _sections(field.annotation)
        ]
    return parts, candidates[0] if len(candidates) == 1 else None


def _sections(annotation: Any) -> list[type[BaseModel]]:
    if inspect.isclass(annotation) and issubclass(annotation, Section):
        return [annotation]
    return [found for argument in typing.get_args(annotation) for found in _sections(argument)]


def _tag(section: type[BaseModel]) -> object:
    field = section.model_fields.get("type")
    return None if field is None else next(iter(typing.get_args(field.annotation)), None)


def _at(source: str) -> str:
    return f" ({source})" if source else ""
