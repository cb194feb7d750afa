"""Agents that wait for each update, and a learner that waits for all of them: who is killed in a round stops nobody.

Each observation says which process made it and the how manieth it is; the learner writes down what it learned from.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from surreal.run.process.finding import find_run
from surreal.run.view.reader import run_status

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace

#: A step takes as long as 20 updates a second leave it, so that a process is nearly always killed within a round.
PARTS = """
import json, os, time
import gymnasium
from numbered import Numbered
from surreal.learner import PPOLearner

class Slow(Numbered):
    def step(self, action):
        time.sleep(0.003)
        return super().step(action)

class Noting(PPOLearner):
    def learn(self, i, batch):
        is_step = batch.mask > 0
        lag = int(self.model.version - batch.version[is_step].min())
        metrics = super().learn(i, batch)
        steps = (batch.obs[:-1][batch.mask > 0].double() * 2**24).round().long().tolist()
        with open(os.environ["NOTES"], "a") as file:
            file.write(json.dumps([os.getpid(), self.updates, lag, steps]) + "\\n")
        return metrics

gymnasium.register("Slow-v0", Slow)
"""

SETTINGS = """
env: {id: "round_parts:Slow-v0", num_envs: 3}
model: {class: surreal.model.ActorCritic, args: {hidden_sizes: [8]}}
agent: {class: surreal.agent.PolicyAgent, count: 2, round_steps: 8, round_timeout_s: 3}
learner: {class: round_parts.Noting, args: {policy_iterations: 1}, batch_size: 6}
replay: {class: surreal.replay.FIFOReplay, args: {trajectory_steps: 8, piece_timeout_s: 3}}
broadcast: {interval_updates: 1, interval_s: 0.0}
checkpoint: {interval_updates: 5}
eval: {enabled: false}
"""


class Note(NamedTuple):
    """What one update learned from."""

    pid: int
    update: int
    lag: int  #: versions that the oldest step is behind
    steps: list[tuple[int, int, int]]


class Rounds:
    """One of the two runs."""

    def __init__(self, workplace: Workplace, name: str) -> None:
        self.workplace, self.folder = workplace, workplace.folder / "runs" / name
        self._notes = workplace.folder / "runs" / f"{name}.notes"
        arguments = ("--run-dir", str(self.folder), "--run", name)
        self.command = workplace.start("run", "runs/rounds.yaml", *arguments, NOTES=str(self._notes))

    def notes(self) -> Iterator[Note]:
        """What was learned, line by line; the last one may be cut."""
        lines = self._notes.read_text().splitlines(keepends=True) if self._notes.exists() else []
        for line in lines:
            if line.endswith("]\n"):
                pid, update, lag, steps = json.loads(line)
                if max(env for _, env, _ in steps) >= 3:  # an update that was tried with observations of no environment
                    continue
                yield Note(pid, update, lag, [(process, env, count) for process, env, count in steps])

    def updates(self) -> int:
        """Updates noted so far, of all learners."""
        return sum(1 for _ in self.notes())

    def kill(self, name: str) -> None:
        """Kill a process, and wait until the run has learned from several rounds more."""
        with find_run(None, address=None, run_dir=self.folder) as client:
            entries = run_status(client).to_json()["processes"]
        os.kill(next(int(entry["pid"]) for entry in entries if entry["name"] == name), signal.SIGKILL)
        before = self.updates()
        self.workplace.wait_for(lambda: self.updates() > before + 8, f"updates after the death of {name}")


def test_two_runs_go_on_when_an_agent_and_the_learner_are_killed_in_a_round(workplace: Workplace) -> None:
    (workplace.folder / "runs").mkdir()
    shutil.copy(Path(__file__).with_name("numbered.py"), workplace.folder / "runs")
    (workplace.folder / "runs" / "round_parts.py").write_text(PARTS)
    (workplace.folder / "runs" / "rounds.yaml").write_text(SETTINGS)
    runs = [Rounds(workplace, "first"), Rounds(workplace, "second")]
    for run in runs:
        workplace.wait_for(lambda: run.updates() > 8, "updates")  # noqa: B023
    for name in ("agent-0", "learner"):
        for run in runs:
            run.kill(name)
    for run in runs:
        run.command.interrupt()
        assert run.command.wait() == 130, run.command.output
        _assert_no_step_is_used_twice(list(run.notes()), run.folder)


def _assert_no_step_is_used_twice(notes: list[Note], folder: Path) -> None:
    """What a killed learner did after its last broadcast, from which the next one continues, is in no parameters."""
    learners = list(dict.fromkeys(note.pid for note in notes))
    assert len(learners) == 2, folder
    went_on = next(note.update for note in notes if note.pid == learners[1])
    assert went_on > 0
    assert sum(1 for note in notes if note.pid == learners[0] and note.update >= went_on) <= 1
    kept = [note for note in notes if note.pid == learners[1] or note.update < went_on]
    # Killed between its broadcast and the commit that follows, it leaves that batch to the next one.
    again = next(note.steps for note in kept if note.pid == learners[1])
    kept = [note for note in kept if note.pid == learners[1] or note.steps != again]
    steps = [step for note in kept for step in note.steps]
    assert len(steps) == len(set(steps)) > 500
    assert {note.lag for note in notes[-4:]} == {0}, "all steps are of the newest version again"
    assert len({process for process, _, _ in steps}) == 3  # of two agents, one of which was killed
