"""Many robot arms and one learner: the age of the parameters that act, and whether arms disturb each other.

    python -m benchmarks.arms [--arms 16] [--rate HZ] [--rounds N] [--seconds S]

An RLX server acts for arms that send images of 64 x 64 bytes at 20 Hz. A learner in another process trains with what
they experience, without a pause, and broadcasts every half second. Each action of the server is the version of the
parameters that chose it, so every arm knows which ones act. All but one arm keep their rate; the last one is

    calm     an arm like the others             leaving  the same, and each arm leaves and comes back after 20 steps
    flood    sends without a pause              silence  sends without a pause, and never reads
    killed   killed with SIGKILL twice per second, and started again with the next number of a step

Results of each case, over all rounds, which alternate:

* outdated_ms, for each broadcast and arm: from the broadcast until the arm's last action by older parameters; 0 if
  there is none. Aim: p99 <= 100 ms. new_ms: until its first action by new ones, with up to a period of 50 ms.
* latency_ms of all steps of the other arms, and slowest_hz, the rate of the slowest one.
* lost: steps that were acknowledged to any arm and are not in the replay afterwards; `steps` are all acknowledged ones.

`load` is the load average before the first round: at more than the number of cores, the times are too high.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from multiprocessing.connection import Connection
from typing import Any

import gymnasium
import numpy as np
import torch

from benchmarks.alone import alone
from benchmarks.arm_figures import BROADCAST_S, Round, acknowledged_steps, stored_steps, summarize
from benchmarks.baselines.rlx_arms import IMAGE, Act, play
from surreal.agent import AgentLoop, QAgent
from surreal.base.system.process import keep_freed_memory
from surreal.base.types import Action
from surreal.distributed import EmbeddedRedis, ExpSender, RedisClient
from surreal.distributed.parameters.broadcaster import TorchBroadcaster
from surreal.distributed.parameters.listener import TorchListener
from surreal.model import ConvQFunction
from surreal.replay import UniformReplay
from surreal.rlx.pool.pool import RlxEnvPool
from surreal.rlx.server.admission import Admission
from surreal.rlx.server.server import RlxServer
from surreal.rlx.server.settings import ServerSettings

SPAWN = multiprocessing.get_context("spawn")
CASES = ("calm", "flood", "silence", "killed", "leaving")
AIM_OUTDATED_MS = 100.0
_CAPACITY, _REPLAY_BYTES = 1_000_000, 5 << 30  #: more than all rounds need: a step that is dropped would count as lost
_NUM_ACTIONS, _MAX_VERSION = 6, 1 << 30
_LIFE_S, _LEAVES_EVERY = 0.5, 20


def make_model() -> ConvQFunction:
    return ConvQFunction(action_space=_NUM_ACTIONS)


class VersionAgent(QAgent):
    """Asks its network for actions as always, and answers the version of the parameters instead."""

    def act_batch(self, *arguments: Any) -> Action:
        action = super().act_batch(*arguments)
        return action._replace(actions=np.full(len(action.actions), action.version, np.int64))


def learn(address: str, run: str, pipe: Connection) -> None:
    """Train without a pause and broadcast, until the pipe has something; then send versions and times."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with RedisClient(address, run=run) as client:
        model, times = make_model(), list[tuple[int, float]]()
        model(torch.zeros(1, *IMAGE, dtype=torch.uint8))  # it makes its parameters
        optimizer, broadcaster = torch.optim.Adam(model.parameters(), 1e-5), TorchBroadcaster(client, model)
        replay = UniformReplay(client, batch_size=32, capacity=_CAPACITY, max_bytes=_REPLAY_BYTES, start_size=64)
        replay.start_threads()
        next_s = 0.0
        while not pipe.poll(0):
            if time.monotonic() >= next_s:
                began_s = time.monotonic()
                times.append((broadcaster.broadcast(), began_s))
                next_s = began_s + BROADCAST_S
            broadcaster.maintain()
            batch = replay.dequeue(0.05)
            if batch is not None:
                with model.lock:
                    loss = (model(torch.as_tensor(batch.obs)).mean(1) - torch.as_tensor(batch.reward)).square().mean()
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
        replay.stop()
        replay.join()
        broadcaster.close()
    pipe.send(times)


def serve(address: str, run: str, pipe: Connection) -> None:
    """Serve until the pipe has something; sends the port before, and whether all experience was sent afterwards."""
    torch.set_num_threads(1)
    sys.setswitchinterval(0.0005)  # this and the next line: as in `surreal rlx-server`
    keep_freed_memory()
    with RedisClient(address, run=run) as client:
        model = make_model()
        model(torch.zeros(1, *IMAGE, dtype=torch.uint8))
        listener = TorchListener(client, model, in_place=False)
        listener.run_listener_thread()
        listener.wait_for_first(60.0)
        space = gymnasium.spaces.Box(0, 255, IMAGE, np.uint8)
        pool = RlxEnvPool(gymnasium.spaces.Discrete(_MAX_VERSION), space)
        sender = ExpSender(client, chunk_steps=64, max_delay_s=0.2)
        loop, stop = AgentLoop(pool, VersionAgent(model, None), sender), threading.Event()
        with RlxServer(pool, ServerSettings(port=0, admission=Admission(None, 0))) as server:
            thread = threading.Thread(target=loop.run, args=(stop,))
            thread.start()
            pipe.send(server.port)
            pipe.recv()
        stop.set()
        thread.join()
        while loop.step(0.01):  # ends of the last connections
            pass
        listener.close()
        pipe.send(sender.close())


