"""What Python of pages needs around it: code before and after each block, since a page shows what matters.

Blocks of a page are in the order of the page. What pages say themselves (`<!-- setup: ... -->`) comes first.
"""

from __future__ import annotations

from typing import NamedTuple


class Around(NamedTuple):
    """Code before a block, and code after it that sees what came of it; `desk` is there in both."""

    before: str = ""
    after: str = ""
    elsewhere: str = ""  #: the test that runs the block, in place of this


_LEARNER = """
import torch
from surreal.config import load_config
from surreal.distributed import RedisClient
from surreal.run.build.acting import build_model
from surreal.run.build.environments import build_spaces
from surreal.run.build.learning import build_learner
from surreal.base.specs import ObsSpec

def make_learner(*overrides):
    config = load_config("cartpole-a2c", ["learner.args={}", *overrides])
    learner = build_learner(config, build_model(config, build_spaces(config)), None)
    learner.become_ready()
    return learner
"""
_CARTPOLE = "import gymnasium; env = gymnasium.make('CartPole-v1')"

AROUND: dict[str, list[Around]] = {
    "README.md": [
        Around(after="assert issubclass(my_classes.ShyAgent, my_classes.QAgent)"),
    ],
    "docs/atari.md": [
        Around(
            before="from surreal import Atari, ConvQFunction, EpisodeMonitor, FrameStack",
            after="import torch\n"
            "obs, _ = env.reset()\n"
            "assert q_model(torch.as_tensor(obs)[None]).shape == (1, 6) == (1, env.action_space.n)",
        ),
    ],
    "docs/callbacks.md": [
        Around(
            after="from types import SimpleNamespace as Made\n"
            "note = my_callbacks.Note(desk.folder, 'eval', prefix='mine')\n"
            "note.on_evaluation(Made(version=3, mean_return=1.5))\n"
            "note.on_checkpoint('there', 7)\n"
            "note.close()\n"
            "assert (desk.folder / 'mine-eval.txt').read_text() == '3 1.5\\nthere 7\\n'",
        ),
        Around(
            after="from types import SimpleNamespace as Made\n"
            "harder, values = my_curriculum.Harder(), []\n"
            "harder._set_attributes = values.append\n"
            "harder.on_evaluation(Made(mean_return=300))\n"
            "harder.on_evaluation(Made(mean_return=401))\n"
            "assert values == [{'gravity': 12.0, 'force_mag': 8.0}]",
        ),
    ],
    "docs/deployment.md": [
        Around(after="assert env.observation_space.contains(obs) and over"),
        Around(
            before="import shutil; shutil.copy('runs/demo/eval/best.pt', 'policy.pt')",
            after="assert action in (0, 1)",
        ),
        Around(
            before="import onnxruntime, torch; policy = onnxruntime.InferenceSession('policy.onnx')",
            after="assert about['inputs'][0]['name'] == 'obs' and about['policy']['environment'] == 'CartPole-v1'",
        ),
    ],
    "docs/environments.md": [
        Around(
            after="from gymnasium.utils.env_checker import check_env\n"
            "check_env(my_module.MyEnv(render_mode='rgb_array'), skip_render_check=True)",
        ),
    ],
    "docs/examples.md": [
        Around(),
        Around(before="desk.monkeypatch.setattr('sys.argv', ['', '--steps', '5'])\ndesk.ends_with(SystemExit)"),
    ],
    "docs/gradients.md": [
        Around(
            after=_LEARNER + "learner = make_learner('learner.class=my_calls.Counting')\n"
            "assert learner.count_episodes(3) + learner.count_episodes(4) == 10\n"
            "model, calls = learner.model, []\n"
            "class Server:\n"
            "    count_episodes = staticmethod(calls.append)\n"
            "agent = my_calls.Telling(model, server=Server(), obs_spec=ObsSpec.from_obs(np.zeros(4, np.float32)))\n"
            "yes = np.ones(2, bool)\n"
            "agent.act_batch(np.zeros((2, 4), np.float32), yes, np.arange(2), yes, None)\n"
            "assert calls == [2]",
            before="import numpy as np",
        ),
        Around(
            before=_LEARNER + "client, learner = RedisClient(desk.address, run='own'), make_learner()\n"
            "loss = learner.model(torch.rand(3, 4))[1].sum()",
            after="assert (pushed.status, pushed.global_step) == ('ok', 128)",
        ),
        Around(
            before=_LEARNER + "client, learner = RedisClient(desk.address, run='own'), make_learner()\n"
            "from surreal.learner.parameter_server.server import ParameterServer\n"
            "class Applied(Exception): pass\n"
            "def published(server, version):\n"
            "    raise Applied\n"
            "desk.monkeypatch.setattr(ParameterServer, 'published', published)\n"
            "desk.ends_with(Applied)",
            after="assert server.learner.updates == 1\nbroadcaster.close()",
        ),
    ],
    "docs/python.md": [
        Around(elsewhere="tests/e2e/test_api.py"),
        Around(before="import surreal\n" + _CARTPOLE, after="assert env.action_space.contains(action)"),
    ],
    "docs/replay.md": [
        Around(
            before="import torch\n"
            "from types import SimpleNamespace as Made\n"
            "from surreal import ExpSender, RedisClient\n"
            "sender = ExpSender(RedisClient(desk.address, run='own'))\n"
            "obs, new_obs, action, reward, done, info, td_error = [0.0], [1.0], 1, 1.0, False, {}, -0.5",
            after="assert sender.close()\n"
            "chosen, extras = _act(Made(model=lambda obs: obs), torch.tensor([[1.0, 3.0]]), None)\n"
            "assert (chosen.tolist(), extras['priority'].tolist()) == ([1], [1.0])",
        ),
        Around(
            before="from surreal import ExpSender, RedisClient, UniformReplay\n"
            "from surreal.distributed.experience.shards import ReplayShards",
            after="replay.stop()\nassert sender.close()",
        ),
        Around(
            before="from types import SimpleNamespace as Made\n"
            "done = []\n"
            "replay = Made(batch_iterator=lambda: enumerate('ab'), commit=lambda version: done.append(version))\n"
            "learner = Made(optimize=lambda *batch: done.append(batch))\n"
            "broadcaster = Made(broadcast=done.append, version=9)\n"
            "model = 'model'",
            after="assert done == [(0, 'a'), 'model', 9, (1, 'b'), 'model', 9]",
        ),
    ],
    "docs/rlx.md": [
        Around(
            before="import sys\n"
            "desk.monkeypatch.setattr(sys, 'argv', ['', '--rlx-server', 'localhost:7001', '--max-episodes', '3'])\n"
            "desk.ends_with(SystemExit)",
            after="assert [name for _, name, *_ in desk.metrics()].count('client/episode_reward') == 3",
        ),
        Around(before="import numpy as np; image = np.zeros((8, 8), np.uint8)", after="assert action is not None"),
    ],
    "docs/self-play.md": [
        Around(
            after="import numpy as np\n"
            "legal = np.array([False, True, False])\n"
            "assert my_player(None, legal, np.random.default_rng(0)) == 1",
        ),
        Around(
            after="from surreal.config import load_config\n"
            "from surreal.run.build.environments import build_env\n"
            "env = build_env(load_config('matching.yaml'), training=False)\n"
            "env.reset(seed=0)\n"
            "results = [env.step(0) for _ in range(10)]\n"
            "assert results[-1][2] and sum(result[1] for result in results) in range(-10, 11)",
        ),
        Around(
            before="from tests.policies import write_policy\n"
            "write_policy(desk.folder / 'runs/demo/eval/best.safetensors', 'tictactoe-selfplay-ppo')\n"
            "import surreal\n"
            "evaluate = surreal.evaluate\n"
            "desk.monkeypatch.setattr(surreal, 'evaluate', lambda *a, episodes, **b: evaluate(*a, episodes=10, **b))",
            after="assert -1.0 <= score.mean_return <= 1.0",
        ),
    ],
}
