"""What is gathered while a file of the ancestor is read, and the rules that its keys follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


class Draft:
    """Our settings, as far as they are known.

    Args:
        name: of the app.
        algorithm: the ancestor's name of it.
        given: its section, keys with underscores.

    Attributes:
        settings: by dotted key, in the order in which they came.
        left_out: keys of the file that are in none of them, with the reasons.
        taken: how many keys are.
        finishing: called when all keys were read.
    """

    def __init__(self, name: str, algorithm: str, given: Mapping[str, Any]) -> None:
        self.name = name
        self.algorithm = algorithm
        self.given = given
        self.settings: dict[str, Any] = {}
        self.left_out: list[tuple[str, str]] = []
        self.taken = 0
        self.finishing: list[Callable[[], None]] = []

    def begin(self, **sections: Mapping[str, Any]) -> None:
        """Set what is so unless the file says otherwise: settings by section, `args__NAME` for arguments."""
        for section, settings in sections.items():
            for name, value in settings.items():
                self.settings[f"{section}.{name.replace('__', '.')}"] = value

    def take(self, key: str, value: Any) -> None:
        """Set one of ours from a key of the file."""
        self.settings[key] = value
        self.taken += 1

    def leave_out(self, key: str, reason: str) -> None:
        """Note that a key has no meaning any more."""
        self.left_out.append((key, reason))


#: What is done with a key: the draft, the key in the file, its value.
Rule = Callable[[Draft, str, Any], None]
Table = Mapping[str, Rule]


def to(*keys: str, by: Callable[[Any], Any] = lambda value: value) -> Rule:
    """Make the rule of a key that is one of ours, or several."""

    def rule(draft: Draft, _: str, value: Any) -> None:
        for key in keys:
            draft.settings[key] = by(value)
        draft.taken += 1

    return rule


def gone(reason: str) -> Rule:
    """Make the rule of a key that has no meaning any more."""
    return lambda draft, key, _: draft.leave_out(key, reason)


def gone_unless(default: Any, reason: str) -> Rule:
    """Make the rule of a key of which Surreal does the default, and nothing else."""

    def rule(draft: Draft, key: str, value: Any) -> None:
        if value == default or value is None:
            draft.taken += 1
        else:
            draft.leave_out(key, f"{value}: {reason}")

    return rule


def counted(draft: Draft, _: str, __: Any) -> None:
    """Be the rule of a key that is read together with another one."""
    draft.taken += 1


def number_or_none(value: Any) -> Any:
    """Read `false` as none, as the ancestor means it."""
    return None if value is False else value


def plain_keys(data: Any) -> Any:
    """Write keys as ours: underscores for hyphens, without `relaax_`, and without the hyphens of 2017 before them."""
    if isinstance(data, dict):
        return {_plain(str(key)): plain_keys(value) for key, value in data.items()}
    return [plain_keys(each) for each in data] if isinstance(data, list) else data


def _plain(key: str) -> str:
    return key.lstrip("-").replace("-", "_").removeprefix("relaax_")
