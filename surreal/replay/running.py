"""RunningReplay: the threads of a replay, and what it reports. `Replay` adds the decisions and the batches."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, Self

from surreal.base.specs import ObsSpec
from surreal.base.system.threads import Supervisor
from surreal.base.values import checked_count
from surreal.replay.batches import B
from surreal.replay.state import ReplayState
from surreal.replay.store.storage import LiveChunks, TransitionStore

#: A thread that is busy in Python starves the training thread at CPython's default of 5 ms. At 0.2 ms, prefetching
#: costs the learner a few per cent.
_SWITCH_INTERVAL_S = 0.0002


class RunningReplay(ABC, Generic[B]):
    """The part of a replay that is the same for all kinds."""

    capacity: int
    start_size: int

    def __init__(self, state: ReplayState[B], supervisor: Supervisor) -> None:
        self.state = state
        self.supervisor = supervisor
        self.streams = state.streams
        self.owner = state.owner
        self.pointer_queue = state.pointer_queue
        self.fetcher_queue = state.fetcher_queue

    @abstractmethod
    def __len__(self) -> int:
        """Transitions that are alive."""

    @abstractmethod
    def start_sample_condition(self) -> bool:
        """Whether there may be batches."""

    @abstractmethod
    def step(self, timeout_s: float = 0.05) -> bool:
        """Take one turn of the replay's thread."""

    def start_threads(self) -> None:
        """Start the background threads. Also makes CPython switch threads more often."""
        sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_INTERVAL_S))
        for queue in self.pointer_queue.queues:
            self.supervisor.spawn(f"enqueue-{queue.stream.shard}", queue.enqueue_step)
        self.supervisor.spawn("replay", self.step)

    def check(self) -> None:
        """Raise `ThreadFailedError` if one of the background threads died."""
        self.supervisor.check()

    def stop(self) -> None:
        """Ask the threads to end; a batch iterator ends too."""
        self.supervisor.stop()
        self.state.wake.set()

    def join(self, timeout_s: float = 5.0) -> bool:
        """Wait for the threads, and return the lease, which otherwise expires; return whether all threads ended."""
        if not self.supervisor.join(timeout_s):
            return False
        self.owner.release()
        if self.store is not None:
            self.store.observations.close()
        return True

    def __enter__(self) -> Self:
        self.start_threads()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.join()

    @property
    def store(self) -> TransitionStore | None:
        """The built-in store; None until the first chunk came."""
        return self.state.store

    @property
    def chunks(self) -> LiveChunks:
        """The chunks in the store, oldest first."""
        return self.state.chunks

    @property
    def obs_spec(self) -> ObsSpec | None:
        """Leaves of an observation; None until the first chunk came."""
        return self.store.contract.stacked_obs if self.store is not None else None

    @property
    def global_step(self) -> int:
        return self.owner.global_step

    @property
    def is_starved(self) -> bool:
        """Whether it cannot make another batch because the agents have sent too little."""
        return self.state.is_starved

    @property
    def num_samples(self) -> int:
        """Transitions sampled in the whole run."""
        return self.owner.samples

    @property
    def epoch(self) -> str:
        """The shards' epochs; it changes when a Redis was emptied."""
        return self.owner.epoch

    def state_dict(self) -> dict[str, Any]:
        return {
            "samples": self.owner.samples,
            "global_step": self.global_step,
            "shard_steps": {str(each.stream.shard): each.steps for each in self.owner.shards},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue counting from a checkpoint; before `start_threads`. Raises `ValueError` for anything else."""
        samples, total = checked_count(state["samples"]), checked_count(state["global_step"])
        by_shard = {shard: checked_count(steps) for shard, steps in state.get("shard_steps", {}).items()}
        self.owner.samples, shards = samples, self.owner.shards
        if set(by_shard) == {str(each.stream.shard) for each in shards}:
            for each in shards:
                each.steps = by_shard[str(each.stream.shard)]
        else:  # the shards were others: what counts is the sum
            shards[0].steps = total

    def metrics(self) -> dict[str, float]:
        return {"replay/fill_ratio": len(self) / self.capacity, **self.state.metrics()}

    def _awaited(self) -> str:
        if self.store is None:
            return "waiting for the first experience of an agent"
        if not self.pointer_queue.has_caught_up.is_set():
            return f"reading the replay back, {len(self)} transitions so far"
        if len(self) < self.start_size:
            return f"filling the replay, {len(self)}/{self.start_size}"
        if not self.start_sample_condition():
            return "waiting for experience to make a batch of"
        return "waiting for more experience of the agents"
