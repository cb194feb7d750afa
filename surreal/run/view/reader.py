"""`RunReader`: reads how runs are, one or all runs of a Redis, for every command and page that shows it.

A run's processes report in their heartbeats, so a look costs the server as little with many env steps a second as with
few. `RunTracker` keeps the newest view of one run from look to look.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import redis

from surreal.base.errors import RedisUnavailableError, SurrealError
from surreal.config import Config
from surreal.distributed.connection.client import RedisClient, check_name
from surreal.distributed.connection.keys import RUNS, RUNS_HASH_SLOT, PolicyKeys, RunKeys, ShardKeys
from surreal.distributed.experience.shards import ReplayShards
from surreal.distributed.telemetry.heartbeats import parse_heartbeats
from surreal.run.process import registry
from surreal.run.process.run_folder import newest_checkpoint
from surreal.run.view.run_view import RunView, summarize_processes

logger = logging.getLogger(__name__)

_Command = tuple[str, ...]
#: Fields of a view that stay true when the process that reported them has ended.
_LASTING = ("episode_return", "eval_return", "best_return", "replay_fill", "samples_per_insert")


@dataclass(eq=False)
class RunReader:
    """Reads one run, or all of a Redis, in one round trip to each server; used by one thread at a time."""

    client: RedisClient  #: client of the run, or of any run if all are read
    reads_all: bool = False  #: whether `read_all` reads all runs that the Redis lists
    #: also read, in a second round trip, the counts that remain when processes have ended: env steps, version, best
    #: return
    has_counts: bool = False
    #: try again while Redis does not answer, for as long as the client does; otherwise fail at once
    is_patient: bool = False
    replay: ReplayShards | None = None  #: where the experience is; None: on the same server
    parameter_client: RedisClient | None = None  #: where the parameters are; None: on the same server
    #: the policy whose version counts; None: the one that the run's registered configuration publishes
    policy: str | None = None

    def __post_init__(self) -> None:
        self.address = self.client.address
        self._listed: dict[str, registry.RunEntry] = {}
        self._clients: dict[int, RedisClient] = {}  # of a cluster, by hash slot

    def read(self) -> RunView:
        return self._ask([self.client.run], lists=False)[self.client.run]

    def read_all(self) -> list[RunView]:
        """Read all runs that the Redis lists, oldest first, or the client's run alone unless `reads_all`.

        A run that is new in the list costs another round trip, once.
        """
        if not self.reads_all:
            return [self.read()]
        found = self._ask(list(self._listed), lists=True)
        if new := [run for run in self._listed if run not in found]:
            found |= self._ask(new, lists=False)
        entries = self._listed.values()
        return [replace(found[entry.run], title=entry.title, created=entry.created) for entry in entries]

    def close(self) -> None:
        for client in (*self._clients.values(), self.client):
            client.close()

    def _ask(self, runs: Sequence[str], *, lists: bool) -> dict[str, RunView]:
        directory = self._at(RUNS_HASH_SLOT)
        asked: dict[RedisClient, list[str]] = {directory: []} if lists else {}
        for run in runs:
            asked.setdefault(self._at(RunKeys(run).hash_slot), []).append(run)
        found: dict[str, RunView] = {}
        for client, there in asked.items():
            commands: list[_Command] = [("TIME",)]
            for run in there:
                keys = RunKeys(run)
                commands += [("HGETALL", keys.processes), ("GET", keys.stop)]
                if self.has_counts:
                    commands += [("GET", keys.config), ("HGET", keys.best, "score")]
            if lists and client is directory:
                commands.append(("HGETALL", RUNS))
            (seconds, micros), *answers = self._call(client, commands)
            if lists and client is directory:
                entries = registry.run_entries(answers.pop())
                self._listed = {entry.run: entry for entry in entries if _is_run_id(entry.run)}
            now_s, each = seconds + micros / 1e6, 4 if self.has_counts else 2
            for i, run in enumerate(there):
                beats, stop, *counts = answers[i * each : (i + 1) * each]
                view = summarize_processes(parse_heartbeats(beats.values(), now_s=now_s))
                view = replace(view, run=run, stop_reason=stop.decode(errors="replace") if stop else "")
                found[run] = self._add_counts(view, *counts) if counts else view
        return found

    def _add_counts(self, view: RunView, stored: bytes | None, score: bytes | None) -> RunView:
        """Add the counts that remain when processes have ended; a server that does not answer adds none."""
        config: Config | None = None
        with suppress(SurrealError):  # no configuration is registered, or one of another version
            config = registry.decode_config(self.client, stored or b"")
        if self.replay is not None:
            shards = [(stream.client, stream.keys) for stream in self.replay.streams()]
        else:
            number = 1 if config is None else config.num_shards
            keys = [ShardKeys(view.run, shard, number) for shard in range(number)]
            shards = [(self._at(each.hash_slot), each) for each in keys]
        policy = self.policy or ("default" if config is None else config.published_policy)
        params = PolicyKeys(view.run, policy).params
        asked: dict[RedisClient, list[_Command]] = {}
        for client, each in shards:
            asked.setdefault(client, []).append(("HMGET", each.meta, "steps"))
        steps = sum(_to_int(answer) for client in asked for (answer,) in _attempt(client, asked[client]) or ())
        where = self.parameter_client or self._at(RunKeys(view.run).hash_slot)
        versions = _attempt(where, [("HGET", params, "version")]) or [None]
        best_return = _mean_return(score)
        return replace(
            view,
            environment="" if config is None else config.env.id,
            seed=None if config is None else config.seed,
            env_steps=max(view.env_steps, steps),
            version=max(view.version, _to_int(versions[0])),
            best_return=view.best_return if best_return is None else best_return,
        )

    def _call(self, client: RedisClient, commands: Sequence[_Command]) -> list[Any]:
        if self.is_patient:
            return client.retry(lambda: _execute(client, commands), what="look at the run")
        answers = _attempt(client, commands)
        if answers is None:
            raise RedisUnavailableError(f"Redis at {client.address} does not answer", address=client.address)
        return answers

    def _at(self, hash_slot: int) -> RedisClient:
        if not self.client.is_cluster:
            return self.client
        if hash_slot not in self._clients:
            self._clients[hash_slot] = self.client.at_hash_slot(hash_slot)
        return self._clients[hash_slot]


def run_status(client: RedisClient) -> RunView:
    """Read the state of the client's run."""
    view = RunReader(client, has_counts=True, is_patient=True).read()
    entry = next((entry for entry in registry.list_runs(client) if entry.run == client.run), None)
    return view if entry is None else replace(view, title=entry.title, created=entry.created)


