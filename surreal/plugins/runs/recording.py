"""`surreal record`: episodes that an expert plays, as an archive that `--offline` and `surreal replay import` read.

Only whole episodes are written. An episode is one segment of a chunk, so its steps have n-step returns of any length.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import gymnasium
import numpy as np

import surreal
from surreal.base.errors import StoppedError, SurrealError
from surreal.base.specs import action_spec
from surreal.base.types import EXECUTED_ACTION
from surreal.config import Config
from surreal.distributed.experience.codec import decode
from surreal.distributed.experience.data_contract import (
    MASK_COLUMN,
    NEXT_MASK_COLUMN,
    Contract,
    extra_specs,
    frame_spec,
)
from surreal.distributed.experience.row_log import RowLog
from surreal.distributed.experience.single_steps import SingleSteps
from surreal.envs.actions import ActionAdapter, flat_mask, mask_width
from surreal.envs.pools.base import describe_observations
from surreal.envs.wrappers.intervention import Intervention
from surreal.replay.archive import ArchiveWriter, Manifest

#: File in the archive's folder with a line for each episode: return, length, and whether it was a success.
EPISODES_NAME = "episodes.jsonl"
#: Keys of `info` that tell of a success; the last value of an episode counts.
_LABELS = ("success", "is_success")
#: An episode with more bytes is cut: all of it is in memory, and a segment is never divided.
_MAX_EPISODE_BYTES = 128 << 20


class Demonstration(NamedTuple):
    """An episode that was played."""

    episode_return: float
    length: int
    success: bool | None  #: None: nothing told of it


@dataclass(frozen=True)
class Format:
    """The parts of a stream's contract that do not follow from an environment."""

    frame_stack: int = 1
    lookahead: int = 0
    compression: str | None = None
    interventions: bool = False  #: whether there is a column `is_intervention`, here true everywhere

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return the format of the experience of a run."""
        env = config.env
        return cls(env.frame_stack, config.lookahead, config.sender.compression, env.has_interventions)


class Recorder:
    """Plays an expert's episodes into a new archive.

        with Recorder(path, Intervention(env, "module:Expert")) as recorder:
            recorder.play(episodes=20, stop=stop)
        manifest = recorder.manifest

    The archive is put into its place at the end of the block, also after an exception, if it has an episode.

    Args:
        path: the archive's folder; it must not exist.
        env: an expert chooses all of its actions.
        successes_only: whether to leave out episodes that were not marked as successes.
        seed: seed of the first episode; None draws one.

    Raises:
        ConfigError: the path exists, or cannot be written.
        EnvError: observations or actions are not supported.
    """

    def __init__(
        self,
        path: Path,
        env: Intervention,
        *,
        form: Format = Format(),
        successes_only: bool = False,
        seed: int | None = None,
    ) -> None:
        self.episodes: list[Demonstration] = []  #: those that are written
        self.discarded = 0  #: number of those that are not
        self.manifest: Manifest | None = None  #: the archive's, at the end; None: there is no episode, and no archive
        self._env, self._form, self._seed, self._successes_only = env, form, seed, successes_only
        self._adapter = ActionAdapter(env.action_space)
        self._obs, info = env.reset(seed=seed)
        self._mask_width = mask_width(self._adapter.space) if "action_mask" in info else 0
        self._mask = self._mask_of(info)
        self._log = RowLog(self._contract(env), 1024)
        self._steps = SingleSteps()
        self._written = 0
        self._writer = ArchiveWriter(path, self._log.contract)

    @property
    def num_steps(self) -> int:
        return sum(episode.length for episode in self.episodes)

    def play(self, *, episodes: int | None = None, steps: int | None = None, stop: threading.Event) -> None:
        """Play until there are enough episodes or steps, or `stop` is set.

        Args:
            episodes: episodes to write; None: any number.
            steps: steps to write; the last episode is cut there, and counts as truncated. None: any number.
            stop: the episode in progress is dropped.
        """
        try:
            while not stop.is_set() and (episodes is None or len(self.episodes) < episodes):
                left = None if steps is None else steps - self.num_steps
                if left is not None and left <= 0:
                    return
                self._play_one(left, stop)
        except StoppedError:  # the person at the keyboard has enough
            return
        finally:
            self._drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        with self._writer as writer:
            if not self.episodes:
                return
            self.manifest = writer.finish(
                run="record", created=time.time(), surreal_version=surreal.__version__, global_step=self.num_steps
            )
        lines = "".join(json.dumps(episode._asdict()) + "\n" for episode in self.episodes)
        (writer.path / EPISODES_NAME).write_text(lines, encoding="utf-8")

    def _play_one(self, limit: int | None, stop: threading.Event) -> None:
        """Play an episode, and write it unless it is to be discarded."""
        log, form, total, success = self._log, self._form, 0.0, None
        most = _MAX_EPISODE_BYTES // log.contract.row_bytes
        most = most if limit is None else min(limit, most)
        for number in range(1, most + 1):
            if stop.is_set():
                return
            obs, mask = self._obs, self._mask
            new_obs, reward, terminated, truncated, info = self._env.step(None)
            self._obs, self._mask = new_obs, self._mask_of(info)
            truncated = (truncated or number == most) and not terminated
            is_over = bool(terminated or truncated)
            action = self._adapter.flat(info[EXECUTED_ACTION])
            told = {EXECUTED_ACTION: action} if form.interventions else None
            extras = {} if mask is None else {MASK_COLUMN: mask, NEXT_MASK_COLUMN: self._mask}
            self._steps.add(log, [obs, new_obs], action, float(reward), is_over, told, bool(truncated), extras, -1)
            total += float(reward)
            success = next((bool(info[key]) for key in _LABELS if key in info), success)
            if is_over:
                break
        self._finish(Demonstration(total, number, success), is_discarded=bool(info.get("discard")))
        self._obs, info = self._env.reset()
        self._mask = self._mask_of(info)

    def _finish(self, episode: Demonstration, *, is_discarded: bool) -> None:
        if is_discarded or (self._successes_only and not episode.success):
            self.discarded += 1
            self._drop()
            return
        contract = self._log.contract
        for encoded in self._log.cut(contract.row_bytes * self._log.length + contract.table_head_bytes):
            self._written += 1
            chunk = decode(contract, encoded.head, encoded.table, encoded.block)
            self._writer.add(chunk, sender="record", sequence=self._written)
        self.episodes.append(episode)

    def _drop(self) -> None:
        """Forget the episode in progress; those before it have left the log."""
        self._steps.forget()
        self._log.length = self._log.carried = 0

    def _mask_of(self, info: Mapping[str, Any]) -> Any:
        if not self._mask_width:
            return None
        mask = info.get("action_mask")
        return np.ones(self._mask_width, np.bool_) if mask is None else flat_mask(mask, self._mask_width)

    def _contract(self, env: gymnasium.Env[Any, Any]) -> Contract:
        form, obs = self._form, describe_observations(env.observation_space)
        extras = extra_specs({}, None if self._mask is None else self._mask[None], interventions=form.interventions)
        try:
            obs = frame_spec(obs, form.frame_stack) if form.frame_stack > 1 else obs
        except ValueError as error:
            raise SurrealError(str(error)) from error
        return Contract(
            obs, action_spec(self._adapter.space), extras, form.lookahead, form.frame_stack, form.compression
        )
