"""A run's entry in Redis: its configuration with its version, that the run exists, and why it ends.

The configuration is that of the launcher, or of the learner that owns the replay; until one of them comes, another
process registers its own. Every process compares when it joins and while it takes part.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from redis.exceptions import NoPermissionError

from surreal import __version__
from surreal.base.errors import ConfigError, ContractError, StoppedError
from surreal.base.system.logs import WaitNotice
from surreal.base.values import json_object
from surreal.config import Config, diff_shared
from surreal.config.loading import from_plain
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.keys import FORMAT, RUNS
from surreal.distributed.telemetry.heartbeats import live_processes

logger = logging.getLogger(__name__)

_MAX_CHARACTERS = 40
_POLL_INTERVAL_S = 0.5


def _require_same_format(client: RedisClient, stored: Mapping[str, Any]) -> None:
    """Refuse a run whose keys this version would misread."""
    if (theirs := stored.get("format", 0)) == FORMAT:
        return
    there = f"format {str(theirs)[:_MAX_CHARACTERS]}, of Surreal {_version_of(stored)}"
    here = f"this process has format {FORMAT}, of Surreal {__version__}"
    deletion = f"delete its keys (surreal stop {client.run} --delete) and resume from its checkpoints"
    problem = f"run {client.run!r} in Redis at {client.address} has {there}, but {here}"
    raise ContractError(f"{problem}; use one version for the whole run, or {deletion}", diff=("format",))


def _is_of_this_version(client: RedisClient, stored: Mapping[str, Any]) -> bool:
    """Whether this version of Surreal wrote the run's configuration; warn if another one did."""
    if (theirs := _version_of(stored)) == __version__:
        return True
    logger.warning(
        "run %s is of Surreal %s, and this process is of Surreal %s; both have format %d, so they fit",
        client.run, theirs, __version__, FORMAT,
    )  # fmt: skip
    return False


def _version_of(stored: Mapping[str, Any]) -> str:
    return str(stored.get("surreal", "before 0.1.0"))[:_MAX_CHARACTERS]


class RunEntry(NamedTuple):
    """A run in the list `surreal:runs`."""

    run: str
    title: str
    created: float


class Registrant(NamedTuple):
    """A process that registers a configuration."""

    name: str  #: its claimed name
    leads: bool  #: whether its configuration is the run's: a launcher, or the learner that owns the replay


def describe(config: Config, registrant: Registrant) -> bytes:
    """Encode a configuration for Redis: the shared part, and everything except addresses, which may hold passwords."""
    content = {"shared": config.shared(), "config": plain_config(config), **registrant._asdict()}
    content |= {"surreal": __version__, "format": FORMAT}
    return json.dumps(content, sort_keys=True).encode()


def plain_config(config: Config) -> dict[str, Any]:
    """Return a configuration without addresses as plain data, for Redis and for checkpoints."""
    plain = config.model_dump(mode="json", by_alias=True)
    del plain["redis"]
    plain["replay"]["shards"] = config.num_shards  # it would be lost with the addresses
    return plain


def stored_config(client: RedisClient, overrides: Sequence[str] = ()) -> Config:
    """Read the configuration that is registered for the run, with overrides for this process."""
    return decode_config(client, _stored(client), overrides)


def decode_config(client: RedisClient, value: bytes, overrides: Sequence[str] = ()) -> Config:
    """Decode a configuration as Redis has it; raises `ConfigError`, or `ContractError` for another format."""
    stored = _parse(value)
    if stored is None:
        raise ConfigError(f"Redis at {client.address} knows no run {client.run!r}; name its configuration", key="--run")
    return _configured(client, stored, overrides)


def wait_for_config(client: RedisClient, overrides: Sequence[str], stop: threading.Event) -> Config:
    """Wait for the configuration of the run's launcher or learner."""
    notice = WaitNotice(logger)
    while True:
        stored = _parse(client.retry(lambda: _stored(client), what="look for the run", stop=stop))
        if stored is not None and stored.get("leads", True):
            return _configured(client, stored, overrides)
        notice.tell(
            "waiting for the learner of run %s at %s, whose configuration is the run's", client.run, client.address
        )
        if stop.wait(_POLL_INTERVAL_S):
            raise StoppedError("stopped while waiting for the run's configuration")


