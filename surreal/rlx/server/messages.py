"""Replies, and parts of requests that several kinds of connections read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from surreal.rlx.protocol.errors import RlxError, RlxRequestError, brief

Reply = Mapping[str, Any]
READY: Reply = {"response": "ready"}
DONE: Reply = {"response": "done"}
#: The answer to the end of an episode.
NO_ACTION: Reply = {"response": "action", "data": None}

#: Outputs of policies that clients may want.
OUTPUTS = ("q_values", "probabilities")

#: Tells the sessions of one WebSocket apart.
Sid = str | int | None


def action_reply(action: Any, outputs: Reply, step_id: int = 0) -> Reply:
    """Build the reply with an action, further outputs of the policy, and the number of a step whose reward may change
    (0: there is none), or with the error that took its place.
    """
    if isinstance(action, RlxError):
        return error_reply(action)
    return {"response": "action", "data": action, **outputs, **({"step_id": step_id} if step_id else {})}


def error_reply(error: Exception) -> Reply:
    """Build the reply for an error."""
    return {"response": "error", "message": str(error)}


def read_flag(request: Mapping[str, Any], name: str) -> bool:
    """Read an optional boolean; JSON's and old clients' 0 and 1 count as well."""
    value = request.get(name)
    if value is None or value is False:
        return False
    if value is True or (type(value) is int and value in (0, 1)):
        return bool(value)
    raise RlxRequestError(f"{name} must be true or false, got {brief(value)}")


def read_wants(request: Mapping[str, Any]) -> tuple[str, ...]:
    """Read the names of outputs that a client wants with its actions."""
    names = request.get("want")
    if names is None:
        return ()
    if not isinstance(names, list) or not all(isinstance(name, str) and name in OUTPUTS for name in names):
        raise RlxRequestError(f"want must be a list of {' and '.join(OUTPUTS)}, got {brief(names)}")
    return tuple(dict.fromkeys(names))


def read_policy(request: Mapping[str, Any], names: Iterable[str]) -> str | None:
    """Read which policy a client names; None: the server's own."""
    name = request.get("policy")
    if name is None or (isinstance(name, str) and name in names):
        return name
    known, near = sorted(names), get_close_matches(name[:100], names, n=1) if isinstance(name, str) else []
    hint = f"; did you mean {near[0]}?" if near else ""
    raise RlxRequestError(f"policy {brief(name)} is not one of {', '.join(known) or '(none)'}{hint}")


def is_sid(value: Any) -> bool:
    """Whether a value may name a session."""
    return value is None or (isinstance(value, str) and len(value) <= 200) or type(value) is int
