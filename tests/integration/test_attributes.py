"""Attributes of environments: set in one process of a run, and followed by the environments of another."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surreal.base.errors import EnvError
from surreal.run.build.environments import build_pool
from surreal.run.process.arguments import RoleArguments
from surreal.run.process.role import RoleProcess
from surreal.run.process.roles import AGENT, EVAL, Role

CALLBACK = "callbacks=[{class: surreal.run.observers.StopWithoutImprovement}]"


@pytest.fixture
def join(redis_server: Any, run_id: str, tmp_path: Path) -> Iterator[Any]:
    made: list[RoleProcess] = []

    def make(role: Role, *overrides: str) -> RoleProcess:
        arguments = RoleArguments(
            config="cartpole-dqn",
            overrides=(CALLBACK, "env.num_envs=1", *overrides),
            run=run_id,
            redis=redis_server.address,
            run_dir=tmp_path,
            connect_timeout_s=0.1,
        )
        made.append(RoleProcess(role, arguments, threading.Event()))
        return made[-1]

    yield make
    for process in made:
        process.close()


@pytest.mark.parametrize("kind", ["local", "subproc", "vector"])
def test_environments_of_another_process_follow_a_callback(join: Any, kind: str) -> None:
    setter = join(EVAL)
    setter.callbacks._callbacks[0].set_environments(force_mag=0.0)
    agent = join(AGENT, f"env.pool={kind}")
    with ExitStack() as stack:
        pool = build_pool(agent.config, index=0, attributes=agent.attributes.follow(stack))
        stack.callback(pool.close)

        def pushes_of_next_episode() -> bool:
            """Whether an action moves the cart in the next episode that begins."""
            while True:
                batch = pool.recv(5.0)
                acting = batch.num_last
                if acting == len(batch.env_ids):  # a vector environment's next episode comes with its next batch
                    continue
                before = np.array(batch.obs[acting:])
                is_first = bool(batch.kind[acting] == 0)
                pool.send(np.ones(1, np.int64), batch.env_ids[acting:])
                if is_first:
                    after = np.array(pool.recv(5.0).obs)[-1:]
                    pool.send(np.ones(1, np.int64), np.zeros(1, np.int64))
                    return bool(abs(after[0, 1] - before[0, 1]) > 0.1)

        assert not pushes_of_next_episode()  # set before this agent began
        setter.callbacks._callbacks[0].set_environments(force_mag=10.0, gravity=9.8)
        agent.attributes.update()
        assert pushes_of_next_episode()


def test_what_cannot_be_set_is_refused_where_it_is_set(join: Any) -> None:
    setter = join(EVAL)
    for value in (float("nan"), object(), "x" * 70_000):
        with pytest.raises(ValueError, match="attribute gravity"):
            setter.attributes.set({"gravity": value})
    with pytest.raises(EnvError, match=r"set_environments cannot be used: env\.pool is envpool"):
        join(EVAL, "env.pool=envpool").attributes.set({"gravity": 1.0})


def test_a_process_may_begin_again(join: Any) -> None:
    """An interval of a deterministic run makes its environments anew."""
    agent = join(AGENT)
    for _ in range(2):
        with ExitStack() as stack:
            path = agent.attributes.follow(stack)
            assert path is not None and path.read_text() == "{}"
        assert not path.exists()


def test_a_run_without_callbacks_follows_nothing(join: Any) -> None:
    with ExitStack() as stack:
        assert join(AGENT, "callbacks=[]").attributes.follow(stack) is None
