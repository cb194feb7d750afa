"""Detection of processes that are gone, hang, or took another one's name; docs/liveness.md has all mechanisms.

Claims: of several processes with one role and index, one takes part in a run, and the others stand by. A claim is a key
that expires unless its holder renews it; see `connection.holders` for when it is void earlier. With them are taking
over a run from processes with another configuration, and `--stay`.

The watchdog of a role process finds a loop that hangs, names the call, and does what `run.on_hang` says. Each loop of
the process has a `Pulse`: the main one in `RoleProcess.should_stop`, threads in their `Supervisor`. A thread with a
wait notice (`WAITS`: Redis, credit, data, ...) does not hang.
"""

from __future__ import annotations

import itertools
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import redis

from surreal.base.errors import StoppedError, SurrealError
from surreal.base.system.health import HealthFile, Pulse, Vitals, innermost_call, pulses, stack_of
from surreal.base.system.logs import WAITS, WaitNotice, Waits
from surreal.base.system.probe import OVER
from surreal.base.values import json_object
from surreal.config import Config
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.holders import HolderWatch, holder_of, make_token
from surreal.distributed.experience.shards import ReplayShards
from surreal.distributed.telemetry.heartbeats import ALIVE_S, live_processes
from surreal.distributed.telemetry.telemetry import Telemetry
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
        is_foreign = json_object(holder).get("id") in (None, json_object(self._token)["id"])
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
            if token is not None and json_object(bytes(token)).get("fingerprint", "") != self._fingerprint  # type: ignore[arg-type]
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
            time.sleep(_POLL_INTERVAL_S)


def _is_over(client: RedisClient) -> bool | None:
    # None: unknown, because Redis is away or was emptied.
    try:
        return registry.is_over(client)
    except (redis.RedisError, SurrealError) as error:
        logger.debug("it is unknown whether run %s continues: %s", client.run, error)
        return None


_MAX_INTERVAL_S = 1.0
_MAX_FRAMES = 30


@dataclass(eq=False)
class Watchdog:
    """Looks at all pulses of the process, on its own thread."""

    timeout_s: float  #: longest iteration of a loop, s, > 0
    show: Callable[[str], None]  #: told which loop hangs in which call; "" if no loop hangs
    #: called once with a sentence when a loop that had begun hangs; None: only warn
    act: Callable[[str], None] | None = None
    clock: Callable[[], float] = time.monotonic  #: seconds, monotonic
    waits: Waits = WAITS  #: waits of the process
    find: Callable[[], Sequence[Pulse]] = pulses  #: gives the pulses

    def __post_init__(self) -> None:
        self._interval_s = min(_MAX_INTERVAL_S, self.timeout_s / 4)
        self._looked_s = self.clock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._looked_s = self.clock()
        self._thread = threading.Thread(target=self._loop, name="watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop watching; returns at once."""
        self._stop.set()

    def look(self) -> None:
        now = self.clock()
        # Time while the process was stopped or the machine slept does not count.
        passed_s, self._looked_s = min(now - self._looked_s, 2 * self._interval_s), now
        found = self.find()
        for pulse in found:
            if pulse.has_turned or self.waits.is_waiting(pulse.thread_id):
                self._note_turn(pulse)
                continue
            pulse.silence_s += passed_s
            if pulse.silence_s >= self.timeout_s and not pulse.hangs_in:
                self._note_hang(pulse)
        self.show(_hangs(found))

    def _note_turn(self, pulse: Pulse) -> None:
        if pulse.hangs_in:
            logger.warning("%s continues after %.0f s", pulse.name, pulse.silence_s)
            pulse.hangs_in = ""
        pulse.has_begun = pulse.has_begun or pulse.has_turned
        pulse.has_turned = False
        pulse.silence_s = 0.0

    def _note_hang(self, pulse: Pulse) -> None:
        stack = stack_of(pulse.thread_id)
        pulse.hangs_in = f"{pulse.name} hangs in {innermost_call(stack)}"
        sentence = f"{pulse.hangs_in}, for {pulse.silence_s:.0f} s now"
        logger.warning("%s", sentence)
        logger.info("%s is at:\n%s", pulse.name, "".join(traceback.format_list(stack[-_MAX_FRAMES:])).rstrip())
        self.show(_hangs(self.find()))
        if self.act is not None and pulse.has_begun:
            self.act(sentence)

    def _loop(self) -> None:
        while not self._stop.wait(self._interval_s):
            self.look()


def _hangs(found: Sequence[Pulse]) -> str:
    return "; ".join(pulse.hangs_in for pulse in found if pulse.hangs_in)


#: Time to send the last of the log, s: the telemetry itself may hang.
_LAST_LOG_S = 3.0


def make_watchdog(
    config: Config, telemetry: Telemetry, stop: threading.Event, end_run: Callable[[str], object]
) -> Watchdog:
    """Make the watchdog of a process."""

    def show(text: str) -> None:
        telemetry.hangs_in = text

    def act(sentence: str) -> None:
        if stop.is_set():
            return
        ends = config.run.on_hang == "end"
        _within(_LAST_LOG_S, lambda: end_run(sentence) if ends else None)
        _within(_LAST_LOG_S, telemetry.step)
        sys.stderr.write(f"error: {sentence}\n")
        sys.stderr.flush()
        if ends:
            os._exit(1)
        os.kill(os.getpid(), signal.SIGKILL)  # a launcher restarts what a signal ended

    return Watchdog(config.run.hang_timeout_s, show=show, act=None if config.run.on_hang == "warn" else act)


def _within(timeout_s: float, action: Callable[[], object]) -> None:
    thread = threading.Thread(target=action, name="last-words", daemon=True)
    thread.start()
    thread.join(timeout_s)
