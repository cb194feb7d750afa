"""Claims: of several processes with one role and index, one takes part in a run, and the others stand by.

A claim is a key that expires unless its holder renews it; see `connection.holders` for when it is void earlier.
Also here: taking over a run from processes with another configuration, and `--stay`.
"""

from __future__ import annotations

import itertools
import logging
import signal
import threading
import time
from collections.abc import Callable, Sequence

import redis

from surreal.base.errors import StoppedError, SurrealError
from surreal.base.system.health import HealthFile, Vitals
from surreal.base.system.logs import WaitNotice
from surreal.base.system.probe import OVER
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.holders import HolderWatch, fields_of, holder_of, make_token
from surreal.distributed.experience.shards import ReplayShards
from surreal.distributed.telemetry.heartbeats import ALIVE_S, live_processes
from surreal.run.process import registry

logger = logging.getLogger(__name__)


_POLL_INTERVAL_S = 0.5


class Claim:
    """The right to be the process of a name in a run.

    Args:
        fingerprint: fingerprint of this process's settings that the run must share.
        ttl_s: lifetime without renewal, s; raising it lets a stand-by on another machine wait longer.
    """

    def __init__(self, client: RedisClient, name: str, fingerprint: str = "", *, ttl_s: float = ALIVE_S) -> None:
        self._client = client
        self.name = name
        self._key = client.run_keys.claim(name)
        self._ttl_ms = int(1000 * ttl_s)
        self._fingerprint = fingerprint
        self._token = make_token(ttl_s, fingerprint=fingerprint)
        self._ttl_s, self._watch = ttl_s, HolderWatch(ttl_s)
        self._is_taken = False

    def try_take(self) -> str:
        """Take or renew it; returns "", or the holder: `process 4711 on HOST`."""
        found, left_ms = self._call(self._ttl_ms)
        holder = found.decode(errors="replace")
        # No process of the run writes text without an id, or this process's id in another token.
        is_foreign = fields_of(holder).get("id") in (None, fields_of(self._token)["id"])
        if holder and (is_foreign or self._watch.is_void(holder, left_ms)):
            found, _ = self._call(self._ttl_ms, void=found)
            holder = found.decode(errors="replace")
        self._is_taken = not holder
        return str(holder_of(holder, self._ttl_s)) if holder else ""

    @property
    def waited_s(self) -> float:
        return self._watch.waited_s

    def take(self, stop: threading.Event, *, is_one_of_many: bool = False) -> None:
        """Take it; wait as a stand-by until the holder ends."""
        notice = WaitNotice(logger)
        remedy = "another --index takes part at once" if is_one_of_many else "this one takes over when that one ends"
        while holder := self._client.retry(self.try_take, what=f"become {self.name}", stop=stop):
            notice.tell("standing by: %s of run %s is %s; %s", self.name, self._client.run, holder, remedy)
            if stop.wait(_POLL_INTERVAL_S):
                raise StoppedError(f"stopped while standing by as {self.name}")

    def wait_until_all_agree(self, stop: threading.Event) -> None:
        """Wait until processes with other settings have ended; they notice by themselves."""
        notice = WaitNotice(logger)
        while names := self._client.retry(self._differing, what="look for processes that differ", stop=stop):
            notice.tell("waiting until %s, which differ from this learner, have ended", ", ".join(names))
            if stop.wait(_POLL_INTERVAL_S):
                raise StoppedError("stopped while waiting for processes that differ")

    def _differing(self) -> list[str]:
        names = sorted({beat.name for beat in live_processes(self._client)})
        tokens = [self._client.redis.get(self._client.run_keys.claim(name)) for name in names]
        return [
            name
            for name, token in zip(names, tokens, strict=True)
            if token is not None and fields_of(bytes(token)).get("fingerprint", "") != self._fingerprint  # type: ignore[arg-type]
        ]

    def release(self) -> None:
        """Release it; tried once, because otherwise it expires."""
        if self._is_taken:
            self._is_taken = False
            try:
                self._call(0)
            except (redis.RedisError, SurrealError) as error:
                logger.debug("the claim of %s will expire: %s", self.name, error)

    def _call(self, length_ms: int, void: bytes = b"") -> tuple[bytes, int]:
        holder, left_ms = self._client.run_script("claim", [self._key], [self._token, length_ms, void])
        return bytes(holder), int(left_ms)


def take_first_free(claim_of: Callable[[int], Claim], client: RedisClient, stop: threading.Event) -> tuple[int, Claim]:
    """Take the claim of the smallest number that no living process has; returns both."""
    for index in itertools.count():
        claim = claim_of(index)
        if not client.retry(claim.try_take, what="take a number", stop=stop):
            break
    return index, claim


def take_over(claim: Claim, replay: ReplayShards, stop: threading.Event) -> None:
    """Wait until processes with other settings have ended, and drop the experience that they sent."""
    claim.wait_until_all_agree(stop)
    steps = replay.clients[0].retry(replay.delete_experience, what="drop experience", stop=stop)
    if steps:
        logger.warning(
            "%d env steps were dropped: they came from processes whose configuration was not that of run %s",
            steps, replay.run,
        )  # fmt: skip


_STAY_POLL_INTERVAL_S = 0.5
_LOOK_INTERVAL_S = 5.0


def stay(client: RedisClient, reason: str, signals: Sequence[signal.Signals], health: HealthFile) -> None:
    """Stay after the run's end (`--stay`) until a signal comes, or `surreal stop --undo` lets the run continue.

    An engine such as Kubernetes restarts every process that ends, and would restart the run with it.
    """
    health.look = lambda: Vitals(OVER)
    health.write()
    logger.info("%s; staying until a signal comes, or `surreal stop %s --undo`", reason, client.run)
    looked_s, was_over = -_LOOK_INTERVAL_S, False
    with client:
        while not signals:
            if time.monotonic() - looked_s >= _LOOK_INTERVAL_S:
                looked_s = time.monotonic()
                is_over = _is_over(client)
                if was_over and is_over is False:
                    logger.info("run %s continues", client.run)
                    return
                # This process may know of the end before the run does.
                was_over = was_over or is_over is True
            time.sleep(_STAY_POLL_INTERVAL_S)


def _is_over(client: RedisClient) -> bool | None:
    # None: unknown, because Redis is away or was emptied.
    try:
        return registry.is_over(client)
    except (redis.RedisError, SurrealError) as error:
        logger.debug("it is unknown whether run %s continues: %s", client.run, error)
        return None
