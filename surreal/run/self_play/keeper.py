"""`LeagueKeeper`: the learner's end of self-play. It keeps past versions, rates them, and lets agents have them.

    self_play/VERSION.safetensors    a version: parameters and configuration, all that `surreal play` needs
    self_play/league.json            ratings and games of the learner and of each version

A learner that is started again continues where the files end, and publishes what Redis has lost.
"""

from __future__ import annotations

import copy
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis.exceptions import RedisError

from surreal.base.checkpoint import load_checkpoint, save_checkpoint
from surreal.base.errors import CheckpointError, CodecError, ContractError
from surreal.base.pytorch import Module
from surreal.base.system.files import write_whole
from surreal.run.self_play.exchange import LeagueExchange
from surreal.run.self_play.league import League

logger = logging.getLogger(__name__)

FOLDER_NAME, LEAGUE_NAME = "self_play", "league.json"
_INTERVAL_S = 1.0


@dataclass(eq=False)
class LeagueKeeper:
    """Keeps the league of one learner. Used by the learner's thread."""

    exchange: LeagueExchange  #: where agents find it
    league: League  #: new; it takes over what the folder has
    folder: Path  #: folder of its files; made if missing
    metadata: Mapping[str, Any]  #: further entries of a version's file: the run, its configuration
    every_env_steps: int  #: every env steps of the run, after which the learner is kept as another version
    every_updates: int | None = None  #: every updates of the learner, likewise; None: by env steps alone
    stop: threading.Event | None = None  #: ends waits for Redis
    clock: Callable[[], float] = time.monotonic  #: seconds, monotonic

    def __post_init__(self) -> None:
        self._copy: Module | None = None  # of the model, to publish versions by
        self._looked_s = -float("inf")
        self._written = ""

    def begin(self) -> None:
        """Load the versions in the folder, and remove unknown files."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / LEAGUE_NAME
        if path.exists():
            try:
                self.league.load_json(json.loads(path.read_text()))
            except (OSError, ValueError, CodecError) as error:
                raise CheckpointError(f"{path} cannot be read ({error}); move it away to begin a new league") from error
        self.league.versions = [each for each in self.league.versions if self._file(each.version).exists()]
        kept = {self._file(each.version) for each in self.league.versions}
        for file in self.folder.glob("*.safetensors"):
            if file not in kept:
                file.unlink()

    def step(self, model: Module, *, version: int, env_steps: int, updates: int) -> None:
        """Keep the current learner as a version, if that is due, and maintain the league now and then."""
        if self._is_due(version, env_steps, updates):
            self._keep(model, version, env_steps, updates)
            self._looked_s = -float("inf")
        if self.clock() - self._looked_s < _INTERVAL_S:
            return
        self._looked_s = self.clock()
        try:
            for played in self.exchange.take_games():
                self.league.count(*played)
            for missing in self.exchange.find_missing(each.version for each in self.league.versions):
                self._publish_again(missing, model)
            self._tell()
        except RedisError as error:
            logger.debug("the league waits for Redis: %s", error)
        except OSError as error:
            logger.warning("%s is not written: %s", self.folder / LEAGUE_NAME, error)

    def finish(self) -> None:
        try:
            for played in self.exchange.take_games():
                self.league.count(*played)
            self._tell()
        except (RedisError, OSError) as error:
            logger.warning("the last games of self-play do not count: %s", error)

    def metrics(self) -> dict[str, float]:
        league = self.league
        found = {
            "self_play/rating": league.rating,
            "self_play/games_total": float(league.games),
            "self_play/versions_count": float(len(league.versions)),
        }
        if versions := list(league.versions):
            found["self_play/score_ratio"] = sum(each.score for each in versions) / len(versions)
            found["self_play/oldest_rating"] = versions[0].rating
        return found

    def _is_due(self, version: int, env_steps: int, updates: int) -> bool:
        newest = self.league.newest
        if newest is None or version <= newest.version:
            return newest is None and version > 0
        is_by_updates = self.every_updates is not None and updates - newest.updates >= self.every_updates
        return is_by_updates or env_steps - newest.env_steps >= self.every_env_steps

    def _keep(self, model: Module, version: int, env_steps: int, updates: int) -> None:
        copied = self._copied(model)
        with model.lock:
            copied.load_tensors(model.tensors(), version)
        place = {"version": version, "env_steps": env_steps, "updates": updates, "model": copied.header()}
        try:
            save_checkpoint(
                self._file(version), copied.tensors(), {**self.metadata, "kind": "policy", **place}, step=version
            )
        except CheckpointError as error:
            logger.warning("version %d does not become an opponent: %s", version, error)
            return
        self.exchange.publish(copied, version, self.stop)
        for gone in self.league.add(version, env_steps=env_steps, updates=updates):
            self._file(gone).unlink(missing_ok=True)
            self._forget(gone)
        logger.info("version %d is an opponent now, with a rating of %.0f", version, self.league.rating)

    def _publish_again(self, version: int, model: Module) -> None:
        copied = self._copied(model)
        try:
            copied.load_tensors(load_checkpoint(self._file(version)).tensors, version)
        except (CheckpointError, ContractError) as error:
            logger.warning("version %d is no longer an opponent: %s", version, error)
            self.league.versions = [each for each in self.league.versions if each.version != version]
            return
        self.exchange.publish(copied, version, self.stop)

    def _copied(self, model: Module) -> Module:
        if self._copy is None:
            self._copy = copy.deepcopy(model).to("cpu")
        return self._copy

    def _forget(self, version: int) -> None:
        try:
            self.exchange.remove(version)
        except RedisError as error:
            logger.debug("version %d stays in Redis: %s", version, error)

    def _tell(self) -> None:
        """Write the table where agents, and people, find it, if it has changed or was lost."""
        table = self.league.to_json()
        self.exchange.write_table(table)
        text = json.dumps(table, indent=2) + "\n"
        if text != self._written:
            write_whole(self.folder / LEAGUE_NAME, text)
            self._written = text

    def _file(self, version: int) -> Path:
        return self.folder / f"{version:010d}.safetensors"
