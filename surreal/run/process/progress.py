"""Progress of a learner, as text next to the parameters that it publishes."""

from __future__ import annotations

import json
from collections.abc import Mapping

from surreal.base.values import checked_count, json_object


def write_progress(
    updates: int,
    global_step: int,
    applied: Mapping[str, int] | None = None,
    learned: Mapping[str, int] | None = None,
    *,
    skipped: int = 0,
) -> str:
    """Encode how far a learner is: `updates` that it has learned from (batches, or the agents' rounds; publishing the
    same parameters again does not change them), of which `skipped` changed nothing, and the run's env steps.

    `applied` has the number of each sender's last gradient in the parameters of a parameter server, `learned` that of
    each sender's last chunk that an on-policy learner has learned from.
    """
    further = {"applied": applied, "learned": learned, "skipped": skipped}
    given = {name: value for name, value in further.items() if value}
    return json.dumps({"updates": updates, "global_step": global_step, **given})


def read_applied(message: str, sender: str) -> int | None:
    """Read the number of a sender's last gradient in the parameters; None if unknown."""
    return read_table(message, "applied").get(sender)


def read_learned(message: str, sender: str) -> int | None:
    """Read the number of a sender's last chunk that the learner has learned from; None if there is none."""
    return read_table(message, "learned").get(sender)


def read_table(message: str, name: str) -> dict[str, int]:
    """Read the table `applied` or `learned`, a number for each sender; empty if there is none."""
    table = json_object(message.encode()).get(name)
    try:
        return {sender: checked_count(number) for sender, number in table.items()} if isinstance(table, dict) else {}
    except ValueError:
        return {}


def read_progress(message: str) -> dict[str, int]:
    """Read how far the learner was; empty if a user's own broadcaster wrote another text."""
    data = json_object(message.encode())
    try:
        return {key: checked_count(data[key]) for key in ("updates", "global_step")}
    except (KeyError, ValueError):
        return {}


def has_learned(message: str) -> bool:
    """Whether any update has changed the parameters; true if the text is another."""
    data = json_object(message.encode())
    try:
        return checked_count(data["updates"]) > checked_count(data.get("skipped", 0))
    except (KeyError, ValueError):
        return True
