"""Changes to a configuration for acting and learning in turn in one process: nothing may wait for time or threads.

So it is in runs in lockstep (`run.deterministic`), and in agents that compute gradients (`learner.gradients: agents`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from surreal.config import Config, accepted_names
from surreal.run.build.construct import check, refused
from surreal.run.build.learning import REPLAY, replay_arguments

#: "Never", s, where a setting must be a number.
_NEVER_S = 1e9
#: A wait for room would be a wait for the same thread, so only an error could end it.
_NO_WAIT_S = 1.0
#: Checkpoints of a run, where only its env steps are known: each cuts the episodes under way.
_CHECKPOINTS = 4


def lockstep_config(config: Config, *, begun_updates: int = 0) -> Config:
    """Return the settings for one checkpoint interval of a deterministic run, which begins after `begun_updates`.

    The seed comes from the run's and this number, so that no interval repeats the random numbers of another.
    """
    cls, _ = check(config, REPLAY)
    if cls.stream_mode == "window":
        _require_ratio(config, "run.deterministic")
    config = _in_turn(config)
    if begun_updates:
        sequence = np.random.SeedSequence(config.seed, spawn_key=(begun_updates,))
        config = config.model_copy(update={"seed": int(sequence.generate_state(1)[0] >> 1)})
    is_apart = config.env.pool in ("subproc", "envpool")
    env = {"pool": "local", "num_workers": None} if is_apart else {}
    return changed(config, {"env": env, "broadcast": {"interval_s": 0.0}})


def gradients_config(config: Config) -> Config:
    """Return the settings for an agent that computes gradients from its own experience."""
    cls, _ = check(config, REPLAY)
    if cls.hands_out in ("transitions", "sequences"):  # fresh trajectories set their own pace
        _require_ratio(config, "learner.gradients: agents")
    config = _in_turn(config)
    if cls.stream_mode == "consume" and config.agent.round_steps is None:  # whole trajectories of one version
        rows = replay_arguments(config).get("trajectory_steps")
        config = changed(config, {"agent": {"round_steps": rows}})
    return config


def server_config(config: Config) -> Config:
    """Return the settings for a parameter server: the next gradients need the parameters of each update."""
    return changed(config, {"broadcast": {"interval_updates": 1}})


def _require_ratio(config: Config, rule: str) -> None:
    """Refuse a replay that would return batches without end."""
    if replay_arguments(config).get("samples_per_insert") is None:
        problem = f"is not set, but with {rule} it sets the ratio of updates to env steps; set it"
        raise refused(config, "replay.samples_per_insert", problem)


def _in_turn(config: Config) -> Config:
    """Return settings of replay and sender for a process that uses both in turn."""
    cls, args = check(config, REPLAY)
    accepted = accepted_names(cls).keys() - args.keys()
    in_args = {"lease_s": _NEVER_S, "piece_timeout_s": None}
    mirrors = config.replay.observations != "compressed"
    in_section: dict[str, Any] = {"prefetch": 1, **({"observations": "mirrored"} if mirrors else {})}
    changes: dict[str, dict[str, Any]] = {
        "replay": {
            "args": config.replay.args | {name: value for name, value in in_args.items() if name in accepted},
            "mirror_max_bytes": None,
            **{name: value for name, value in in_section.items() if name in accepted},
        },
        "sender": {"max_delay_s": _NEVER_S, "wait_timeout_s": _NO_WAIT_S, "on_full": "wait"},
    }
    return changed(config, changes)


def turn_steps(config: Config) -> int:
    """Steps of each environment after which the learner has its turn: a round, or a chunk."""
    return config.agent.round_steps or max(1, config.chunk_steps // config.env.num_envs)


def turn_trajectories(config: Config) -> int:
    """Return the number of trajectories in a turn of all sessions: a batch, or one as long as a chunk."""
    return 1 if config.agent.round_steps is None else config.learner.batch_size


def interval_progress(config: Config, updates: int, env_steps: int) -> float:
    """Return the done share of a checkpoint interval, 0..1, by the updates and env steps since its checkpoint."""
    if not updates:
        return 0.0
    if config.checkpoint.interval_updates is not None:
        return updates / config.checkpoint.interval_updates
    return _CHECKPOINTS * env_steps / (config.run.max_env_steps or 1)


def changed(config: Config, changes: Mapping[str, Mapping[str, Any]]) -> Config:
    """Return the configuration with other values of some sections' settings."""
    sections = {name: getattr(config, name).model_copy(update=section) for name, section in changes.items()}
    return config.model_copy(update=sections)
