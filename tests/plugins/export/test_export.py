"""Exported policies act as their checkpoints do: alone in a fresh process, and again within Surreal."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import surreal
from surreal.base import tree
from surreal.base.errors import ConfigError, ExportError
from surreal.base.system.program import install_command
from surreal.cli.program import main
from surreal.plugins.export.exporter import export_policy
from surreal.run.build.saved_policy import load_policy
from surreal.run.view.play import fresh_rng, play_policy
from tests.policies import write_policy


class Case(NamedTuple):
    preset: str
    overrides: tuple[str, ...] = ()
    rows: int = 1000  #: observations in one batch
    steps: int = 1  #: batches
    choices: tuple[int, ...] = ()  #: of each part of a mask; none: masks are left out


ELSEWHERE = (
    "agent.round_steps=null",
    "agent.count=0",
    "rlx.servers=1",
    "eval.enabled=false",
    "run.stop_at_return=null",
)
CASES = {
    "dqn": Case("cartpole-dqn"),
    "ppo with filters": Case("cartpole-ppo", ("model.args.normalize_obs=true",)),
    "sac": Case("pendulum-sac"),
    "ddpg": Case("pendulum-ddpg"),
    "ppo with lstm": Case("cartpole-novel-ppo-lstm", rows=20, steps=50),
    "nature": Case(
        "cartpole-dqn",
        (
            "model.class=surreal.model.ConvQFunction",
            "model.args={hidden_sizes: [32]}",
            "env.observation_space={type: box, shape: [4, 84, 84], dtype: uint8}",
            "env.action_space={type: discrete, n: 6, start: 2}",
            *ELSEWHERE,
        ),
        rows=12,
        choices=(6,),
    ),
    "dict": Case("cartpole-dict-dqn"),
    "choices": Case(
        "cartpole-ppo",
        (
            "env.observation_space={type: dict, spaces: {pose: {type: box, shape: [3]}, gear: {type: discrete, n: 4}}}",
            "env.action_space={type: tuple, spaces: [{type: discrete, n: 2, start: 1}, "
            "{type: multi_discrete, nvec: [3, 4]}]}",
            *ELSEWHERE,
        ),
        choices=(2, 3, 4),
    ),
}
#: What ONNX is tried with, whose export takes seconds; the other cases have no operation that these do not have.
FOR_ONNX = ("dqn", "ppo with filters", "sac", "ppo with lstm", "nature", "choices")
#: Of two parts, which an agent knows as one array.
NESTED = Case(
    "cartpole-ppo",
    (
        "env.observation_space={type: box, shape: [3]}",
        "env.action_space={type: dict, spaces: {arm: {type: box, shape: [2], low: -0.1, high: 0.1}, "
        "grip: {type: box, shape: [1], low: 0, high: 0.1}}}",
        *ELSEWHERE,
    ),
)


def know_something(model: Any) -> None:
    """Give filters something to do."""
    if getattr(model, "obs_filter", None) is not None:
        seen = torch.randn(50, 1, *model.obs_spec.leaves[0].shape, generator=torch.Generator().manual_seed(1))
        model.obs_filter.update(3 * seen + 2, torch.ones(50, 1, dtype=torch.bool))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("policies")


def checkpoint(folder: Path, name: str) -> Path:
    case = NESTED if name == "nested" else CASES[name]
    path = folder / f"{name.replace(' ', '-')}.safetensors"
    return path if path.exists() else write_policy(path, case.preset, *case.overrides, change=know_something)


def write_examples(folder: Path, name: str) -> Path:
    """Write observations that were drawn, and what the policy does for them; masks, where the case has a width."""
    case, rng = CASES[name], np.random.default_rng(0)
    policy = surreal.load(checkpoint(folder, name))
    arrays: dict[str, Any] = {}
    for leaf in policy.obs_spec.leaves:
        size = (case.steps, case.rows, *leaf.shape)
        drawn = (
            rng.normal(size=size) if leaf.dtype.kind == "f" else rng.integers(4 if leaf.shape == () else 256, size=size)
        )
        arrays[f"in:obs.{leaf.name}".removesuffix(".")] = drawn.astype(leaf.dtype)
    observations = list(arrays.values())
    masks: Any = [None] * case.steps
    if case.choices:
        masks = arrays["in:action_mask"] = rng.random((case.steps, case.rows, sum(case.choices))) < 0.7
        masks[..., np.cumsum(case.choices) - 1] = True  # one choice of each part is always legal
    actions = [
        policy.act(policy.obs_spec.unflatten([leaf[step] for leaf in observations]), action_mask=masks[step])
        for step in range(case.steps)
    ]
    number = len(tree.leaves(actions[0][0]))
    for i in range(number):
        columns = [[tree.leaves(action)[i] for action in step] for step in actions]
        arrays[f"out:action.{i}" if number > 1 else "out:action"] = np.array(columns)
    if policy.agent.model.state_shape is not None:
        arrays["in:state"] = np.zeros((case.rows, *policy.agent.model.state_shape), np.float32)
    path = folder / f"{name.replace(' ', '-')}.npz"
    np.savez(path, **arrays)
    return path


def run_alone(folder: Path, ending: str, tmp_path: Path, names: Collection[str]) -> None:
    arguments = []
    for name in names:
        written = export_policy(checkpoint(folder, name), folder / f"{name.replace(' ', '-')}{ending}")
        arguments += [str(written.path), str(write_examples(folder, name))]
    program = Path(__file__).with_name("alone.py")
    done = subprocess.run([sys.executable, program, *arguments], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    counts = [int(line.split()[0]) for line in done.stdout.splitlines()]
    assert counts == [CASES[name].rows * CASES[name].steps for name in names]


def example_of_the_page(needed: str) -> str:
    """The program in docs/deployment.md that has these words."""
    page = (Path(__file__).parents[3] / "docs" / "deployment.md").read_text()
    (found,) = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if needed in block]
    return str(found)


@pytest.mark.slow
def test_torchscript_acts_alone_as_the_policies_do(folder: Path, tmp_path: Path) -> None:
    run_alone(folder, ".pt", tmp_path, CASES)
    (tmp_path / "policy.pt").write_bytes((folder / "dqn.pt").read_bytes())
    program = example_of_the_page("torch.zeros") + "assert action in (0, 1)\n"
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_onnx_acts_alone_as_the_policies_do(folder: Path, tmp_path: Path) -> None:
    run_alone(folder, ".onnx", tmp_path, FOR_ONNX)
    (tmp_path / "policy.pt").write_bytes(export_policy(checkpoint(folder, "dqn")).path.read_bytes())
    (tmp_path / "policy.onnx").write_bytes((folder / "dqn.onnx").read_bytes())
    reading = "import torch\n" + example_of_the_page("json.loads") + "assert about['policy']['version'] == 7\n"
    subprocess.run([sys.executable, "-c", example_of_the_page("gymnasium") + reading], cwd=tmp_path, check=True)


@pytest.mark.parametrize("name", ["choices", "nested", "ppo with lstm"])
def test_surreal_acts_by_an_exported_policy_as_by_its_checkpoint(name: str, folder: Path) -> None:
    source = checkpoint(folder, name)
    policy, exported = surreal.load(source), surreal.load(export_policy(source).path)
    assert exported.version == 7
    policy.observation_space.seed(1)
    batch = [policy.observation_space.sample() for _ in range(30)]
    stacked = policy.obs_spec.unflatten([np.stack(c) for c in zip(*map(policy.obs_spec.flatten, batch), strict=True)])
    stacked = tree.map_leaves(lambda leaf: np.clip(leaf, -3, 3), stacked)
    for first in (None, None, np.arange(30) % 3 == 0):
        pairs = zip(policy.act(stacked, first=first), exported.act(stacked, first=first), strict=True)
        for ours, theirs in pairs:
            assert policy.action_space.contains(theirs)
            for mine, other in zip(tree.leaves(ours), tree.leaves(theirs), strict=True):
                np.testing.assert_allclose(mine, other, atol=1e-5)


def test_an_exported_policy_plays_the_same_episodes(folder: Path) -> None:
    source = checkpoint(folder, "dqn")
    exported = load_policy(export_policy(source).path)
    assert play_policy(exported, 3, rng=fresh_rng(2)) == play_policy(load_policy(source), 3, rng=fresh_rng(2))


def test_command_says_what_the_file_takes_and_gives_and_does_not_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    write_policy(run / "eval" / "best.safetensors", "cartpole-r2d2")
    assert main(["export", str(run)]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{run / 'eval' / 'best.pt'}: torchscript, ")
    for line in (
        "input  obs              [batch, 4] float32\n",
        "input  action_mask      [batch, 2] bool, may be left out\n",
        "input  state            [batch, 2, 64] float32, zeros where an episode begins\n",
        "output action           [batch] int64, 0 to 1\n",
        "not in the file, for the environment to do: obs_scale\n",
        "it acted like the policy in 100 steps",
    ):
        assert line in said
    about = surreal.load(run / "eval" / "best.pt").saved.exported
    assert about is not None
    assert about.metadata["outside"]["wrappers"][0]["name"] == "obs_scale"
    assert about.metadata["policy"]["environment"] == "CartPole-v1"


OWN_CLASSES = """
import torch
from surreal.agent import QAgent
from surreal.model import QFunction


