"""`RunView`: a run at one moment, from the heartbeats of its processes; `RunOutcome`: a run after its end."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from surreal.config import Config
from surreal.distributed.telemetry.heartbeats import Heartbeat
from surreal.run.process.ending import Counts, Ending, ExitCode
from surreal.run.process.roles import AGENT, EVAL, LEARNER, Role

#: Fields that `surreal status --json` leaves out, or writes in another form.
_NOT_IN_JSON = ("processes", "beats", "lives", "created", "seed", "stop_reason")
#: Metrics of an update that a wide view shows, in this order.
_LEARNING = ("loss", "policy_loss", "value_loss", "entropy", "kl", "q_mean", "explained_variance")
_P99 = "agent/latency_p99_ms"


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
    #: where agents keep time (`env.rate_hz`): deadlines so far, those missed, and the slowest agent's 99th percentile
    deadlines: int = 0
    missed_deadlines: int = 0
    latency_p99_ms: float | None = None
    interventions_per_episode: float | None = None  #: of the agents' recent episodes, where actions can be replaced
    intervention_ratio: float | None = None  #: share of the steps of these episodes whose actions were replaced
    run: str = ""  #: id
    title: str = ""  #: name of the configuration
    environment: str = ""  #: id of its environment; "": unknown
    created: float = 0.0  #: when the run was first listed, s since 1970; 0: unknown
    seed: int | None = None
    stop_reason: str = ""  #: why the run ends; "" while it continues
    learning: Mapping[str, float] = field(default_factory=dict)  #: loss, entropy and others of the last update read
    beats: tuple[Heartbeat, ...] = ()  #: all heartbeats: several of a name that was restarted

    @property
    def alive(self) -> list[Heartbeat]:
        return [beat for beat in self.processes if beat.is_alive()]

    @property
    def state(self) -> str:
        """running, ending, or over."""
        if not self.alive:
            return "over"
        return "ending" if self.stop_reason else "running"

    @property
    def last_warning(self) -> LastWarning | None:
        found = [beat for beat in self.processes if beat.warning and math.isfinite(beat.warned)]
        newest = max(found, key=lambda beat: beat.warned, default=None)
        if newest is None:
            return None
        return LastWarning(newest.name, newest.warning, max(0.0, newest.time + newest.age_s - newest.warned))

    def to_json(self) -> dict[str, Any]:
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
    return RunView(
        processes=tuple(sorted(newest.values(), key=lambda beat: (beat.role, beat.name))),
        beats=beats,
        lives=frozenset((beat.name, beat.id) for beat in beats),
        env_steps=max((beat.global_step for beat in newest.values()), default=0),
        steps_per_s=sum(metrics.get("agent/env_steps_per_s", 0.0) for metrics in agents),
        episode_return=_mean_of(agents, "agent/episode_return_recent"),
        eval_return=evaluation.get("eval/episode_return"),
        best_return=evaluation.get("eval/episode_return_best"),
        updates=whole(learner, "learner/updates_total"),
        skipped_updates=whole(learner, "learner/skipped_updates_total"),
        updates_per_s=learner.get("learner/updates_per_s", 0.0),
        replay_fill=learner.get("replay/fill_ratio"),
        samples_per_insert=learner.get("replay/samples_per_insert"),
        policy_lag=learner.get("learner/policy_lag_versions"),
        version=max((beat.version for beat in newest.values()), default=0),
        eval_progress=(whole(evaluation, "eval/played_episodes_count"), whole(evaluation, "eval/round_episodes_count")),
        eval_rounds=whole(evaluation, "eval/rounds_total"),
        limiter_position=learner.get("replay/limiter_position_ratio"),
        age_s=_age_s(alive),
        rating=learner.get("self_play/rating"),
        past_versions=whole(learner, "self_play/versions_count"),
        rated_games=whole(learner, "self_play/games_total"),
        deadlines=sum(whole(metrics, "agent/deadlines_total") for metrics in agents),
        missed_deadlines=sum(whole(metrics, "agent/missed_deadlines_total") for metrics in agents),
        latency_p99_ms=max((metrics[_P99] for metrics in agents if _P99 in metrics), default=None),
        interventions_per_episode=_mean_of(agents, "agent/interventions_per_episode"),
        intervention_ratio=_mean_of(agents, "agent/intervention_ratio"),
        learning=_learning_of(alive),
    )


def _mean_of(processes: Iterable[Mapping[str, float]], name: str) -> float | None:
    values = [metrics[name] for metrics in processes if name in metrics]
    return sum(values) / len(values) if values else None


def _learning_of(alive: Iterable[Heartbeat]) -> dict[str, float]:
    """Return what the newest update says of learning, by short names."""
    values = next((beat.reading.values for beat in alive if beat.reading.values), {})
    return {name: values[f"learner/{name}"] for name in _LEARNING if f"learner/{name}" in values}


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


#: Files that are listed when a run ends.
FILES = (
    "result.json", "eval/scores.jsonl", "eval/best.safetensors", "eval/videos", "checkpoints", "tensorboard", "logs",
)  # fmt: skip


@dataclass(frozen=True)
class RunOutcome:
    """A run after its end, as `surreal run` and `surreal.train` report it."""

    run: str
    folder: Path
    config: Config
    ending: Ending
    counts: Counts
    time_s: float
    best: dict[str, Any] | None = None  #: the best evaluation round

    def files(self) -> list[str]:
        return [name for name in FILES if (self.folder / name).exists()]

    def last_words(self) -> list[str]:
        """Return the lines to print at the end of the run, after the error if it failed."""
        words = [] if self.ending.exit_code is ExitCode.FAILED else [f"ended: {self.ending.reason}"]
        updates, skipped = self.counts.updates, self.counts.skipped_updates
        if skipped:
            words.append(f"{skipped:,} of {updates:,} updates were skipped: their gradients were not finite")
        words.append(f"results in {self.folder}: {', '.join(self.files())}")
        policy = self.folder / "eval" / "best.safetensors"
        if self.best is not None and policy.exists():
            from surreal.run.build.construct import imports_of  # gymnasium comes with it

            more = " --trust" if any(imports_of(self.config)) else ""
            words.append(f"best return {self.best['mean_return']:.1f}; to see it: surreal play {_short(policy)}{more}")
        return words


def _short(path: Path) -> str:
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))
