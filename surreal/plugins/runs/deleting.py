"""`surreal runs delete`: a run's folder, and its keys in Redis."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from contextlib import ExitStack, suppress

from surreal.base.errors import BusyError, ConfigError, FolderError, RedisUnavailableError
from surreal.base.system.files import FileLock
from surreal.distributed.connection.address import FoundAddress
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.keys import run_pattern
from surreal.distributed.telemetry.heartbeats import live_processes
from surreal.plugins.recorded.listing import ListedRun
from surreal.plugins.runs.choosing import settings_of
from surreal.run.process.finding import open_client
from surreal.run.process.run_folder import RunFolder

logger = logging.getLogger(__name__)

#: Locks of other processes that write into a run's folder.
_OTHER_LOCKS = ("eval/eval.lock", "collector.lock")
_REDIS_SETTINGS = ("address", "replay_address", "parameter_address")


def require_dead(runs: Sequence[ListedRun]) -> None:
    """Refuse to delete anything while one of the runs is alive."""
    if alive := [run.label for run in runs if run.is_alive]:
        raise BusyError(f"{', '.join(alive)} is alive; `surreal stop` ends a run, then it can be deleted")


def delete(run: ListedRun, address: str | None = None) -> None:
    """Remove a run's keys, then its folder.

    Keys are removed from the given Redis, the one that its folder names, and those of its configuration. If one of the
    latter two does not answer, its keys remain, with a warning.

    Raises:
        BusyError: one of its processes is alive; nothing was removed.
        RedisUnavailableError: the given Redis does not answer.
        FolderError: a file cannot be removed.
    """
    with ExitStack() as stack:
        if run.folder is not None:
            folder = RunFolder(run.folder)
            folder.claim()
            stack.callback(folder.release)
            for name in _OTHER_LOCKS:
                if (run.folder / name).exists():
                    lock = FileLock(run.folder / name)
                    if not lock.acquire():
                        raise BusyError(f"{lock.holder()} still writes into {run.folder}; wait for its end")
                    stack.callback(lock.release)
        for each in dict.fromkeys([*([address] if address else []), *_addresses(run, address)]):
            _delete_keys(run.run, each, must_answer=each == address)
        if run.folder is not None:
            try:
                shutil.rmtree(run.folder)
            except OSError as error:
                raise FolderError(f"{run.folder} could not be removed: {error}") from error


def delete_run(client: RedisClient) -> int:
    """Remove a run's keys from one server; returns their number."""
    if alive := [beat.name for beat in live_processes(client)]:
        raise BusyError(f"run {client.run} is alive ({', '.join(alive)}); stop it first, then delete it")
    # A server of experience or parameters alone has no heartbeats, but the leases of its writers.
    leases = [key for pattern in run_pattern(client.run) for key in client.scan(f"{pattern}lease")]
    if leases:
        lease = leases[0].decode(errors="replace")
        raise BusyError(f"run {client.run} is in use (its lease {lease}); stop it first, then delete it")
    count = client.delete_run()
    if not count:
        raise ConfigError(f"Redis at {client.address} holds nothing of run {client.run!r}")
    return count


def _addresses(run: ListedRun, given: str | None) -> list[str]:
    if run.folder is None:
        return []
    known = RunFolder(run.folder).read_address()
    found: list[str] = [] if known is None else [known[0]]
    with suppress(ConfigError):
        redis = settings_of(run).get("redis") or {}
        values = [redis.get(name) for name in _REDIS_SETTINGS]
        found += [each for value in values for each in (value if isinstance(value, list) else [value]) if each]
    return [FoundAddress(each, given) for each in found]


def _delete_keys(run: str, address: str, *, must_answer: bool) -> None:
    with open_client(address, run) as client:
        if not client.ping():
            if must_answer:
                raise RedisUnavailableError(f"Redis at {client.address} does not answer", address=client.address)
            if not address.startswith("unix:"):  # a run's own server ended with it
                logger.warning("Redis at %s does not answer; what it has of run %s stays there", client.address, run)
            return
        with suppress(ConfigError):  # it has nothing of the run
            delete_run(client)
