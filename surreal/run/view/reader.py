"""RunReader."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import redis

from surreal.base.errors import SurrealError
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.shards import ReplayShards
from surreal.distributed.telemetry.heartbeats import Heartbeat, all_processes
from surreal.run.process.roles import AGENT, EVAL, LEARNER, Role
from surreal.run.process.run_folder import newest_checkpoint

logger = logging.getLogger(__name__)


class LastWarning(NamedTuple):
    """What a process warned of."""

    name: str  #: of the process
    text: str
    age_s: float


@dataclass(frozen=True)
class Snapshot:
    """State of a run; None where nobody has said anything yet."""

    processes: tuple[Heartbeat, ...]  #: the newest of each name, dead ones included
    env_steps: int = 0  #: of the whole run
    steps_per_s: float = 0.0
    episode_return: float | None = None  #: mean over the agents' recent episodes, exploration included
    eval_return: float | None = None  #: mean of the last evaluation round
    best_return: float | None = None  #: mean of the best one
    updates: int = 0
    skipped_updates: int = 0  #: of these, whose gradients were not finite
    updates_per_s: float = 0.0
    replay_fill: float | None = None  #: 0..1 of its capacity
    samples_per_insert: float | None = None
    policy_lag: float | None = None  #: versions between the learner's and the newest experience's
    version: int = 0
    eval_progress: tuple[int, int] = (0, 0)  #: episodes played of the round under way, and how many it has
    eval_rounds: int = 0  #: rounds so far
    limiter_position: float | None = None  #: 0..1 in the band of samples per insert; at 0 agents wait, at 1 the learner
    age_s: float | None = None  #: since the launcher began, or the learner where there is none
    lives: frozenset[tuple[str, str]] = frozenset()  #: name and id of each, of those too that were started again
    rating: float | None = None  #: Elo of the learner, in self-play
    past_versions: int = 0  #: that it plays against
    rated_games: int = 0  #: against them

    @property
    def alive(self) -> list[Heartbeat]:
        """The processes that are alive."""
        return [beat for beat in self.processes if beat.is_alive()]

    @property
    def last_warning(self) -> LastWarning | None:
        """The newest of all processes; None if nobody has warned of anything."""
        found = [beat for beat in self.processes if beat.warning and math.isfinite(beat.warned)]
        newest = max(found, key=lambda beat: beat.warned, default=None)
        if newest is None:
            return None
        return LastWarning(newest.name, newest.warning, max(0.0, newest.time + newest.age_s - newest.warned))

    def to_json(self) -> dict[str, Any]:
        """Plain data, for `surreal status --json`."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in ("processes", "lives")}
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


def take_snapshot(
    client: RedisClient,
    replay: ReplayShards | None = None,
    parameter_client: RedisClient | None = None,
    *,
    policy: str = "default",
) -> Snapshot:
    """Read the heartbeats, and the counters that stay when processes end.

    Args:
        client: of the run.
        replay: where the experience is; None: on the same server.
        parameter_client: where the parameters are, if that is another server.
        policy: whose version counts.

    Raises:
        RedisUnavailableError: no answer.
    """
    snapshot = summarize_processes(all_processes(client))
    parameter_client = parameter_client or client
    streams = (replay or ReplayShards(client)).streams()
    counts = [stream.client.attempt(stream.counts, what="read the env steps") for stream in streams]
    version: Any = parameter_client.retry(
        lambda: parameter_client.redis.hget(parameter_client.policy_keys(policy).params, "version"),
        what="read the version",
    )
    return replace(
        snapshot,
        env_steps=max(snapshot.env_steps, sum(each.steps for each in counts if each is not None)),
        version=max(snapshot.version, _to_int(version)),
    )


def summarize_processes(beats: Iterable[Heartbeat]) -> Snapshot:
    """Put heartbeats together."""
    newest: dict[str, Heartbeat] = {}
    lives = set()
    for beat in beats:
        lives.add((beat.name, beat.id))
        known = newest.get(beat.name)
        if known is None or abs(beat.age_s) < abs(known.age_s):
            newest[beat.name] = beat
    alive = [beat for beat in newest.values() if beat.is_alive()]
    agents, learners, evaluations = (_reports_of(role, alive) for role in (AGENT, LEARNER, EVAL))
    learner, evaluation = (next(iter(found), {}) for found in (learners, evaluations))
    returns = [metrics["agent/episode_return_recent"] for metrics in agents if "agent/episode_return_recent" in metrics]
    return Snapshot(
        processes=tuple(sorted(newest.values(), key=lambda beat: (beat.role, beat.name))),
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
        lives=frozenset(lives),
        rating=learner.get("self_play/rating"),
        past_versions=whole(learner, "self_play/versions_count"),
        rated_games=whole(learner, "self_play/games_total"),
    )


def whole(metrics: Mapping[str, float], name: str) -> int:
    """A metric that counts; 0 if it is missing, or no number."""
    value = metrics.get(name, 0.0)
    return int(value) if math.isfinite(value) else 0


def _reports_of(role: Role, alive: Sequence[Heartbeat]) -> list[Mapping[str, float]]:
    """Metrics of the processes that do a role's work, its own first.

    By what they report: a learner in lockstep is agent and evaluation as well, an agent that computes gradients a
    learner.
    """
    found = [beat for beat in alive if any(name.startswith(f"{role.counts_as}/") for name in beat.metrics)]
    return [beat.metrics for beat in sorted(found, key=lambda beat: beat.role != role.counts_as)]


def _age_s(alive: Iterable[Heartbeat]) -> float | None:
    """How long ago whoever leads the run began."""
    roles = ("launcher", LEARNER.counts_as)
    leaders = [beat for beat in alive if beat.role in roles and math.isfinite(beat.started)]
    leader = min(leaders, key=lambda beat: (roles.index(beat.role), beat.name), default=None)
    return None if leader is None else leader.time + leader.age_s - leader.started


def _to_int(value: bytes | None) -> int:
    return int(value) if value is not None and value.isdigit() else 0


#: What a snapshot may lack when a process has ended, and was true nevertheless.
_LASTING = ("episode_return", "eval_return", "best_return", "replay_fill", "samples_per_insert")


class Onlooker:
    """Keeps the newest snapshot; what was counted stays counted, though Redis was emptied or a process is gone.

    Attributes:
        snapshot: the newest one.

    Args:
        take: takes a snapshot.
        run_dir: the run's folder; None if it is elsewhere.
    """

    def __init__(self, take: Callable[[], Snapshot], run_dir: Path | None = None) -> None:
        self.snapshot = Snapshot(())
        self._take = take
        self._run_dir = run_dir

    def look(self) -> bool:
        """Look at the run; returns whether Redis was there."""
        try:
            found = self._take()
        except (SurrealError, redis.RedisError) as error:
            logger.debug("no snapshot: %s", error)
            return False
        before, written = self.snapshot, 0 if self._run_dir is None else newest_checkpoint(self._run_dir)
        self.snapshot = replace(
            found,
            env_steps=max(found.env_steps, before.env_steps),
            skipped_updates=max(found.skipped_updates, before.skipped_updates),
            updates=max(found.updates, before.updates, written),
            version=max(found.version, before.version),
            **{name: getattr(before, name) for name in _LASTING if getattr(found, name) is None},
        )
        return True
