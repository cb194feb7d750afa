"""How far a learner is, as text next to the parameters that it publishes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from surreal.base.values import checked_count


def write_progress(
    updates: int,
    global_step: int,
    applied: Mapping[str, int] | None = None,
    learned: Mapping[str, int] | None = None,
    *,
    skipped: int = 0,
) -> str:
    """What a learner sends along with its parameters: how far it is.

    Args:
        updates: of the learner: batches (of agents in rounds: rounds) that it has learned from. Publishing the same
            parameters again does not change it.
        global_step: env steps of the run.
        applied: of a parameter server, the number of the last gradient of each sender that is in the parameters.
        learned: of an on-policy learner, the number of the last chunk of each sender that it has learned from.
        skipped: updates that changed nothing.
    """
    further = {"applied": applied, "learned": learned, "skipped": skipped}
    given = {name: value for name, value in further.items() if value}
    return json.dumps({"updates": updates, "global_step": global_step, **given})


def read_applied(message: str, sender: str) -> int | None:
    """Number of a sender's last gradient that is in the parameters; None if none is known to be."""
    return read_table(message, "applied").get(sender)


def read_learned(message: str, sender: str) -> int | None:
    """Number of a sender's last chunk that the parameters learned from; None if the learner has seen none."""
    return read_table(message, "learned").get(sender)


def read_table(message: str, name: str) -> dict[str, int]:
    """A number for each sender, `applied` or `learned`; empty if there is no such table."""
    table = json_object(message.encode()).get(name)
    try:
        return {sender: checked_count(number) for sender, number in table.items()} if isinstance(table, dict) else {}
    except ValueError:
        return {}


def read_progress(message: str) -> dict[str, int]:
    """How far a learner was when it sent its parameters; empty if the text is another (a user's own broadcaster's)."""
    data = json_object(message.encode())
    try:
        return {key: checked_count(data[key]) for key in ("updates", "global_step")}
    except (KeyError, ValueError):
        return {}


def has_learned(message: str) -> bool:
    """Whether any update has changed the parameters that were sent along with this; true if the text is another."""
    data = json_object(message.encode())
    try:
        return checked_count(data["updates"]) > checked_count(data.get("skipped", 0))
    except (KeyError, ValueError):
        return True


def json_object(value: bytes) -> dict[str, Any]:
    """Decode a JSON object; anything else (bytes from a network are hostile) counts as empty."""
    try:
        data = json.loads(value)
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
