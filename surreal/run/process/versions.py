"""Whether processes of two versions of Surreal can share a run, by what its configuration in Redis says."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from surreal import __version__
from surreal.base.errors import ContractError
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.keys import FORMAT

logger = logging.getLogger(__name__)

_MAX_CHARACTERS = 40


def stamp() -> dict[str, Any]:
    """What this version writes into a run's configuration."""
    return {"surreal": __version__, "format": FORMAT}


def require_same_format(client: RedisClient, stored: Mapping[str, Any]) -> None:
    """Refuse a run whose keys this version would misread.

    Raises:
        ContractError: its format is another one.
    """
    if (theirs := stored.get("format", 0)) == FORMAT:
        return
    raise ContractError(
        f"run {client.run!r} in Redis at {client.address} has format {str(theirs)[:_MAX_CHARACTERS]}, of Surreal "
        f"{version_of(stored)}, but this process has format {FORMAT}, of Surreal {__version__}; use one version for "
        f"the whole run, or delete its keys (surreal stop {client.run} --delete) and resume from its checkpoints",
        diff=("format",),
    )


def tell_other_version(client: RedisClient, stored: Mapping[str, Any]) -> None:
    """Warn if another version wrote the run's configuration, although its format is the same."""
    if (theirs := version_of(stored)) != __version__:
        logger.warning(
            "run %s is of Surreal %s, and this process is of Surreal %s; both have format %d, so they fit",
            client.run, theirs, __version__, FORMAT,
        )  # fmt: skip


def version_of(stored: Mapping[str, Any]) -> str:
    """The version that wrote a run's configuration."""
    return str(stored.get("surreal", "before 0.1.0"))[:_MAX_CHARACTERS]
