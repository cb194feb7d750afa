"""`surreal run --deterministic`, as a user has it: one process beside Redis, and Ctrl-C makes no difference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from surreal.base.checkpoint import CheckpointStore
from surreal.distributed.connection.client import RedisClient

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace

#: Four checkpoints; some hundreds of updates between them, so that there is time to interrupt the run.
SETTINGS = (
    "run.max_env_steps=1200", "run.stop_at_return=null", "model.args.hidden_sizes=[8]", "learner.batch_size=8",
    "replay.start_size=100", "replay.samples_per_insert=8", "eval.episodes=1", "eval.num_envs=1",
)  # fmt: skip


def checkpoints(workplace: Workplace, run: str) -> CheckpointStore:
    return CheckpointStore(workplace.folder / "runs" / run / "checkpoints")


def read(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def test_interrupted_run_ends_as_if_it_had_not_been(workplace: Workplace, redis_server: Any, run_id: str) -> None:
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    command = workplace.start("run", "cartpole-per-dqn", "--deterministic", "--run", "cut", *settings)
    workplace.wait_for(lambda: checkpoints(workplace, "cut").names(), "a checkpoint")
    assert {entry["role"] for entry in workplace.status()["processes"]} <= {"launcher", "learner"}
    command.interrupt()
    assert command.wait() == 130, command.output
    reached = checkpoints(workplace, "cut").newest_step
    command = workplace.start("run", "--resume", "--run-dir", "runs/cut")  # the folder knows how it runs
    assert command.wait() == 0, command.output
    assert "filled again" not in command.output

    # Without a launcher, the learner's process alone does the same.
    where = ("--run", run_id, "--run-dir", "runs/whole", "--redis", redis_server.address)
    command = workplace.start("learner", "runs/cut/app.yaml", *where)
    assert command.wait() == 0, command.output
    with RedisClient(redis_server.address, run=run_id) as client:
        client.delete_run()
    cut, whole = (checkpoints(workplace, run).newest_whole() for run in ("cut", "whole"))
    assert cut is not None and whole is not None and reached is not None
    assert reached < whole.step == cut.step
    assert all(torch.equal(tensor, cut.tensors[name]) for name, tensor in whole.tensors.items())
    scores = [
        {line["version"]: line["mean_return"] for line in read(workplace.folder / "runs" / run / "eval", "scores.jsonl")
         if line["kind"] == "round"}
        for run in ("cut", "whole")
    ]  # fmt: skip
    assert scores[0] == scores[1]
    for run in ("cut", "whole"):
        result = json.loads((workplace.folder / "runs" / run / "result.json").read_text())
        assert (result["updates"], result["reason"][:13]) == (whole.step, "max_env_steps")
    workplace.assert_nothing_is_left()
