"""Count the code that one transition passes through, from the agent that acts to the agent that loads new parameters.

    python -m benchmarks.path [--list]

One process runs all parts with CartPole and DQN, next to a temporary Redis: `AgentLoop` with a `LocalEnvPool`, a
`QAgent` and an `ExpSender`; `UniformReplay` with its threads; `DQNLearner`; `TorchBroadcaster` and `TorchListener`.
Each lap sends one chunk of four steps, makes one update, and publishes and loads one version of the parameters.

What counts:

* The Python functions of `surreal/` that run in steady state, in any thread. Setup and shutdown do not count. The
  warm-up fills the replay, so that each new chunk evicts an old one.
* A function that runs at least once in 25 laps. Metrics and the copy of the target network are rarer. The pole may
  fall without an end, so episodes do not end either.
* Each function once in each section, however often it runs. The total counts each file and function once; the last line
  adds up the sections. Comprehensions and lambdas belong to the function around them.
* A change of file is a call into another file, or its return. Each pair of caller and callee counts once.

The sections of the path:

* act, env, send: `AgentLoop.step`; the methods of the pool and of the sender are env and send.
* read: the thread that downloads and decodes chunks for the replay.
* replay's turn: the thread that inserts, evicts and samples.
* tick: the methods of `RedisClient` on that thread. The owner renews its lease, evicts and grants credit there.
* update: `Replay.batch_iterator` and `Learner.optimize`.
* broadcast: `TorchBroadcaster.broadcast`.
* listen: the thread of the `TorchListener`.
"""

from __future__ import annotations

import argparse
import math
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

import gymnasium
import torch

import surreal
from surreal import (
    AgentLoop,
    DQNLearner,
    ExpSender,
    LinearSchedule,
    LocalEnvPool,
    QAgent,
    QFunction,
    RedisClient,
    TorchBroadcaster,
    TorchListener,
    UniformReplay,
    temporary_run,
)

SECTIONS = ("act", "env", "send", "read", "replay's turn", "tick", "update", "broadcast", "listen")

_ROOT = str(Path(surreal.__file__).parent) + "/"
_WARM_LAPS, _LAPS, _LEAST_CALLS = 100, 150, 6
_STEPS, _BATCH_SIZE, _CAPACITY, _START_SIZE = 4, 32, 400, 100
_TIMEOUT_S = 30.0
#: Section of each thread, by the beginning of its name.
_THREADS = (("replay/enqueue", "read"), ("replay/", "replay's turn"), ("listener/", "listen"))
#: Classes whose methods lead from one section into another.
_ENTRIES = (("act", LocalEnvPool, "env"), ("act", ExpSender, "send"), ("replay's turn", RedisClient, "tick"))


class Function(NamedTuple):
    """A function of `surreal/`: its section, its file (relative to that folder), and its qualified name."""

    section: str
    file: str
    name: str


class Trace(NamedTuple):
    """The functions of the path in the order of their first call, and the pairs of caller and callee."""

    functions: list[Function]
    calls: list[tuple[Function, Function]]

    def of(self, section: str) -> Trace:
        """Select one section, with the calls into its functions."""
        functions = [function for function in self.functions if function.section == section]
        return Trace(functions, [call for call in self.calls if call[1].section == section])

    @property
    def files(self) -> list[str]:
        """The files in the order of their first call."""
        return list(dict.fromkeys(function.file for function in self.functions))

    @property
    def num_functions(self) -> int:
        """The number of functions; one of several sections counts once."""
        return len({(function.file, function.name) for function in self.functions})

    @property
    def num_changes(self) -> int:
        """The number of file changes for a reader who follows every call once, and returns."""
        pairs = {(caller[1:], callee[1:]) for caller, callee in self.calls}
        return 2 * sum(caller[0] != callee[0] for caller, callee in pairs)


class Recorder:
    """Records calls while `is_recording`; `installed` must begin before the threads of the path start."""

    def __init__(self) -> None:
        self.is_recording = False
        self._calls: Counter[tuple[Function | None, Function]] = Counter()
        self._lock = threading.Lock()
        self._local = threading.local()
        self._functions: dict[tuple[str, CodeType], Function] = {}
        self._entries = {(outer, code): inner for outer, entered, inner in _ENTRIES for code in _codes_of(entered)}

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Profile this thread and every thread that starts in the meantime."""
        before, before_threads = sys.getprofile(), threading.getprofile()
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(before)
            threading.setprofile(before_threads)

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        """Assign this thread's calls to a section."""
        self._local.section = name
        try:
            yield
        finally:
            self._local.section = None

    def trace(self) -> Trace:
        """Return the functions and calls that were recorded often enough."""
        counts = Counter[Function]()
        for (_, callee), count in self._calls.items():
            counts[callee] += count
        functions = [function for function, count in counts.items() if count >= _LEAST_CALLS]
        kept = set(functions)
        calls = [(a, b) for (a, b), n in self._calls.items() if n >= _LEAST_CALLS and a in kept and b in kept and a]
        return Trace(functions, calls)

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(_ROOT) or code.co_name[0] == "<":
            return
        local = self._local
        if not hasattr(local, "stack"):
            local.stack = []
            if not hasattr(local, "section"):
                local.section = _section_of(threading.current_thread().name)
        stack: list[tuple[FrameType, Function | None]] = local.stack
        if event == "return":
            if stack and stack[-1][0] is frame:
                stack.pop()
            return
        caller = stack[-1][1] if stack else None
        section = caller.section if caller else local.section
        function = None
        if section is not None:
            section = self._entries.get((section, code), section)
            made = Function(section, code.co_filename.removeprefix(_ROOT), code.co_qualname)
            function = self._functions.setdefault((section, code), made)
            if self.is_recording:
                with self._lock:
                    self._calls[caller, function] += 1
        stack.append((frame, function))