def register(
    client: RedisClient,
    config: Config,
    registrant: Registrant,
    parameter_client: RedisClient | None = None,
    stop: threading.Event | None = None,
) -> bool:
    """Register the configuration for the run, or compare with the registered one; an equal one changes nothing. Returns
    whether it replaced the configuration of processes without a launcher or learner; see `take_over`.

    The configuration of a launcher or learner replaces that of other processes, which notice it in `compare`.
    Otherwise, a different one is replaced only if no process that agreed with it is alive: else, it raises
    `ContractError`, as for live processes of a version whose format differs. The caller has claimed its name already,
    so if two register at the same time, the second finds the first alive.
    """
    mine = describe(config, registrant)
    has_replaced = is_first = False
    while True:
        seen = _stored(client)
        stored = _parse(seen)
        if stored is not None:
            _require_same_format(client, stored)
        differences = () if stored is None else diff_shared(stored["shared"], config.shared())
        is_mine_first = registrant.leads and stored is not None and not stored.get("leads", True)
        is_same = stored is not None and not differences and not is_mine_first
        if is_same and (_is_of_this_version(client, stored or {}) or not registrant.leads):
            break
        if differences and not is_mine_first and _is_defended(client, stored or {}, registrant):
            raise _differs(client, differences)
        try:
            is_first = bool(client.run_script("swap", [client.run_keys.config], [seen, mine]))
        except NoPermissionError:
            if registrant.leads:
                raise
            if differences:
                raise _differs(client, differences) from None
            wait_for_config(client, (), stop or threading.Event())
        if is_first:
            if differences:
                # The model's contract outlives its processes by a minute.
                parameters = parameter_client or client
                parameters.redis.delete(parameters.policy_keys(config.broadcast.policy).contract)
                has_replaced = not (stored or {}).get("leads", True)
            break
    if is_first or registrant.leads:
        with _may_be_refused(registrant):
            _list_run(client, config)
    return has_replaced


def compare(client: RedisClient, config: Config, registrant: Registrant) -> None:
    """Raise `ContractError` if the run has another configuration; register it again if Redis was emptied."""
    stored = _parse(_stored(client))
    if stored is None:
        with _may_be_refused(registrant):
            client.redis.set(client.run_keys.config, describe(config, registrant), nx=True)
            _list_run(client, config)
        return
    _require_same_format(client, stored)
    if differences := diff_shared(stored["shared"], config.shared()):
        raise _differs(client, differences)


@contextmanager
def _may_be_refused(registrant: Registrant) -> Iterator[None]:
    """Ignore a refused write: a launcher or learner, whose Redis user may write, does it."""
    try:
        yield
    except NoPermissionError:
        if registrant.leads:
            raise


def require_fresh(client: RedisClient, policy: str, parameter_client: RedisClient | None = None) -> None:
    """Refuse to continue a finished run by accident."""
    parameters = parameter_client or client
    if parameters.redis.hexists(parameters.policy_keys(policy).params, "version") and not live_processes(client):
        problem = f"run {client.run!r} exists already in Redis at {client.address}, and none of its processes is alive"
        raise ConfigError(f"{problem}; --resume continues it, --run NAME begins another", key="--run")


def request_stop(client: RedisClient, reason: str) -> bool:
    """Request the end of the run; the first reason is kept. Return whether this is the first."""
    return bool(client.redis.set(client.run_keys.stop, reason, nx=True))


def stop_reason(client: RedisClient) -> str:
    """Read why the run ends; "" while it continues."""
    value: Any = client.redis.get(client.run_keys.stop)
    return value.decode(errors="replace") if value else ""


def is_over(client: RedisClient) -> bool | None:
    """Check whether the run has ended; None if Redis does not know it."""
    if stop_reason(client):
        return True
    return None if _parse(_stored(client)) is None else False


def clear_stop(client: RedisClient) -> None:
    """Allow a stopped run to continue."""
    client.redis.delete(client.run_keys.stop)


def list_runs(client: RedisClient) -> list[RunEntry]:
    """All runs that this Redis lists, oldest first."""
    with client.directory() as directory:
        entries: Any = directory.hgetall(RUNS)
    return run_entries(entries)


def run_entries(entries: Mapping[bytes, bytes]) -> list[RunEntry]:
    """Decode what `surreal:runs` contains, oldest first."""
    runs = []
    for run, value in entries.items():
        data = json_object(value)
        runs.append(RunEntry(run.decode(errors="replace"), str(data.get("title", "")), _seconds(data.get("created"))))
    return sorted(runs, key=lambda entry: entry.created)


def _stored(client: RedisClient) -> bytes:
    value: Any = client.redis.get(client.run_keys.config)
    return bytes(value or b"")


def _parse(value: bytes) -> Mapping[str, Any] | None:
    data = json_object(value) if value else {}
    return data if isinstance(data.get("shared"), dict) and isinstance(data.get("config"), dict) else None


def _configured(client: RedisClient, stored: Mapping[str, Any], overrides: Sequence[str]) -> Config:
    _require_same_format(client, stored)
    # Without addresses, as `plain_config` writes it: an address that a peer added would get this process's password.
    plain: dict[str, Any] = {name: value for name, value in stored["config"].items() if name != "redis"}
    return from_plain(plain, overrides, f"run {client.run}")


def _is_defended(client: RedisClient, stored: Mapping[str, Any], registrant: Registrant) -> bool:
    name = str(stored.get("name", ""))[:200]
    is_claimed = name and name != registrant.name and client.redis.exists(client.run_keys.claim(name))
    return bool(is_claimed or live_processes(client))


def _differs(client: RedisClient, differences: Sequence[str]) -> ContractError:
    problem = f"this process differs from run {client.run!r}: {'; '.join(differences)}"
    return ContractError(f"{problem}; use the run's configuration, or another --run", diff=tuple(differences))


def _list_run(client: RedisClient, config: Config) -> None:
    entry = json.dumps({"created": time.time(), "title": config.name})
    with client.directory() as directory:
        directory.hsetnx(RUNS, client.run, entry)


def _seconds(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0
