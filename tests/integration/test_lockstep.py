"""Runs in lockstep: equal to the last bit where they should be, interrupted or not, and different where not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch

from surreal.base.checkpoint import Checkpoint, CheckpointStore
from surreal.base.errors import StoppedError
from surreal.distributed.connection.client import RedisClient
from surreal.run.lockstep.session import LockstepSession
from surreal.run.process.arguments import RoleArguments
from surreal.run.process.role import RoleProcess
from surreal.run.process.roles import LEARNER

#: What is tiny in all of them; a checkpoint every 12 updates.
COMMON = (
    "run.deterministic=true", "device=cpu", "env.num_envs=2", "agent.count=2", "eval.enabled=false",
    "run.stop_at_return=null", "broadcast.interval_updates=1", "checkpoint.interval_updates=12",
    "model.args.hidden_sizes=[8]", "learner.batch_size=8", "redis.maxmemory=64mb", "replay.max_bytes=16mb",
    "sender.chunk_steps=8",
)  # fmt: skip
OFF_POLICY = ("replay.start_size=40", "replay.capacity=100", "replay.samples_per_insert=2", "run.max_env_steps=240")
#: Of each kind of algorithm: a preset, and what makes it small.
KINDS: dict[str, tuple[str, ...]] = {
    "dqn": ("cartpole-per-dqn", *OFF_POLICY, "replay.args.importance_exponent_steps=100"),
    "her": ("bitflip-her-dqn", *OFF_POLICY),
    "sac": ("pendulum-sac", *OFF_POLICY, "agent.args.random_steps=20"),
    "ppo-lstm": (
        "cartpole-ppo", "model.args.value_hidden_sizes=null", "model.args.use_lstm=true", "model.args.lstm_size=8",
        "agent.round_steps=8", "replay.args.trajectory_steps=8", "learner.batch_size=4", "learner.args.mini_batch=16",
        "learner.args.policy_iterations=2", "run.max_env_steps=1000",
    ),
}  # fmt: skip

Run = Callable[..., Checkpoint]


@pytest.fixture(autouse=True)
def _torch_as_it_was() -> Iterator[None]:
    yield
    torch.set_deterministic_debug_mode("default")


@pytest.fixture
def run(redis_server: Any, run_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Run in this process, in a folder of the name given; returns the last checkpoint.

    `stop_at` interrupts the run there, after so many updates of this process; the Redis of the run is lost with it.
    """

    def make(kind: str, folder: str, *overrides: str, stop_at: int = 0, resume: bool = False) -> Checkpoint:
        preset, *settings = KINDS[kind]
        arguments = RoleArguments(
            config=preset, overrides=(*COMMON, *settings, *overrides), run=f"{run_id}-{folder}",
            redis=redis_server.address, run_dir=tmp_path / folder, resume=resume, supervised=True,
        )  # fmt: skip
        stop = threading.Event()
        process = RoleProcess(LEARNER, arguments, stop)
        try:
            with ExitStack() as stack:
                session = LockstepSession(process, stack, lambda: False)
                session.begin()
                interval = session._learner
                assert interval is not None
                if stop_at:
                    optimize, updates = type(interval.learner).optimize, [0]

                    def count(*args: Any) -> Any:
                        updates[0] += 1
                        if updates[0] == stop_at:
                            stop.set()
                        return optimize(*args)

                    monkeypatch.setattr(type(interval.learner), "optimize", count)
                    with pytest.raises(StoppedError):
                        session.run()
                    monkeypatch.undo()
                else:
                    session.run()
                session.end()
        finally:
            process.client.delete_run()
            process.close()
        found = CheckpointStore(tmp_path / folder / "checkpoints").newest_whole()
        assert found is not None
        return found

    yield make
    with RedisClient(redis_server.address, run=run_id) as client:
        client.delete_run()


def are_equal(ours: Checkpoint, theirs: Checkpoint) -> bool:
    assert ours.tensors.keys() == theirs.tensors.keys()
    return all(torch.equal(tensor, theirs.tensors[name]) for name, tensor in ours.tensors.items())


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_was_interrupted_ends_like_one_that_was_not(run: Run, kind: str) -> None:
    whole = run(kind, "whole")
    assert whole.step > 24, "the run has three checkpoint intervals"
    interrupted = run(kind, "cut", stop_at=19)
    assert interrupted.step < 19, "it goes on from a checkpoint before the interruption"
    resumed = run(kind, "cut", resume=True)
    assert are_equal(whole, resumed)
    assert {**whole.metadata, "config": None} == {**resumed.metadata, "config": None}


def test_another_seed_gives_other_parameters(run: Run) -> None:
    short = "run.max_env_steps=80"
    assert are_equal(run("dqn", "one", short), run("dqn", "same", short))
    assert not are_equal(run("dqn", "one-more", short), run("dqn", "other", short, "seed=1"))
