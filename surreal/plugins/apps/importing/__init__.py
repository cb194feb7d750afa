"""Converts an app.yaml of RELAAX (1.1.0, or of 2017), and lists keys that no longer have a meaning, with reasons.

relaax.yaml   each key and what it becomes, and the settings that each algorithm begins with
rules.py      how an entry of relaax.yaml converts a key, and the rules that some entries name
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml.comments import CommentedMap

from surreal.base.errors import ConfigError
from surreal.config.problems import nearest
from surreal.config.yaml_tree import parse, read_table
from surreal.plugins.apps.configurations import comment_sections
from surreal.plugins.apps.creating import spaced
from surreal.plugins.apps.document import save_text, set_value
from surreal.plugins.apps.importing.rules import Draft

_ORDER = (
    "env", "environment", "relaax_rlx_server", "rlx", "model", "agent", "learner", "replay", "sender", "broadcast",
    "eval", "checkpoint", "run",
)  # fmt: skip
#: Images are sent as Pillow images, which arrive as numbers in 0..1.
_IMAGE = {"low": 0.0, "high": 1.0}


class Imported(NamedTuple):
    """Result of an import."""

    settings: int  #: number of keys that were converted
    left_out: list[tuple[str, str]]  #: the other keys, with the reasons
    kept: list[Path]  #: path of an earlier file


def import_file(source: Path, target: Path) -> Imported:
    """Convert a file of RELAAX; if the target exists, it is kept under another name.

    Raises:
        ConfigError: it cannot be read, is not of RELAAX, or has an unknown algorithm; nothing was written.
    """
    draft = convert(_read(source), name=source.resolve().parent.name)
    document = CommentedMap(version=1, name=draft.name)
    sections = CommentedMap()
    for key, value in draft.settings.items():
        set_value(sections if "." in key else document, key, value)
    sections = CommentedMap((name, sections[name]) for name in _ORDER if name in sections)
    comment_sections(sections)
    top = "".join(f"{key}: {value}\n" for key, value in document.items())
    head = f"# From {source.name} of RELAAX, by `surreal config import`.\n"
    kept = save_text(target, f"{head}{top}\n{spaced(sections)}")
    return Imported(draft.taken, draft.left_out, [] if kept is None else [kept])


def read_tables() -> dict[str, Any]:
    """Read relaax.yaml, whose head explains it."""
    return dict(read_table(__package__, "relaax.yaml"))


def convert(data: dict[str, Any], *, name: str) -> Draft:
    """Convert the content of a file; `name` is the app's name if the file has none."""
    data = _plain_keys(data)
    given = data.get("algorithm")
    if not isinstance(given, dict):
        raise ConfigError("the file has no section algorithm: it is not an app.yaml of RELAAX")
    algorithm = str(given.get("name") or Path(str(given.get("path", ""))).name).replace("-", "_")
    implied = _implied_in_2017(algorithm, given) if "state_size" in given else {}
    data["algorithm"] = given = implied | given
    algorithm = {"da3c_cont": "da3c", "trpo_gae": "trpo"}.get(algorithm, algorithm)
    tables = read_tables()
    known = tables["algorithms"]
    if algorithm not in known:
        similar = nearest(algorithm, list(known))
        advice = f"did you mean {similar}?" if similar else f"known ones are {', '.join(known)}"
        raise ConfigError(f"algorithm.name is {algorithm!r}, which Surreal does not know; {advice}")
    own = known[algorithm]
    draft = Draft(name, algorithm, given, dict(own["settings"]))
    if "steps" in own:
        draft.steps("", own["steps"])
    _set_spaces(draft)
    draft.taken = -sum(len(value) if isinstance(value, dict) else 1 for value in implied.values())
    keys = {f"algorithm.{key}": entry for key, entry in {**tables["common"], **own["keys"]}.items()}
    _take(draft, data, {**tables["servers"], **keys}, "")
    for finish in draft.finishing:
        finish()
    return draft


def _take(draft: Draft, section: dict[str, Any], table: Mapping[str, Any], prefix: str) -> None:
    for name, value in section.items():
        key = f"{prefix}{name}"
        if key in table:
            draft.convert(table[key], key, value)
        elif isinstance(value, dict) and any(known.startswith(f"{key}.") for known in table):
            _take(draft, value, table, f"{key}.")
        elif prefix == "environment.":  # a setting of the program
            draft.take(key, value)
        else:
            similar = nearest(key, list(table))
            advice = f"; {similar} is" if similar else ""
            draft.leave_out(key, f"it is not a key of RELAAX 1.1.0, where it had no effect{advice}")


def _set_spaces(draft: Draft) -> None:
    """Set the spaces, because nothing else is known about the environment's program."""
    given, output = draft.given.get("input") or {}, draft.given.get("output") or {}
    shape = list(given.get("shape") or given.get("image") or draft.given.get("state_size") or [0])
    size = output.get("action_size", draft.given.get("action_size", 1))
    size = size[0] if isinstance(size, list) else size
    image = _IMAGE if given.get("use_convolutions") and len(shape) > 1 else {}
    space: dict[str, Any] = {"type": "discrete", "n": size}
    if output.get("continuous", draft.algorithm == "ddpg"):
        scale = float(output.get("scale", 1.0))
        low, high = output.get("action_low") or [-scale], output.get("action_high") or [scale]
        space = {"type": "box", "shape": [size], "low": float(min(low)), "high": float(max(high))}
    draft.settings |= {
        "env.id": "environment",
        "env.observation_space": {"type": "box", "shape": shape, **image},
        "env.action_space": space,
        "rlx.servers": 1,
        "rlx.on_full": "wait",
        "eval.enabled": False,
    }


def _implied_in_2017(algorithm: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings that a 2017 algorithm fixed in code and `given` lacks: networks, filter, learning rate."""
    implied: dict[str, Any] = {}
    if algorithm == "da3c_cont":
        implied = {
            "hidden_sizes": [128, 128], "use_lstm": True, "use_filter": True, "entropy_beta": 1e-3,
            "initial_learning_rate": 1e-4, "output": {"continuous": True},
        }  # fmt: skip
    elif algorithm == "da3c":
        implied = {"hidden_sizes": [256]}
        if len(given["state_size"]) > 1:
            implied["input"] = {"use_convolutions": True, "universe": False, "history": 4}
    return {name: value for name, value in implied.items() if name not in given}


def _plain_keys(data: Any) -> Any:
    """Convert keys to Surreal's style: underscores for hyphens, without `relaax_` and the leading hyphens of 2017."""
    if isinstance(data, dict):
        plain = {str(key).lstrip("-").replace("-", "_").removeprefix("relaax_"): data[key] for key in data}
        return {key: _plain_keys(value) for key, value in plain.items()}
    return [_plain_keys(each) for each in data] if isinstance(data, list) else data


def _read(path: Path) -> dict[str, Any]:
    try:
        data, _ = parse(path.read_text(encoding="utf-8"), path.name)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path} has no sections")
    if data.get("version") == 1 and "env" in data:
        raise ConfigError(f"{path} is already an app.yaml of Surreal (version: 1); nothing was imported")
    return data
