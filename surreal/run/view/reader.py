"""`RunReader`: reads how runs are, one or all runs of a Redis, for every command and page that shows it.

A run's processes report in their heartbeats, so a look costs the server as little with many env steps a second as with
few. `RunTracker` keeps the newest view of one run from look to look.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import redis

from surreal.base.errors import RedisUnavailableError, SurrealError
from surreal.config import Config
from surreal.distributed.connection.client import RedisClient, check_name
from surreal.distributed.connection.keys import RUNS, RUNS_HASH_SLOT, PolicyKeys, RunKeys, ShardKeys
from surreal.distributed.experience.shards import ReplayShards
from surreal.distributed.telemetry.heartbeats import Heartbeat, parse_heartbeats
from surreal.run.process import registry
from surreal.run.process.roles import AGENT, EVAL, LEARNER, Role
from surreal.run.process.run_folder import newest_checkpoint

logger = logging.getLogger(__name__)

_Command = tuple[str, ...]
#: Fields of a view that stay true when the process that reported them has ended.
_LASTING = ("episode_return", "eval_return", "best_return", "replay_fill", "samples_per_insert")
#: Fields that `surreal status --json` leaves out, or writes in another form.
_NOT_IN_JSON = ("processes", "beats", "lives", "created", "seed", "stop_reason")


class LastWarning(NamedTuple):
    """The newest warning of a run."""

    name: str  #: of the process
    text: str
    age_s: float


@dataclass(frozen=True)
class RunView:
    """A run at one moment; None where no process has reported a value yet."""

    processes: tuple[Heartbeat, ...]  #: the newest heartbeat of each name, dead processes included
    env_steps: int = 0  #: of the whole run
    steps_per_s: float = 0.0
    episode_return: float | None = None  #: mean over the agents' recent episodes, exploration included
    eval_return: float | None = None  #: mean of the last evaluation round
    best_return: float | None = None  #: mean of the best evaluation round
    updates: int = 0
    skipped_updates: int = 0  #: updates whose gradients were not finite
    updates_per_s: float = 0.0
    replay_fill: float | None = None  #: share of the replay's capacity, 0..1
    samples_per_insert: float | None = None
    policy_lag: float | None = None  #: versions between the learner's and the newest experience's
    version: int = 0
    eval_progress: tuple[int, int] = (0, 0)  #: episodes played in the current round, and episodes of a round
    eval_rounds: int = 0  #: rounds so far
    limiter_position: float | None = None  #: 0..1 in the band of samples per insert; at 0 agents wait, at 1 the learner
    age_s: float | None = None  #: since the launcher began, or the learner if there is no launcher
    lives: frozenset[tuple[str, str]] = frozenset()  #: name and id of each process, restarted ones included
    rating: float | None = None  #: Elo of the learner, in self-play
    past_versions: int = 0  #: number of past versions that it plays against
    rated_games: int = 0  #: games against them
    run: str = ""  #: id
    title: str = ""  #: name of the configuration
    created: float = 0.0  #: when the run was first listed, s since 1970; 0: unknown
    seed: int | None = None
    stop_reason: str = ""  #: why the run ends; "" while it continues
    beats: tuple[Heartbeat, ...] = ()  #: all heartbeats: several of a name that was restarted

    @property
    def alive(self) -> list[Heartbeat]:
        """The processes that are alive."""
        return [beat for beat in self.processes if beat.is_alive()]

    @property
    def state(self) -> str:
        """running, ending, or over."""
        if not self.alive:
            return "over"
        return "ending" if self.stop_reason else "running"

    @property
    def last_warning(self) -> LastWarning | None:
        """The newest warning of all processes."""
        found = [beat for beat in self.processes if beat.warning and math.isfinite(beat.warned)]
        newest = max(found, key=lambda beat: beat.warned, default=None)
        if newest is None:
            return None
        return LastWarning(newest.name, newest.warning, max(0.0, newest.time + newest.age_s - newest.warned))

    def to_json(self) -> dict[str, Any]:
        """Plain data, for `surreal status --json`."""
        plain = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in _NOT_IN_JSON}
        plain |= {"state": self.state, "stop_reason": self.stop_reason or None}
        plain["processes"] = [
            {
                "name": beat.name,
                "role": beat.role,
                "host": beat.host,
                "pid": beat.pid,
                "is_alive": beat.is_alive(),
                "age_s": round(beat.age_s, 3),
                "version": beat.version,
                "global_step": beat.global_step,
                "waits_for": list(beat.waits_for),
                "hangs_in": beat.hangs_in or None,
                "warning": beat.warning or None,
                "metrics": {**beat.metrics, **beat.reading.values},
            }
            for beat in self.processes
        ]
        return plain


class RunReader:
    """Reads one run, or all runs of a Redis, in one round trip; used by one thread at a time.

    In a Redis Cluster, the server of each run is asked.

    Args:
        client: client of the run, or of any run if all are read.
        reads_all: whether `read_all` reads all runs that the Redis lists.
        has_counts: also read, in a second round trip, the counts that remain when processes have ended: env steps,
            version, best return.
        is_patient: try again while Redis does not answer, for as long as the client does; otherwise fail at once.
        replay: where the experience is; None: on the same server.
        parameter_client: where the parameters are; None: on the same server.
        policy: the policy whose version counts; None: the one that the run's registered configuration publishes.

    Attributes:
        address: address of the Redis, for messages.
    """

    def __init__(
        self,
        client: RedisClient,
        *,
        reads_all: bool = False,
        has_counts: bool = False,
        is_patient: bool = False,
        replay: ReplayShards | None = None,
        parameter_client: RedisClient | None = None,
        policy: str | None = None,
    ) -> None:
        self.address = client.address
        self._client = client
        self._reads_all = reads_all
        self._has_counts = has_counts
        self._is_patient = is_patient
        self._replay = replay
        self._parameter_client = parameter_client
        self._policy = policy
        self._listed: dict[str, registry.RunEntry] = {}
        self._clients: dict[int, RedisClient] = {}  # of a cluster, by hash slot

    def read(self) -> RunView:
        """Read the client's run.

        Raises:
            RedisUnavailableError: no answer, or refused.
        """
        return self._ask([self._client.run], lists=False)[self._client.run]

    def read_all(self) -> list[RunView]:
        """Read all runs that the Redis lists, oldest first, or the client's run alone unless `reads_all`.

        A run that is new in the list costs another round trip, once.

        Raises:
            RedisUnavailableError: no answer, or refused.
        """
        if not self._reads_all:
            return [self.read()]
        found = self._ask(list(self._listed), lists=True)
        if new := [run for run in self._listed if run not in found]:
            found |= self._ask(new, lists=False)
        entries = self._listed.values()
        return [replace(found[entry.run], title=entry.title, created=entry.created) for entry in entries]

    def close(self) -> None:
        """Close the connections, the given client's included."""
        for client in (*self._clients.values(), self._client):
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
                if self._has_counts:
                    commands += [("GET", keys.config), ("HGET", keys.best, "score")]
            if lists and client is directory:
                commands.append(("HGETALL", RUNS))
            (seconds, micros), *answers = self._call(client, commands)
            if lists and client is directory:
                entries = registry.run_entries(answers.pop())
                self._listed = {entry.run: entry for entry in entries if _is_run_id(entry.run)}
            now_s, each = seconds + micros / 1e6, 4 if self._has_counts else 2
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
            config = registry.decode_config(self._client, stored or b"")
        if self._replay is not None:
            shards = [(stream.client, stream.keys) for stream in self._replay.streams()]
        else:
            number = 1 if config is None else config.num_shards
            keys = [ShardKeys(view.run, shard, number) for shard in range(number)]
            shards = [(self._at(each.hash_slot), each) for each in keys]
        policy = self._policy or ("default" if config is None else config.published_policy)
        params = PolicyKeys(view.run, policy).params
        asked: dict[RedisClient, list[_Command]] = {}
        for client, each in shards:
            asked.setdefault(client, []).append(("HMGET", each.meta, "steps"))
        steps = sum(_to_int(answer) for client in asked for (answer,) in _attempt(client, asked[client]) or ())
        where = self._parameter_client or self._at(RunKeys(view.run).hash_slot)
        versions = _attempt(where, [("HGET", params, "version")]) or [None]
        best_return = _mean_return(score)
        return replace(
            view,
            seed=None if config is None else config.seed,
            env_steps=max(view.env_steps, steps),
            version=max(view.version, _to_int(versions[0])),
            best_return=view.best_return if best_return is None else best_return,
        )

    def _call(self, client: RedisClient, commands: Sequence[_Command]) -> list[Any]:
        if self._is_patient:
            return client.retry(lambda: _execute(client, commands), what="look at the run")
        answers = _attempt(client, commands)
        if answers is None:
            raise RedisUnavailableError(f"Redis at {client.address} does not answer", address=client.address)
        return answers

    def _at(self, hash_slot: int) -> RedisClient:
        if not self._client.is_cluster:
            return self._client
        if hash_slot not in self._clients:
            self._clients[hash_slot] = self._client.at_hash_slot(hash_slot)
        return self._clients[hash_slot]


