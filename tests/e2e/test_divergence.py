"""Impossible numbers in a run: what an environment shows of them, and a learner that makes them itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from surreal.base.checkpoint import load_checkpoint

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace

PARTS = """
import gymnasium
import numpy as np
import torch
from gymnasium import spaces

from surreal.learner import DQNLearner, PPOLearner


class Signs(gymnasium.Env):
    '''Ten times a step: name the sign of a number. In one of forty episodes a number is an impossible one.'''

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = spaces.Discrete(2)
    episodes = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        Signs.episodes += 1
        self.steps = 0
        return self.show(), {}

    def step(self, action):
        reward = float(action == (self.shown > 0))
        self.steps += 1
        obs = self.show()
        if Signs.episodes % 40 == 7 and self.steps == 5:
            obs[:] = (np.nan, np.inf, 3e38)[Signs.episodes % 3]
        return obs, reward, self.steps == 10, False, {}

    def show(self):
        self.shown = self.np_random.normal()
        return np.array([self.shown], np.float32)


gymnasium.register("Signs-v0", Signs)


class Spoilt(DQNLearner):
    '''Breaks its parameters at some updates.'''

    def __init__(self, model, replay, at=(), **options):
        super().__init__(model, replay, **options)
        self.at = at

    def learn(self, i, batch):
        metrics = super().learn(i, batch)
        if self.updates in self.at:
            with torch.no_grad():
                next(self.model.parameters()).fill_(torch.nan)
        return metrics


class SpoiltPPO(PPOLearner):
    '''Has a loss that is not a number from some update on.'''

    def __init__(self, model, replay, after=0, **options):
        super().__init__(model, replay, **options)
        self.after = after

    def learn(self, i, batch):
        factor = torch.nan if self.updates >= self.after else 1.0
        return super().learn(i, batch._replace(reward=batch.reward * factor))
"""

YAML = """
name: signs
env: {id: "signs:Signs-v0", num_envs: 4}
model: {args: {hidden_sizes: [16]}}
agent: {count: 1, exploration: 0.3}
learner: {class: signs.Spoilt, args: {initial_learning_rate: 5.0e-3}, batch_size: 32, gamma: 0.5}
replay: {capacity: 5000, start_size: 200, samples_per_insert: 8}
broadcast: {interval_updates: 20}
eval: {episodes: 10, confirm_episodes: 0, interval_s: 0.2}
checkpoint: {interval_updates: 50, checkpoints_to_keep: 1000}
run: {max_env_steps: 30000}
"""


def run(workplace: Workplace, *settings: str) -> tuple[int, str, dict[str, Any]]:
    folder = workplace.folder / "runs"
    folder.mkdir()
    (folder / "signs.py").write_text(PARTS)
    (folder / "signs.yaml").write_text(YAML)
    options = [word for setting in settings for word in ("--set", setting)]
    code, output = workplace.run("run", "runs/signs.yaml", *options)
    return code, output, json.loads((workplace.run_dir() / "result.json").read_text())


def test_impossible_numbers_of_an_environment_and_of_a_learner_spoil_nothing(workplace: Workplace) -> None:
    code, output, result = run(workplace, "learner.args.at=[120]", "run.stop_at_return=9.9", "eval.episodes=20")
    assert code == 0, output
    assert result["reason"].startswith("stop_at_return"), result
    assert result["updates"] > 120
    run_dir = workplace.run_dir()
    checkpoints = sorted((run_dir / "checkpoints").glob("*.safetensors"))
    assert len(checkpoints) >= 3
    for path in [*checkpoints, run_dir / "eval" / "best.safetensors"]:
        load_checkpoint(path)  # which refuses what is not finite
    assert '"learner/rollbacks_total": 1.0' in (run_dir / "metrics.jsonl").read_text()
    assert "it goes back to" in (run_dir / "logs" / "learner.log").read_text()

    ends = ("run.stop_at_return=null", f"learner.max_updates={result['updates'] + 100}", "learner.args.at=[]")
    settings = [word for setting in ends for word in ("--set", setting)]
    code, output = workplace.run("run", "--resume", "--run-dir", str(run_dir), *settings)
    assert code == 0, output
    resumed = json.loads((run_dir / "result.json").read_text())
    assert resumed["updates"] >= result["updates"] + 100
    load_checkpoint(max((run_dir / "checkpoints").glob("*.safetensors")))


def test_learner_that_diverges_again_and_again_ends_the_run_with_the_reason(workplace: Workplace) -> None:
    code, output, result = run(workplace, f"learner.args.at={[*range(120, 3000)]}")
    assert code == 1, output
    assert result["status"] == "failed"
    assert "learner failed: the learner diverged again" in result["reason"]


def test_on_policy_learner_that_learns_nothing_ends_the_run_after_a_few_updates(workplace: Workplace) -> None:
    (workplace.folder / "signs.py").write_text(PARTS)
    settings = ["learner.class=signs.SpoiltPPO", "learner.args.after=6", f"python_path=[{workplace.folder}]"]
    limits = ["run.max_env_steps=15_000", "run.stop_at_return=null", "eval.enabled=false"]
    options = [word for setting in settings + limits for word in ("--set", setting)]
    code, output = workplace.run("run", "cartpole-ppo", *options)
    result = json.loads((workplace.run_dir() / "result.json").read_text())
    assert (code, result["status"]) == (1, "failed"), output
    assert "the gradients of 3 updates in a row are not finite" in result["reason"]
    assert (result["updates"], result["skipped_updates"]) == (12, 6)
    assert "6 of 12 updates were skipped: their gradients were not finite" in output
