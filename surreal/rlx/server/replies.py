"""Replies of a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Reply = Mapping[str, Any]

READY: Reply = {"response": "ready"}
DONE: Reply = {"response": "done"}
#: The answer to the end of an episode.
NO_ACTION: Reply = {"response": "action", "data": None}


def error_reply(error: Exception) -> Reply:
    """Build the reply for an error."""
    return {"response": "error", "message": str(error)}


def action_reply(action: Any) -> Reply:
    """Build the reply with an action."""
    return {"response": "action", "data": action}
