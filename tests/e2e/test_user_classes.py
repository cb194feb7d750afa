"""A user's own Agent, Learner, Replay, Model and parameter server, in a file beside the YAML that names them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from surreal.base.checkpoint import open_checkpoint
from tests.pages import read_page

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace

PARTS = '''
import numpy as np
import torch
from torch import nn

from surreal.agent import Agent
from surreal.learner import Learner
from surreal.model import Model
from surreal.replay import Replay


class Net(Model):
    def __init__(self, action_space, width=16):
        super().__init__()
        self.q = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, int(action_space.n)))

    def forward(self, obs):
        return self.q(obs)


class Softmax(Agent):
    def __init__(self, model, rng, temperature=1.0):
        super().__init__(model)
        self.rng, self.temperature = rng, temperature

    def _act(self, obs, explore):
        q = self.model(obs).numpy()
        noise = self.rng.gumbel(size=q.shape) * self.temperature
        return np.where(explore[:, None], q + noise, q).argmax(1)


class Newest(Replay):
    """Draws from the newest half only."""

    def _sample(self, batch_size):
        alive = self.alive
        return self.rng.integers(alive.start + len(alive) // 2, alive.stop, batch_size)


class Sarsa(Learner):
    def __init__(self, model, replay, learning_rate=1e-3):
        super().__init__(model, replay)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)

    def learn(self, i, batch):
        q = self.model(batch.obs).gather(1, batch.action[:, None]).squeeze(1)
        with torch.no_grad():
            target = batch.reward + batch.discount * self.model(batch.next_obs).max(1).values
        loss = (target - q).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return {"my_loss": loss.detach()}
'''

YAML = """
name: mine
env: {id: CartPole-v1, num_envs: 4}
model: {class: my_parts.Net, args: {width: 24}}
agent: {class: my_parts.Softmax, count: 1, args: {temperature: 0.5}}
learner: {class: my_parts.Sarsa, args: {learning_rate: 1.0e-4}, batch_size: 32}
replay: {class: my_parts.Newest, capacity: 5000, start_size: 200, samples_per_insert: 4}
eval: {episodes: 2, interval_s: 0.5}
run: {max_env_steps: 3000}
"""


def test_users_own_classes_train(workplace: Workplace) -> None:
    (workplace.folder / "runs").mkdir()
    (workplace.folder / "runs" / "my_parts.py").write_text(PARTS)
    (workplace.folder / "runs" / "mine.yaml").write_text(YAML)
    code, output = workplace.run("run", "runs/mine.yaml")
    assert code == 0, output
    run_dir = workplace.run_dir()
    result = json.loads((run_dir / "result.json").read_text())
    assert result["updates"] > 100
    assert "learner/my_loss" in (run_dir / "metrics.jsonl").read_text()
    code, output = workplace.run("play", str(run_dir / "eval" / "best.safetensors"), "--episodes", "1", "--trust")
    assert code == 0, output
    workplace.assert_nothing_is_left()


def test_model_that_does_not_fit_is_refused_with_its_file_and_line(workplace: Workplace) -> None:
    (workplace.folder / "runs").mkdir()
    (workplace.folder / "runs" / "my_parts.py").write_text(PARTS.replace("int(action_space.n)", "1"))
    (workplace.folder / "runs" / "mine.yaml").write_text(YAML.replace("my_parts.Softmax", "surreal.agent.QAgent"))
    code, output = workplace.run("run", "runs/mine.yaml", "--set", "agent.args={}")
    assert code == 2, output
    line = 1 + PARTS.split("\n").index("    def forward(self, obs):")
    assert f"my_parts.Net.forward (my_parts.py line {line}) gives values of shape" in output, output


SERVED = """
from surreal.agent import PolicyAgent
from surreal.distributed import RemoteServer, remote
from surreal.learner import PolicyGradientLearner


class Counting(PolicyGradientLearner):
    episodes = 0

    @remote
    def count_episodes(self, number: int) -> dict[str, int]:
        self.episodes += number
        return {"episodes": self.episodes, "updates": self.updates}


class Telling(PolicyAgent):
    def __init__(self, model, *, server: RemoteServer, rng, obs_spec):
        super().__init__(model, rng=rng, obs_spec=obs_spec)
        self._server, self._told = server, {}

    def _act(self, obs, explore, context):
        if context.is_first.any():
            self._told = self._server.count_episodes(int(context.is_first.sum()))
        return super()._act(obs, explore, context)

    def metrics(self):
        return {f"agent/told_{name}": float(value) for name, value in self._told.items()}
"""


def test_an_agent_calls_methods_of_a_parameter_server_of_ones_own(workplace: Workplace) -> None:
    (workplace.folder / "runs").mkdir()
    (workplace.folder / "runs" / "served.py").write_text(SERVED)
    (workplace.folder / "runs" / "served.yaml").write_text(
        "env: {id: CartPole-v1, num_envs: 2}\n"
        "model: {class: surreal.model.ActorCritic, args: {hidden_sizes: [8]}}\n"
        "agent: {class: served.Telling, count: 1}\n"
        "learner: {class: served.Counting, gradients: agents, batch_size: 2}\n"
        "replay: {class: surreal.replay.FIFOReplay, args: {trajectory_steps: 16}}\n"
        "eval: {enabled: false}\n"
        "run: {max_env_steps: 1000}\n"
    )
    code, output = workplace.run("run", "runs/served.yaml")
    assert code == 0, output
    lines = [json.loads(line) for line in (workplace.run_dir() / "metrics.jsonl").read_text().splitlines()]
    told = {name: value for line in lines for name, value in line["metrics"].items() if "/told_" in name}
    assert told["agent/told_episodes"] > 10
    assert told["agent/told_updates"] > 0
    workplace.assert_nothing_is_left()


def test_agents_that_learn_by_themselves_share_what_they_learn(workplace: Workplace) -> None:
    """The page's bandit: its agent calls the model at the learner, and acts by the copy that comes back."""
    page = read_page(Path(__file__).parents[2] / "docs" / "gradients.md")
    texts = [block.text for block in page if "algorithm" in block.text]
    (workplace.folder / "algorithm").mkdir()
    for text in texts:
        if text.startswith("# algorithm/"):
            (workplace.folder / text.partition("\n")[0].removeprefix("# ")).write_text(text)
        elif text.startswith("version: 1"):
            (workplace.folder / "app.yaml").write_text(text)
    code, output = workplace.run("run", *workplace.one_agent)
    assert code == 0, output
    rows = [json.loads(line)["metrics"] for line in (workplace.run_dir() / "metrics.jsonl").read_text().splitlines()]
    values = [row["agent/value"] for row in rows if "agent/value" in row]
    assert values and all(0.0 <= value <= 1.0 for value in values)
    checkpoint = open_checkpoint(max((workplace.run_dir() / "checkpoints").glob("*.safetensors")))
    learned = checkpoint.tensors["model/value"]
    assert int(learned.argmax()) in (2, 3) and float(learned.max()) > 0.2  # the better arms