class RunTracker:
    """Keeps the newest view of a run; a count does not go back when Redis was emptied or a process has ended."""

    def __init__(self, read: Callable[[], RunView], run_dir: Path | None = None) -> None:
        self.view = RunView(())
        self._read = read
        self._run_dir = run_dir

    def look(self) -> bool:
        """Look at the run; returns whether Redis answered."""
        try:
            found = self._read()
        except (SurrealError, redis.RedisError) as error:
            logger.debug("no view of the run: %s", error)
            return False
        before, written = self.view, 0 if self._run_dir is None else newest_checkpoint(self._run_dir)
        self.view = replace(
            found,
            env_steps=max(found.env_steps, before.env_steps),
            skipped_updates=max(found.skipped_updates, before.skipped_updates),
            updates=max(found.updates, before.updates, written),
            version=max(found.version, before.version),
            **{name: getattr(before, name) for name in _LASTING if getattr(found, name) is None},
        )
        return True


def _attempt(client: RedisClient, commands: Sequence[_Command]) -> list[Any] | None:
    return client.attempt(lambda: _execute(client, commands), what="look at the run")


def _execute(client: RedisClient, commands: Sequence[_Command]) -> list[Any]:
    pipeline: Any = client.redis.pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command(*command)
    answers: list[Any] = pipeline.execute()
    return answers


def _is_run_id(name: str) -> bool:
    try:
        check_name(name, "run id")
    except ValueError:
        return False
    return True


def _mean_return(score: bytes | None) -> float | None:
    """Mean return of the best round, as an evaluation without a launcher stores it."""
    try:
        return float(json.loads(score)["mean_return"]) if score else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _to_int(value: bytes | None) -> int:
    return int(value) if value is not None and value.isdigit() else 0
