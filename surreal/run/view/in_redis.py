"""Which runs a Redis knows, and how each of them is doing."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import Any

from surreal.base.errors import ConfigError, SurrealError
from surreal.distributed.connection.client import RedisClient
from surreal.run.process import registry
from surreal.run.view.listing import ListedRun
from surreal.run.view.live.snapshot import take_snapshot

_TIMEOUT_S = 5.0


def runs_in_redis(address: str) -> list[ListedRun]:
    """The runs that a Redis knows, oldest first.

    Raises:
        ConfigError: the address is none.
        RedisUnavailableError: it does not answer.
    """
    with open_client(address) as client:
        client.check_server(timeout_s=_TIMEOUT_S)
        entries = registry.list_runs(client)
    found = []
    for entry in entries:
        with suppress(ConfigError), open_client(address, entry.run) as client:  # a name that is none of ours
            found.append(_from_redis(client, entry.title, entry.created))
    return found


def open_client(address: str, run: str = "default") -> RedisClient:
    """A client of a run, which does not wait long.

    Raises:
        ConfigError: the address is none.
    """
    try:
        return RedisClient(address, run=run, retry_timeout_s=_TIMEOUT_S)
    except ValueError as error:
        raise ConfigError(str(error), key="--redis") from error


def _from_redis(client: RedisClient, title: str, created: float) -> ListedRun:
    snapshot, reason = take_snapshot(client), registry.stop_reason(client)
    is_alive = bool(snapshot.alive)
    seed: int | None = None
    with suppress(SurrealError):  # nobody has registered a configuration, or it is one of another version
        seed = registry.stored_config(client).seed
    score = _score(client)
    return ListedRun(
        run=client.run,
        status="running" if is_alive else "over",
        name=title,
        seed=seed,
        reason=reason,
        started=created,
        time_s=max(0.0, time.time() - created) if is_alive else 0.0,
        env_steps=snapshot.env_steps,
        updates=snapshot.updates,
        best_return=snapshot.best_return if score is None else score,
        is_in_redis=True,
    )


def _score(client: RedisClient) -> float | None:
    """Mean return of the best round, as an evaluation without a launcher sends it."""
    text: Any = client.retry(lambda: client.redis.hget(client.run_keys.best, "score"), what="read the best score")
    try:
        return float(json.loads(text)["mean_return"]) if text else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
