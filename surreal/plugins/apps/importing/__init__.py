"""Converts an app.yaml of RELAAX (1.1.0, or of 2017), and lists keys that no longer have a meaning, with reasons.

draft.py        the settings of Surreal so far, and the keys of environment, servers, checkpoints and metrics
algorithms.py   the keys of the section `algorithm`; on_policy.py and off_policy.py have those of single algorithms
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml.comments import CommentedMap

from surreal.base.errors import ConfigError
from surreal.config.problems import nearest
from surreal.config.yaml_tree import parse
from surreal.plugins.apps.composing import spaced
from surreal.plugins.apps.configurations import comment_sections
from surreal.plugins.apps.document import save_text, set_value
from surreal.plugins.apps.importing.algorithms import ALGORITHMS, COMMON, INPUT_OUTPUT, of_2017, take_spaces
from surreal.plugins.apps.importing.draft import SERVERS, Draft, Table, plain_keys

_ORDER = (
    "env", "environment", "relaax_rlx_server", "rlx", "model", "agent", "learner", "replay", "sender", "broadcast",
    "eval", "checkpoint", "run",
)  # fmt: skip


class Imported(NamedTuple):
    """Result of an import."""

    settings: int  #: number of keys that were converted
    left_out: list[tuple[str, str]]  #: the other keys, with the reasons
    kept: list[Path]  #: path of an earlier file


def import_file(source: Path, target: Path) -> Imported:
    """Convert a file.

    Args:
        source: an app.yaml of RELAAX.
        target: path of the result; an existing file is kept under another name.

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


def convert(data: dict[str, Any], *, name: str) -> Draft:
    """Convert the content of a file; `name` is the app's name if the file has none.

    Raises:
        ConfigError: the file has no algorithm, or an unknown one.
    """
    data = plain_keys(data)
    given = data.get("algorithm")
    if not isinstance(given, dict):
        raise ConfigError("the file has no section algorithm: it is not an app.yaml of RELAAX")
    algorithm = str(given.get("name") or Path(str(given.get("path", ""))).name).replace("-", "_")
    implied = of_2017(algorithm, given) if "state_size" in given else {}
    data["algorithm"] = given = implied | given
    algorithm = {"da3c_cont": "da3c", "trpo_gae": "trpo"}.get(algorithm, algorithm)
    if algorithm not in ALGORITHMS:
        similar = nearest(algorithm, list(ALGORITHMS))
        advice = f"did you mean {similar}?" if similar else f"known ones are {', '.join(ALGORITHMS)}"
        raise ConfigError(f"algorithm.name is {algorithm!r}, which Surreal does not know; {advice}")
    draft = Draft(name, algorithm, given)
    own, begin = ALGORITHMS[algorithm]
    begin(draft)
    take_spaces(draft)
    table = {f"algorithm.{key}": rule for key, rule in {**COMMON, **INPUT_OUTPUT, **own}.items()}
    _take(draft, data, {**SERVERS, **table}, "")
    draft.taken -= sum(len(value) if isinstance(value, dict) else 1 for value in implied.values())
    for finish in draft.finishing:
        finish()
    return draft


def _take(draft: Draft, section: dict[str, Any], table: Table, prefix: str) -> None:
    for name, value in section.items():
        key = f"{prefix}{name}"
        rule = table.get(key)
        if rule is not None:
            rule(draft, key, value)
        elif isinstance(value, dict) and any(known.startswith(f"{key}.") for known in table):
            _take(draft, value, table, f"{key}.")
        elif prefix == "environment.":  # a setting of the program
            draft.take(key, value)
        else:
            similar = nearest(key, list(table))
            advice = f"; {similar} is" if similar else ""
            draft.leave_out(key, f"it is not a key of RELAAX 1.1.0, where it had no effect{advice}")


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
