"""A teacher joins a run in progress, from another process and without a person: what it sends is learned from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from surreal.distributed.connection.client import RedisClient
from surreal.replay.archive import ReplayArchive, export_replay

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace

SETTINGS = """
env: {id: CartPole-v1, interventions: true}
model: {args: {hidden_sizes: [8]}}
learner: {batch_size: 16}
replay: {capacity: 10000, start_size: 20}
agent: {count: 0, exploration: 0.5}
eval: {enabled: false}
"""
#: Takes over in every second step, and discards the second episode after five steps.
TEACHER = """
class Expert:
    begun = 0

    def reset(self, obs):
        self.begun, self.steps = self.begun + 1, 0

    def __call__(self, obs, action):
        self.steps += 1
        return int(obs[2] + obs[3] > 0) if self.steps % 2 else None

    def mark(self):
        if self.begun == 2:
            return "discard" if self.steps == 5 else None
        return "success" if self.steps == 9 else None
"""


def test_a_teacher_joins_a_run_takes_over_and_judges(
    workplace: Workplace, redis_server: Any, run_id: str, tmp_path: Path
) -> None:
    (workplace.folder / "app.yaml").write_text(SETTINGS)
    (workplace.folder / "teacher.py").write_text(TEACHER)
    at = ("--redis", redis_server.address)
    learner = workplace.start("learner", "app.yaml", "--run", run_id, *at, "--run-dir", "runs/learner")
    workplace.wait_for(lambda: workplace.knows(run_id, redis_server.address), "the run")
    teacher = workplace.start(
        "teach", run_id, *at, "--expert", "teacher:Expert", "--episodes", "4", "--success-reward", "5"
    )
    assert teacher.wait() == 0, teacher.output
    assert "episode 2: return 5, 5 steps, 3 by the teacher, discarded" in teacher.output
    workplace.wait_for(lambda: workplace.status(run_id, redis_server.address)["updates"], "an update")
    with RedisClient(redis_server.address, run=run_id) as client:
        export_replay(client, tmp_path / "taught")
    lengths = []
    for chunk in ReplayArchive(tmp_path / "taught").chunks():
        flags = chunk.columns["extra.is_intervention"]
        assert flags.tolist() == [step % 2 == 0 for step in range(len(flags))]
        assert chunk.columns["reward"].tolist() == [1.0] * (len(flags) - 1) + [6.0]
        lengths.append(len(flags))
    assert lengths == [9, 9, 9]
    assert workplace.run("stop", run_id, *at)[0] == 0
    assert learner.wait() == 0, learner.output


def test_a_run_without_interventions_cannot_be_joined(workplace: Workplace, redis_server: Any, run_id: str) -> None:
    (workplace.folder / "app.yaml").write_text(SETTINGS.replace(", interventions: true", ""))
    at = ("--redis", redis_server.address)
    learner = workplace.start("learner", "app.yaml", "--run", run_id, *at, "--run-dir", "runs/learner")
    workplace.wait_for(lambda: workplace.knows(run_id, redis_server.address), "the run")
    code, output = workplace.run("teach", run_id, *at, "--expert", "teacher:Expert")
    assert code == 2
    assert "env.interventions=true" in output
    assert workplace.run("stop", run_id, *at)[0] == 0
    assert learner.wait() == 0, learner.output
