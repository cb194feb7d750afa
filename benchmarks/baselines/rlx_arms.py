"""Robot arms as clients of an RLX server: each sends images at a fixed rate, and its own number with each of them.

`benchmarks.arms` runs `play` in another process, and talks to it through a pipe, and for an arm that may misbehave

    python -m benchmarks.baselines.rlx_arms PORT NUMBER STEP pace|flood|silence HZ

whose output has a line of JSON for each `Act`. It imports little, so that it soon acts again after it was killed.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from surreal.rlx.protocol.codec import decode, encode
from surreal.rlx.protocol.framing import FrameReader, frame

IMAGE = (64, 64)
_TIMEOUT_S = 60.0


class Act(NamedTuple):
    """One answered request of an arm."""

    arm: int
    step: int  #: number of the image, which counts on when the arm comes back
    has_outcome: bool  #: whether the request completed the step before it, which then is acknowledged
    sent_s: float
    answered_s: float
    version: int  #: of the parameters that acted


class Arm:
    """One arm; `connect` begins a session, also after `close`.

    Args:
        number: the arm's.
        port: the server's.
        step: number of its first image.
    """

    def __init__(self, number: int, port: int, step: int = 0) -> None:
        self.number, self.step = number, step
        self._port, self._is_first = port, True

    def connect(self) -> None:
        self.sock = socket.create_connection(("127.0.0.1", self._port), timeout=_TIMEOUT_S)
        self._reader, self._is_first = FrameReader(), True
        self.sock.sendall(frame(encode({"command": "init", "exploit": False})))
        self._receive()

    def request(self) -> bytes:
        """Return the next request, whose image holds the arm's number and that of the step."""
        state = np.zeros(IMAGE, np.uint8)
        state.reshape(-1)[:8].view("<u4")[:] = self.number, self.step
        reward = None if self._is_first else 1.0
        return frame(encode({"command": "update", "reward": reward, "state": state, "terminal": False}))

    def act(self) -> Act:
        """Exchange one request."""
        payload, sent_s = self.request(), time.monotonic()
        self.sock.sendall(payload)
        reply = self._receive()
        done = Act(self.number, self.step, not self._is_first, sent_s, time.monotonic(), int(reply["data"]))
        self.step, self._is_first = self.step + 1, False
        return done

    def close(self) -> None:
        self.sock.close()

    def _receive(self) -> dict[str, Any]:
        while True:
            data = self.sock.recv(65536)
            if not data:
                raise ConnectionError("the server closed the connection")
            for payload in self._reader.feed(data):
                reply = decode(payload)
                if reply["response"] not in ("ready", "action"):
                    raise RuntimeError(f"arm {self.number} got {reply}")
                return reply


def _drive(arm: Arm, rate_hz: float, leaves_every: int | None, stop: threading.Event, done: list[Act]) -> None:
    """Act at a fixed rate; with `leaves_every`, leave and come back after this many steps."""
    arm.connect()
    due_s = time.monotonic() + arm.number / 100 % (1 / rate_hz)  # their periods begin at different times
    count = 0
    while not stop.is_set():
        time.sleep(max(0.0, due_s - time.monotonic()))
        done.append(arm.act())
        due_s = max(due_s + 1 / rate_hz, time.monotonic())
        count += 1
        if leaves_every and count % leaves_every == 0:
            arm.close()
            arm.connect()
    arm.close()


def play(arms: int, rate_hz: float, pipe: Connection) -> None:
    """Drive several arms, a thread each.

    The pipe gives the server's port, and then (seconds, leaves_every) for each round, which is answered with what they
    did; None ends it.
    """
    port = pipe.recv()
    drivers = [Arm(number, port) for number in range(arms)]
    while (asked := pipe.recv()) is not None:
        seconds, leaves_every = asked
        stop, done = threading.Event(), list[Act]()
        threads = [
            threading.Thread(target=_drive, args=(arm, rate_hz, leaves_every, stop, done), daemon=True)
            for arm in drivers
        ]
        for thread in threads:
            thread.start()
        time.sleep(seconds)
        stop.set()
        for thread in threads:
            thread.join(_TIMEOUT_S)
        if any(thread.is_alive() for thread in threads):
            raise RuntimeError("an arm hangs")
        pipe.send(done)


def disturb(arm: Arm, how: str, rate_hz: float) -> None:
    """Be one more arm until the process is killed, and print each step.

    Args:
        arm: is not connected yet.
        how: "pace": as the others; "flood": without a pause; "silence": sends, and never reads an answer.
        rate_hz: steps per s with "pace".
    """
    arm.connect()
    print(json.dumps(arm.act()), flush=True)
    while how != "silence":
        if how == "pace":
            time.sleep(1 / rate_hz)
        print(json.dumps(arm.act()), flush=True)
    block = arm.request() * 16
    arm.sock.settimeout(None)
    with suppress(OSError):  # the server may close the connection of a client that does not read
        while True:
            arm.sock.sendall(block)
    time.sleep(_TIMEOUT_S)


if __name__ == "__main__":
    port, number, step, how, rate_hz = sys.argv[1:]
    disturb(Arm(int(number), int(port), int(step)), how, float(rate_hz))