class RunTracker:
    """Keeps the newest view of a run; a count does not go back when Redis was emptied or a process has ended.

    Args:
        read: takes a view.
        run_dir: the run's folder, if it is on this machine.

    Attributes:
        view: the newest one.
    """

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


def summarize_processes(beats: Iterable[Heartbeat]) -> RunView:
    """Make a view from heartbeats alone."""
    beats = tuple(beats)
    newest: dict[str, Heartbeat] = {}
    for beat in beats:
        known = newest.get(beat.name)
        if known is None or abs(beat.age_s) < abs(known.age_s):
            newest[beat.name] = beat
    alive = [beat for beat in newest.values() if beat.is_alive()]
    agents, learners, evaluations = (_metrics_of(role, alive) for role in (AGENT, LEARNER, EVAL))
    learner, evaluation = (next(iter(found), {}) for found in (learners, evaluations))
    returns = [metrics["agent/episode_return_recent"] for metrics in agents if "agent/episode_return_recent" in metrics]
    return RunView(
        processes=tuple(sorted(newest.values(), key=lambda beat: (beat.role, beat.name))),
        beats=beats,
        lives=frozenset((beat.name, beat.id) for beat in beats),
        env_steps=max((beat.global_step for beat in newest.values()), default=0),
        steps_per_s=sum(metrics.get("agent/env_steps_per_s", 0.0) for metrics in agents),
        episode_return=sum(returns) / len(returns) if returns else None,
        eval_return=evaluation.get("eval/episode_return"),
        best_return=evaluation.get("eval/episode_return_best"),
        updates=whole(learner, "learner/updates_total"),
        skipped_updates=whole(learner, "learner/skipped_updates_total"),
        updates_per_s=learner.get("learner/updates_per_s", 0.0),
        replay_fill=learner.get("replay/fill_ratio"),
        samples_per_insert=learner.get("replay/samples_per_insert"),
        policy_lag=learner.get("learner/policy_lag_versions"),
        version=max((beat.version for beat in newest.values()), default=0),
        eval_progress=(
            whole(evaluation, "eval/played_episodes_count"),
            whole(evaluation, "eval/round_episodes_count"),
        ),
        eval_rounds=whole(evaluation, "eval/rounds_total"),
        limiter_position=learner.get("replay/limiter_position_ratio"),
        age_s=_age_s(alive),
        rating=learner.get("self_play/rating"),
        past_versions=whole(learner, "self_play/versions_count"),
        rated_games=whole(learner, "self_play/games_total"),
    )