def _codes_of(entered: type) -> set[CodeType]:
    """Collect the code of a class's methods and properties, with those it inherits."""
    codes = set()
    for base in entered.__mro__:
        if base.__module__.startswith("surreal."):
            for member in vars(base).values():
                function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
                if isinstance(function, FunctionType):
                    codes.add(function.__code__)
    return codes


def _section_of(thread: str) -> str | None:
    return next((section for prefix, section in _THREADS if thread.startswith(prefix)), None)


def trace_transition(client: RedisClient) -> Trace:
    """Run all parts on a Redis server, and record what a transition passes through.

    Args:
        client: a run without data; nothing is deleted at the end.

    Raises:
        TimeoutError: the listener did not load a version in time.
    """
    recorder = Recorder()
    with recorder.installed(), ExitStack() as stack:
        pool = LocalEnvPool([_make_env], seed=0)
        stack.callback(pool.close)
        acting, learning = (QFunction(hiddens=[32], action_space=2) for _ in range(2))
        sender = ExpSender(client, obs_spec=pool.obs_spec, chunk_steps=_STEPS, is_limited=True)
        stack.callback(sender.close)
        agent = QAgent(acting, LinearSchedule(1.0, 0.5, steps=100_000))
        agent._chosen_for = acting  # torch acts: recording takes time, which would decide between it and NumPy
        loop = AgentLoop(pool, agent, sender)
        listener = TorchListener(client, acting)
        stack.callback(listener.close)
        replay = UniformReplay(
            client,
            batch_size=_BATCH_SIZE,
            capacity=_CAPACITY,
            start_size=_START_SIZE,
            samples_per_insert=_BATCH_SIZE / _STEPS,
            samples_per_insert_tolerance=64 * _BATCH_SIZE,
            seed=0,
        )
        stack.callback(replay.join)
        stack.callback(replay.stop)
        broadcaster = TorchBroadcaster(client, learning)
        stack.callback(broadcaster.close)
        learner = DQNLearner(learning, replay)
        replay.start_threads()
        listener.run_listener_thread()
        for _ in range(_START_SIZE + _STEPS):
            loop.step()
        batches = replay.batch_iterator()
        for lap in range(_WARM_LAPS + _LAPS):
            recorder.is_recording = lap >= _WARM_LAPS
            listener._next_registration = math.inf  # it would check the contract every few seconds
            with recorder.section("act"):
                for _ in range(_STEPS):
                    loop.step()
            with recorder.section("update"):
                learner.optimize(*next(batches))
            with recorder.section("broadcast"):
                version = broadcaster.broadcast(learning, "")
            _wait_for(acting, version)
        recorder.is_recording = False
    return recorder.trace()


def _make_env() -> gymnasium.Env[Any, Any]:
    """Make a CartPole whose episodes do not end."""
    env = gymnasium.make("CartPole-v1", max_episode_steps=-1)
    env.unwrapped.theta_threshold_radians = env.unwrapped.x_threshold = float("inf")  # type: ignore[attr-defined]
    return env


def _wait_for(model: QFunction, version: int) -> None:
    deadline_s = time.monotonic() + _TIMEOUT_S
    while model.version < version:
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"the listener has version {model.version}, not {version}, after {_TIMEOUT_S:g} s")
        time.sleep(0.0005)


def _table(trace: Trace) -> Iterator[str]:
    yield f"{'section':<16}{'files':>8}{'functions':>12}{'changes of file':>18}"
    rows = [_numbers(trace.of(section)) for section in SECTIONS]
    sums = tuple(map(sum, zip(*rows, strict=True)))
    for name, row in zip([*SECTIONS, "total", "sum of sections"], [*rows, _numbers(trace), sums], strict=True):
        yield f"{name:<16}{row[0]:>8}{row[1]:>12}{row[2]:>18}"


def _numbers(trace: Trace) -> tuple[int, ...]:
    return len(trace.files), trace.num_functions, trace.num_changes


def _list(trace: Trace) -> Iterator[str]:
    """Yield each file with its functions, both in the order of their first call."""
    for file in trace.files:
        yield f"\n{file}"
        functions = [function for function in trace.functions if function.file == file]
        for name in dict.fromkeys(function.name for function in functions):
            sections = (function.section for function in functions if function.name == name)
            yield f"    {name}  ({', '.join(sections)})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="list each file with its functions")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with temporary_run() as client:
        trace = trace_transition(client)
    for line in [*_table(trace), *(_list(trace) if args.list else ())]:
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