class ShyAgent(QAgent):
    def _act(self, obs, explore, context):
        return super()._act(obs, explore, context)


class Moody(QFunction):
    def forward(self, obs, state=None, is_first=None):
        q = super().forward(obs, state, is_first)
        return q if float(obs[0, 2]) > 0.0 else -q
"""


@pytest.mark.parametrize(
    ("override", "words"),
    [
        (
            "agent.class=my_export.ShyAgent",
            r"my_export\.ShyAgent\._act \(my_export\.py line 8\) chooses .* with Python code",
        ),
        ("model.class=my_export.Moody", "the file would act differently: .* action differs in .* steps"),
    ],
)
def test_what_cannot_be_exported_is_refused_by_name(
    override: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "my_export.py").write_text(OWN_CLASSES)
    monkeypatch.delitem(sys.modules, "my_export", raising=False)
    path = write_policy(tmp_path / "best.safetensors", "cartpole-dqn", f"python_path=[{tmp_path}]", override)
    with pytest.raises(ExportError, match=words):
        export_policy(path, trust=True)
    assert not path.with_suffix(".pt").exists()


def test_a_wrong_wish_is_one_sentence(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = checkpoint(folder, "dqn")
    with pytest.raises(ConfigError, match="'torch'; it must be torchscript or onnx"):
        export_policy(source, file_format="torch")
    with pytest.raises(ConfigError, match=r"policy\.onnx does not have its format's ending: \.pt for torchscript"):
        export_policy(source, tmp_path / "policy.onnx", file_format="torchscript")
    with pytest.raises(ExportError, match="is already an exported policy"):
        export_policy(export_policy(source, tmp_path / "x.pt").path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["export", str(source), "--format", "onnx"]) == 1
    assert f"run: {install_command('onnx')}" in capsys.readouterr().err


@pytest.mark.parametrize("damage", ["cut off", "of another program", "missing"])
def test_a_file_that_is_none_of_ours_is_one_sentence(
    damage: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "policy.pt"
    if damage == "cut off":
        export_policy(checkpoint(folder, "dqn"), path)
        path.write_bytes(path.read_bytes()[:-100])
    elif damage == "of another program":
        with pytest.warns(DeprecationWarning):
            torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), path)
    assert main(["play", str(path)]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ") and said.count("\n") == 1
    words = {"cut off": "is damaged", "of another program": "has no metadata", "missing": "does not exist"}
    assert words[damage] in said