def whole(metrics: Mapping[str, float], name: str) -> int:
    """A metric that counts; 0 if it is missing or not finite."""
    value = metrics.get(name, 0.0)
    return int(value) if math.isfinite(value) else 0


def _metrics_of(role: Role, alive: Sequence[Heartbeat]) -> list[Mapping[str, float]]:
    """Metrics of the processes that do a role's work, told by what they report; processes of that role come first.

    A learner in lockstep also reports as agent and evaluation, and an agent that computes gradients as learner.
    """
    found = [beat for beat in alive if any(name.startswith(f"{role.counts_as}/") for name in beat.metrics)]
    return [beat.metrics for beat in sorted(found, key=lambda beat: beat.role != role.counts_as)]


def _age_s(alive: Iterable[Heartbeat]) -> float | None:
    roles = ("launcher", LEARNER.counts_as)
    leaders = [beat for beat in alive if beat.role in roles and math.isfinite(beat.started)]
    leader = min(leaders, key=lambda beat: (roles.index(beat.role), beat.name), default=None)
    return None if leader is None else leader.time + leader.age_s - leader.started


def _attempt(client: RedisClient, commands: Sequence[_Command]) -> list[Any] | None:
    return client.attempt(lambda: _execute(client, commands), what="look at the run")


def _execute(client: RedisClient, commands: Sequence[_Command]) -> list[Any]:
    pipeline: Any = client.redis.pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command(*command)
    answers: list[Any] = pipeline.execute()
    return answers


def _is_run_id(name: str) -> bool:
    """Whether this is a run's id: the list in Redis may hold anything."""
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