class Part:
    """A process with one of the functions that talk through a pipe."""

    def __init__(self, target: Callable[..., None], *arguments: Any) -> None:
        self.pipe, theirs = SPAWN.Pipe()
        self.process = SPAWN.Process(target=target, args=(*arguments, theirs), daemon=True)
        self.process.start()
        theirs.close()  # so that the pipe ends with the process

    def end(self, message: Any = None) -> Any:
        """Ask it to end, and return its last message."""
        self.pipe.send(message)
        try:
            return self.pipe.recv()
        finally:
            self.process.join(30)


class LastArm:
    """The process of the arm that may misbehave; returns from the constructor when it has acted once.

    Args:
        arguments: the command line of `benchmarks.baselines.rlx_arms`.

    Attributes:
        done: what it did so far.
    """

    def __init__(self, *arguments: Any) -> None:
        command = [sys.executable, "-m", "benchmarks.baselines.rlx_arms", *map(str, arguments)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.done, self._has_acted = list[Act](), threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        if not self._has_acted.wait(60.0):
            self.kill()
            raise RuntimeError(f"{command} did not act")

    def kill(self) -> list[Act]:
        """Kill it with SIGKILL, and return all that it did."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        return self.done

    def _read(self) -> None:
        with self._process.stdout or nullcontext(()) as lines:
            for line in lines:
                self.done.append(Act(*json.loads(line)))
                self._has_acted.set()


class Fleet:
    """The arms: all but the last in one process, the last in its own.

    Args:
        others: process of all arms but the last.
        port: the server's.
        number: the last arm's.
        rate_hz: their steps per second.
    """

    def __init__(self, others: Part, port: int, number: int, rate_hz: float) -> None:
        self._others, self._step = others, 0
        self._port, self._number, self._rate_hz = port, number, rate_hz
        others.pipe.send(port)

    def run(self, case: str, seconds: float) -> Round:
        """Drive all arms for some seconds."""
        how, last = case if case in ("flood", "silence") else "pace", list[Act]()
        arm = self._begin(how)
        began_s = time.monotonic()
        self._others.pipe.send((seconds, _LEAVES_EVERY if case == "leaving" else None))
        while not self._others.pipe.poll(_LIFE_S):
            if case == "killed":
                last += self._kill(arm)
                arm = self._begin(how)
        elapsed_s, others = time.monotonic() - began_s, self._others.pipe.recv()
        return Round(case, elapsed_s, others, last + self._kill(arm))

    def _begin(self, how: str) -> LastArm:
        return LastArm(self._port, self._number, self._step, how, self._rate_hz)

    def _kill(self, arm: LastArm) -> list[Act]:
        """Kill the last arm; it continues after the last step of which it knows."""
        done = arm.kill()
        self._step = done[-1].step + 1
        return done


@contextmanager
def running(address: str, run: str, arms: int, rate_hz: float) -> Iterator[tuple[Part, Part, Fleet]]:
    """Start the learner, the server and the arms."""
    parts = learner, server, others = (
        Part(learn, address, run),
        Part(serve, address, run),
        Part(play, arms - 1, rate_hz),
    )
    try:
        yield learner, server, Fleet(others, server.pipe.recv(), arms - 1, rate_hz)
    finally:
        for part in parts:
            part.process.kill()


def measure(
    address: str, *, arms: int, rate_hz: float, rounds: int, seconds: float, cases: Sequence[str] = CASES
) -> list[dict[str, Any]]:
    """Run all cases in turn; returns the figures of each, and what was lost in all of them."""
    with RedisClient(address, run=f"arms-{uuid.uuid4().hex[:8]}") as client:
        with running(address, client.run, arms, rate_hz) as (learner, server, fleet):
            found = [fleet.run(case, seconds) for _ in range(rounds) for case in cases]
            broadcasts = learner.end()
            is_sent = server.end()
        acknowledged, stored = acknowledged_steps(found), stored_steps(client)
        client.delete_run()
    lines = [summarize(case, [each for each in found if each.case == case], broadcasts) for case in cases]
    newest = max(act.version for each in found for act in each.others)
    totals = {"steps": len(acknowledged), "lost": len(acknowledged - stored), "is_sent": is_sent}
    return [*lines, {"name": "arms, all cases", **totals, "broadcasts": len(broadcasts), "newest_acted": newest}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arms", type=int, default=16)
    parser.add_argument("--rate", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0, help="length of a round of one case")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    with EmbeddedRedis(maxmemory_bytes=2 * _REPLAY_BYTES) as server:
        lines = measure(server.address, arms=args.arms, rate_hz=args.rate, rounds=args.rounds, seconds=args.seconds)
    machine = {"arms": args.arms, "load": load, "is_busy": load > (os.cpu_count() or 1)}
    for line in lines:
        aim = {"aim_outdated_p99_ms": AIM_OUTDATED_MS} if "outdated_ms" in line else {}
        print(json.dumps({**line, **aim, **machine}), flush=True)


if __name__ == "__main__":
    with alone():
        main()
