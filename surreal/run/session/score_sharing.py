"""Scores that evaluations on other machines send to the learner."""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from pathlib import Path
from typing import Any

from redis.exceptions import RedisError

from surreal.base.checkpoint import load_checkpoint
from surreal.base.errors import BusyError, CheckpointError
from surreal.base.system.files import FileLock, write_whole
from surreal.base.values import json_object
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.retry import parse_entry_id
from surreal.run.build.checkpoints import BEST_NAME, is_finite, read_best, round_lines
from surreal.run.session.scores import RoundFile, append_lines

logger = logging.getLogger(__name__)


LOCK_NAME = "eval.lock"
#: Rounds that wait in Redis, the most bytes of one, and of a policy that is sent.
_MAX_ROUNDS = 1000
_MAX_ROUND_BYTES = 1 << 20
_MAX_POLICY_BYTES = 64 << 20
_READ_COUNT = 16
_LOCK_TIMEOUT_S = 5.0


def claim_scores(folder: Path) -> FileLock:
    """Claim a folder for the only evaluation that writes into it; the lock ends with the process."""
    lock, pause = FileLock(folder / LOCK_NAME), threading.Event()
    waited_s = 0.0
    while not lock.acquire():  # a learner holds it for a moment
        if waited_s >= _LOCK_TIMEOUT_S:
            raise BusyError(f"{folder} has an evaluation: {lock.holder()} writes there; choose another --run-dir")
        pause.wait(0.1)
        waited_s += 0.1
    return lock


class ScoreSender:
    """Sends an evaluation's rounds, later if Redis is away; to another folder (`is_elsewhere`), also the best."""

    def __init__(self, client: RedisClient, book: RoundFile, *, is_elsewhere: bool = True) -> None:
        self._client = client
        self._book = book
        self._is_elsewhere = is_elsewhere
        self._waiting: deque[Any] = deque(maxlen=_MAX_ROUNDS)
        self._owes_best = False

    def send_newest(self, *, is_best: bool) -> None:
        entry: dict[str, bytes] = {"round": self._book.newest_lines.splitlines()[-1]}
        if self._is_elsewhere and len(self._book.newest_lines) <= _MAX_ROUND_BYTES:
            entry["lines"] = self._book.newest_lines
        self._waiting.append(entry)
        self._owes_best |= is_best and self._is_elsewhere
        self.send_waiting()

    def send_waiting(self) -> None:
        """Send the unsent rounds; does not raise if Redis is away."""
        try:
            while self._waiting:
                # Sent again after a lost answer, it is known by its time.
                self._client.redis.xadd(
                    self._client.run_keys.scores, self._waiting[0], maxlen=_MAX_ROUNDS, approximate=False
                )
                self._waiting.popleft()
            if self._owes_best and self._book.best_policy.stat().st_size <= _MAX_POLICY_BYTES:
                content: Any = {"score": json.dumps(self._book.best), "policy": self._book.best_policy.read_bytes()}
                self._client.redis.hset(self._client.run_keys.best, mapping=content)
            self._owes_best = False
        except (RedisError, OSError) as error:
            number = f"{len(self._waiting)} rounds are" if self._waiting else "the best policy is"
            logger.warning("%s in %s only, until Redis answers: %s", number, self._book.folder, error)


class ScoreCollector:
    """Follows the scores of a run into `eval` in its learner's folder, which the first round makes."""

    def __init__(self, client: RedisClient, folder: Path) -> None:
        self._client = client
        self._folder = folder
        self._scores = folder / "scores.jsonl"
        self._cursor = b"0-0"

    def step(self) -> None:
        """Write received rounds; try again later if Redis is away or the disk is full."""
        try:
            if entries := self._read():
                self._bring(entries)
        except (RedisError, OSError) as error:
            logger.debug("scores wait in Redis: %s", error)

    def _read(self) -> list[tuple[bytes, dict[bytes, bytes]]]:
        streams: Any = {self._client.run_keys.scores: self._cursor}
        reply: Any = self._client.redis.xread(streams, count=_READ_COUNT)
        if not reply:
            newest: Any = self._client.redis.xrevrange(self._client.run_keys.scores, count=1)
            if newest and parse_entry_id(newest[0][0]) < parse_entry_id(self._cursor):
                self._cursor = b"0-0"  # Redis was emptied, or lost its last entries; rounds are known by their times
        return list(reply[0][1]) if reply else []

    def _bring(self, entries: list[tuple[bytes, dict[bytes, bytes]]]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self._folder / LOCK_NAME)
        if lock.acquire():
            try:
                known = {line.get("time") for line in round_lines(self._scores)}
                for _, fields in entries:
                    lines = _checked(fields.get(b"lines", b""))
                    if lines and lines[-1]["time"] not in known:
                        append_lines(self._scores, lines)
                self._bring_best()
            finally:
                lock.release()
        self._cursor = entries[-1][0]

    def _bring_best(self) -> None:
        answer: Any = self._client.redis.hmget(self._client.run_keys.best, ["score", "policy"])
        score, policy = answer
        if not score or not policy or len(policy) > _MAX_POLICY_BYTES:
            return
        summary, mine = json_object(score), read_best(self._folder)
        mean = summary.get("mean_return")
        if mean is None or not is_finite(mean):
            return
        if mine is not None and not (float(mean) > float(mine["mean_return"]) or summary.get("reaches_goal") is True):
            return
        temporary = self._folder / ".best.safetensors.received.tmp"
        try:
            write_whole(temporary, policy)
            load_checkpoint(temporary)  # bytes from a network: a policy, or an error
            temporary.replace(self._folder / "best.safetensors")
        except CheckpointError as error:
            logger.warning("the best policy that an evaluation sent is of no use: %s", error)
            return
        finally:
            temporary.unlink(missing_ok=True)
        write_whole(self._folder / BEST_NAME, json.dumps(summary, indent=2) + "\n")


def _checked(text: bytes) -> list[dict[str, Any]]:
    """The lines of a round; none if they are not valid."""
    if len(text) > _MAX_ROUND_BYTES:
        return []
    lines = [json_object(line) for line in text.splitlines()]
    is_round = bool(lines) and lines[-1].get("kind") == "round" and is_finite(lines[-1].get("time"))
    numbers = (lines[-1].get("round"), lines[-1].get("version")) if lines else ()
    return lines if is_round and all(lines) and all(isinstance(number, int) for number in numbers) else []
