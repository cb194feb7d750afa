"""Files that an earlier version wrote, and names that its pages documented, continue to work.

tests/golden/before/README.md says what is there and which version wrote it.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import surreal
from surreal.base.moved import MovedFinder
from surreal.cli.program import main
from surreal.config import import_class, load_config
from tests.warm_python import WarmPython, environment_of_a_user

BEFORE = Path(__file__).parents[1] / "golden" / "before"

#: Env steps to which each of the runs is resumed.
STEPS = {"early": 2_000, "exact": 800, "league": 2_400}

#: Classes that pages, presets and templates named, by module.
CLASSES = {
    "surreal.agent": (
        "ActContext Acted Agent AgentLoop AgentSession DeterministicAgent EpsilonGreedy NoisyQAgent "
        "PolicyAgent QAgent Rounds SamplingAgent SessionAgent SlotMemory StepSender"
    ),
    "surreal.distributed": "CallServer EmbeddedRedis ExpSender RedisClient RemoteServer TorchBroadcaster TorchListener",
    "surreal.distributed.gradients.queue": "Gradient GradientQueue",
    "surreal.distributed.gradients.sender": "GradientSender Pushed",
    "surreal.envs": (
        "Atari Env EnvPool EpisodeMonitor FrameStack GymEnv LocalEnvPool ShownEnv SubprocEnvPool "
        "Visualization Wrapper WrapperSpec"
    ),
    "surreal.envs.players.base": "Game View",
    "surreal.envs.players.views": "EveryPlayer OnePlayer",
    "surreal.evaluation": "EpisodeScore EvaluationRound Evaluator",
    "surreal.learner": (
        "A2CLearner ActorCriticLearner DDPGLearner DQNLearner GradientLearner Gradients IPGLearner Learner "
        "PPOLearner PolicyGradientLearner QuantileDQNLearner R2D2Learner RemoteLearner ReplayView SACLearner "
        "TRPOLearner VTraceLearner"
    ),
    "surreal.learner.parameter_server.server": "ParameterServer",
    "surreal.model": (
        "ActorCritic Bernoulli Categorical ComposedModel ConvQFunction ConvTorso Convolution Core "
        "DeterministicActorCritic DilatedLSTMCore DiscreteSoftActorCritic Distribution KafSettings LSTMCore "
        "LazyModel Model MultiCategorical NoisyQFunction NoisyQuantileQFunction Normal OffPolicyActorCritic "
        "PolicyValue QFunction QuantileQFunction ResidualStage SoftActorCritic SoftModel SquashedNormal Torso"
    ),
    "surreal.observers": "Callback ConsoleSink CsvSink MetricSink MlflowSink Numbers WandbSink",
    "surreal.replay": (
        "FIFOReplay MixedReplay MixedTrajectoryReplay PrioritizedReplay PrioritizedSequenceReplay Replay "
        "SequenceReplay TrajectoryReplay UniformReplay"
    ),
    "surreal.replay.archive": "ArchiveFile ArchiveWriter ImportResult Manifest ReplayArchive",
    "surreal.rlx": (
        "AgentProxy AgentProxyConnectionError AgentProxyException AgentProxyReplyError RandomAgent RlxError "
        "TrainingBase"
    ),
    "surreal.types": "Batch SampleInfo StepBatch StepKind TrajectoryBatch",
    "surreal.utils.pytorch": "Module",
}
#: Whatever else the pages, the examples and the scripts imported.
DOCUMENTED = {
    "surreal": (
        "DQNLearner EpisodeMonitor ExpSender GymEnv Model RedisClient UniformReplay evaluate load load_config "
        "run_program temporary_run train"
    ),
    "surreal.distributed": "remote",
    "surreal.distributed.telemetry.heartbeats": "Heartbeat",
    "surreal.envs": "check_env_id make_env make_vector_env record_video render_modes",
    "surreal.envs.players.make": "make_game",
    "surreal.envs.players.tictactoe": "careful",
    "surreal.learner": "losses returns",
    "surreal.learner.on_policy": "advantages evaluating minibatches policy_losses",
    "surreal.learner.on_policy.evaluating": "evaluate",
    "surreal.learner.on_policy.policy_losses": "policy_gradient_loss value_loss",
    "surreal.learner.returns": "bootstrapped_returns",
    "surreal.main.agent": "main",
    "surreal.main.eval": "main",
    "surreal.main.learner": "main",
    "surreal.main.parameter_server": "main",
    "surreal.main.rlx_client": "main",
    "surreal.main.rlx_server": "main",
    "surreal.model": "flatten_obs get_activation",
    "surreal.replay.archive": "export_replay import_replay",
    "surreal.replay.stream.info": "replay_info",
    "surreal.schedules": "LinearSchedule",
    "surreal.utils.program": "run_program",
}
#: What the programs of new apps imported, and the files that `surreal generate -a` copied into them.
APPS = {
    "surreal": "tree",
    "surreal.agent.base": "ActContext Acted Agent",
    "surreal.agent.exploring.epsilon_greedy": "EpsilonGreedy Exploration",
    "surreal.agent.exploring.noise": "ActionNoise GaussianNoise OrnsteinUhlenbeckNoise",
    "surreal.agent.exploring.parameter_noise": "ParameterNoise",
    "surreal.agent.exploring.random_start": "RandomStart",
    "surreal.agent.exploring.sampler": "Sampler",
    "surreal.agent.fitting": "check_policy check_values",
    "surreal.agent.q_agent": "QAgent",
    "surreal.envs": "ShownEnv WrapperSpec make_env record_video render_modes",
    "surreal.errors": "EnvError",
    "surreal.learner.base": "ReplayView",
    "surreal.learner.curiosity": "CuriositySettings Surprise read_curiosity surprise",
    "surreal.learner.gradients": "GradientLearner Gradients",
    "surreal.learner.interpolated.policy_critics": "PolicyCritics make_policy_critics",
    "surreal.learner.losses": "check_rank",
    "surreal.learner.off_policy.dqn": "DQNLearner",
    "surreal.learner.off_policy.noise": "UpdateNoise",
    "surreal.learner.on_policy.advantages": "generalised_advantages vtrace",
    "surreal.learner.on_policy.base": "ActorCriticLearner",
    "surreal.learner.on_policy.evaluating": "Targets compute evaluate filtered legal make_targets recorded",
    "surreal.learner.on_policy.kl_penalty": "AdaptiveKL",
    "surreal.learner.on_policy.minibatches": "Minibatch concatenate epochs everything minibatches",
    "surreal.learner.on_policy.trust_region": "conjugate_gradient shorter_fraction",
    "surreal.learner.option_checks": "check_not_negative check_positive check_schedule check_shares",
    "surreal.learner.returns": "among_legal bootstrapped_returns q_target",
    "surreal.learner.stepping.histograms": "normal_values",
    "surreal.learner.stepping.optimizers": "MODEL",
    "surreal.learner.target": "TargetNetwork",
    "surreal.model": "Distribution NoisyQFunction",
    "surreal.model.base": "LazyModel make_generator",
    "surreal.model.composed": "ComposedModel",
    "surreal.model.distributions": "Distribution",
    "surreal.model.heads": "QHead ValueHead combine_dueling count_actions",
    "surreal.model.layers.activations": "ActivationName read_activation",
    "surreal.model.layers.conv": "ConvStage read_convolutions",
    "surreal.model.layers.images": "check_image_axes",
    "surreal.model.layers.mlp": "Dense",
    "surreal.model.off_policy.action_range": "ActionRange",
    "surreal.model.off_policy.actor_critics": "OffPolicyActorCritic",
    "surreal.model.off_policy.actors": "CategoricalActor DeterministicActor SquashedNormalActor",
    "surreal.model.off_policy.critics": "ContinuousCritics Critics DiscreteCritics",
    "surreal.model.off_policy.noisy": "NoisyQFunction",
    "surreal.model.off_policy.q_function": "QFunction",
    "surreal.model.policy.filters": "ObsFilter ReturnFilter",
    "surreal.model.policy.orthogonal": "HIDDEN_GAIN POLICY_GAIN VALUE_GAIN initialise_orthogonally",
    "surreal.model.policy.policy_head": "SigmaSettings make_policy_head",
    "surreal.model.policy.value_function": "ValueFunction",
    "surreal.model.torso": "check_hiddens",
    "surreal.rlx": "RandomAgent TrainingBase",
    "surreal.rlx.client.gym_driver": "to_env_action",
    "surreal.rlx.client.options": "Options",
    "surreal.schedules": "ConstantSchedule LinearSchedule",
    "surreal.specs": "ObsSpec",
    "surreal.types": "Batch Obs TrajectoryBatch",
    "surreal.utils.pytorch": "Module",
}


@pytest.mark.parametrize("module", CLASSES)
def test_documented_classes_are_where_they_were(module: str) -> None:
    for name in CLASSES[module].split():
        found = getattr(import_module(module), name)
        assert inspect.isclass(found) and found.__name__ == name
        if not inspect.isabstract(found):
            assert import_class(f"{module}.{name}", object) is found


@pytest.mark.parametrize("lines", [DOCUMENTED, APPS], ids=["pages", "apps"])
def test_names_can_be_imported_from_where_they_were(lines: dict[str, str]) -> None:
    for module, names in lines.items():
        for name in names.split():
            exec(f"from {module} import {name}", {})


def test_modules_of_the_roles_run_under_their_earlier_names() -> None:
    roles = [module for module in DOCUMENTED if module.startswith("surreal.main.")]
    assert len(roles) == 6
    for module in roles:
        spec = find_spec(module)
        assert spec is not None and isinstance(spec.loader, MovedFinder)
        names: dict[str, Any] = {"__name__": "surreal"}  # any imported module: dataclasses look theirs up
        exec(spec.loader.get_code(module) or "", names)
        assert callable(names["main"])


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """A copy of the files, in which commands write."""
    folder = tmp_path / "before"
    shutil.copytree(BEFORE, folder)
    return folder


class Commands:
    """Commands that run at the same time, each in a process of its own."""

    def __init__(self, warm_python: WarmPython) -> None:
        self._warm_python = warm_python
        self._started: dict[str, tuple[Any, Path]] = {}

    def start(self, name: str, *arguments: str, at: Path, module: str = "surreal") -> None:
        output = at / f"{name}.out"
        with output.open("wb") as file, open(os.devnull, "rb") as nothing:
            process = self._warm_python.start(
                ["-m", module, *arguments],
                folder=at,
                environment=environment_of_a_user(),
                streams=(nothing.fileno(), file.fileno(), file.fileno()),
            )
        self._started[name] = process, output

    def finish(self) -> dict[str, str]:
        """Wait for all of them, which have to succeed; returns their output by name."""
        for process, output in self._started.values():
            assert process.wait(200.0) == 0, output.read_text()
        return {name: output.read_text() for name, (_, output) in self._started.items()}

    def kill(self) -> None:
        for process, _ in self._started.values():
            process.kill()
            process.wait(200.0)


@pytest.fixture
def commands(warm_python: WarmPython) -> Iterator[Commands]:
    made = Commands(warm_python)
    yield made
    made.kill()


def test_runs_are_resumed_from_their_checkpoints(before: Path, commands: Commands) -> None:
    for name, steps in STEPS.items():
        limit = ("--set", f"run.max_env_steps={steps}")
        commands.start(name, "run", "--resume", "--run-dir", f"runs/{name}", *limit, at=before)
    commands.finish()
    for name, steps in STEPS.items():
        folder, begun = before / "runs" / name, BEFORE / "runs" / name
        result, earlier = (json.loads((each / "result.json").read_text()) for each in (folder, begun))
        assert (result["status"], result["run"]) == ("finished", name)
        assert result["env_steps"] >= steps > earlier["env_steps"]
        assert result["updates"] > earlier["updates"] and result["time_s"] > earlier["time_s"]
        assert f"{earlier['updates']:010d}.safetensors" in (folder / "logs" / "learner.log").read_text()
        for file in ("logs/learner.log", "metrics.jsonl", "eval/scores.jsonl"):
            text, start = (folder / file).read_text(), (begun / file).read_text()
            assert text.startswith(start) and len(text) > len(start)
    _check_that_a_sink_got_only_new_lines(before)
    _check_that_past_versions_still_play(before)


def _check_that_a_sink_got_only_new_lines(before: Path) -> None:
    table, begun = ((folder / "runs/exact/metrics.csv").read_text().splitlines() for folder in (before, BEFORE))
    assert table[: len(begun)] == begun and len(table) > len(begun)
    assert not {*begun} & {*table[len(begun) :]}


def _check_that_past_versions_still_play(before: Path) -> None:
    league, begun = (
        json.loads((folder / "runs/league/self_play/league.json").read_text()) for folder in (before, BEFORE)
    )
    now, earlier = ({version["version"] for version in each["versions"]} for each in (league, begun))
    assert now & earlier


def test_a_configuration_with_classes_of_a_user_runs(before: Path, commands: Commands) -> None:
    commands.start("user", "run", "user.yaml", "--run-dir", "run", at=before / "user")
    commands.finish()
    run = before / "user" / "run"
    assert re.match(r"\d+ -?\d+\.\d+\n", (run / "mine-learner.txt").read_text())
    assert (run / "table.txt").read_text().count(" learner ") > 3
    assert "eval/episode_return" in (run / "metrics.csv").read_text()
    assert '"learner/mine"' in (run / "metrics.jsonl").read_text()


def test_a_policy_is_learned_from_an_archive_alone(before: Path, commands: Commands) -> None:
    settings = ("learner.max_updates=5", "replay.start_size=100", "eval.enabled=false", "run.stop_at_return=null")
    options = (
        "--run",
        "offline",
        "--offline",
        "replays/parquet",
        *[word for one in settings for word in ("--set", one)],
    )
    commands.start("offline", "run", "cartpole-dqn", *options, at=before)
    assert "max_updates: 5 updates were done" in commands.finish()["offline"]
    result = json.loads((before / "runs" / "offline" / "result.json").read_text())
    assert (result["updates"], result["env_steps"]) == (5, 300)


def test_apps_with_their_own_copies_of_algorithms_are_accepted(before: Path, commands: Commands) -> None:
    its_own_pytest = ("-q", "-c", os.devnull, "--rootdir", ".", "-p", "no:cacheprovider", "-W", "ignore")
    for app in ("cart", "corridor"):
        folder = before / "apps" / app
        commands.start(f"check-{app}", "run", "--check", at=folder)
        commands.start(f"test-{app}", *its_own_pytest, "environment", at=folder, module="pytest")
    output = commands.finish()
    for app in ("cart", "corridor"):
        assert f"{app} can run, as " in output[f"check-{app}"]
        assert " passed" in output[f"test-{app}"]


@pytest.mark.parametrize("app", ["cart", "corridor"])
def test_settings_of_an_app_are_explained(app: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "-c", str(BEFORE / "apps" / app / "app.yaml"), "explain", "learner.gamma"]) == 0
    assert re.search(r"learner\.gamma.*0\.9[89]", capsys.readouterr().out, re.DOTALL)


@pytest.mark.parametrize("file_format", ["arrow", "parquet"])
def test_an_archive_is_imported_row_by_row(
    file_format: str, redis_server: Any, run_id: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive, address = BEFORE / "replays" / file_format, ["--redis", redis_server.address]
    try:
        assert main(["replay", "import", str(archive), run_id, *address]) == 0
        assert capsys.readouterr().out.startswith("300 steps in 7 chunks")
        assert main(["replay", "import", str(archive), run_id, *address]) == 0
        assert "were there already" in capsys.readouterr().out
        assert main(["replay", "export", run_id, str(tmp_path / "again"), *address, "--format", "parquet"]) == 0
    finally:
        with surreal.RedisClient(redis_server.address, run=run_id) as client:
            client.delete_run()
    rows = pq.read_table(tmp_path / "again" / "steps-00000.parquet").to_pylist()
    assert rows == read_rows(archive)
    steps = [row for row in rows if row["kind"] == "step"]
    assert len(steps) == 300
    for i, step in enumerate(steps):
        obs = 1.0 - i if i % 20 == 0 and i > 0 else float(i)
        assert (step["obs"], step["action"], step["reward"]) == ([obs] * 4, i % 2, pytest.approx(i / 10))
        assert (step["terminated"], step["truncated"]) == (i % 40 == 19, i % 40 == 39)


def read_rows(archive: Path) -> list[dict[str, Any]]:
    if archive.name == "parquet":
        return pq.read_table(archive / "steps-00000.parquet").to_pylist()
    return pa.ipc.open_file(archive / "steps-00000.arrow").read_all().to_pylist()


@pytest.mark.parametrize("run", STEPS)
def test_a_saved_policy_is_played_and_scored(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    best = BEFORE / "runs" / run / "eval" / "best.safetensors"
    assert main(["play", str(best), "--episodes", "2", "--seed", "0"]) == 0
    played = re.search(r"mean return (\S+) over 2 episodes", capsys.readouterr().out)
    policies = [surreal.load(best), surreal.load(next((BEFORE / "runs" / run / "checkpoints").glob("*.safetensors")))]
    scores = [surreal.evaluate(policy, episodes=2, seed=0) for policy in policies]
    assert played is not None and float(played[1]) == scores[0].mean_return
    assert all(np.isfinite(score.mean_return) and len(score.scores) == 2 for score in scores)


@pytest.mark.parametrize("name", ["policy.pt", "policy.onnx"])
def test_an_exported_policy_acts_as_the_saved_one(name: str) -> None:
    saved = surreal.load(BEFORE / "runs" / "early" / "eval" / "best.safetensors")
    exported = surreal.load(BEFORE / "exported" / name)
    obs = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    actions = np.asarray(saved.act(obs))
    assert set(actions.tolist()) == {0, 1}
    np.testing.assert_array_equal(np.asarray(exported.act(obs)), actions)


def test_folders_of_runs_are_listed_compared_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = BEFORE / "runs"
    assert main(["runs", "--folder", str(runs), "--json"]) == 0
    listed = {run["run"]: run for run in json.loads(capsys.readouterr().out)}
    assert {name: (run["status"], run["env_steps"]) for name, run in listed.items()} == {
        name: ("finished", json.loads((runs / name / "result.json").read_text())["env_steps"]) for name in STEPS
    }
    assert main(["runs", "compare", str(runs / "early"), str(runs / "exact")]) == 0
    output = capsys.readouterr().out
    assert re.search(r"learner\.batch_size +4 +128", output)
    assert main(["status", "--run-dir", str(runs / "early"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["env_steps"] == listed["early"]["env_steps"]
    picture = tmp_path / "curves.png"
    sweep = str(BEFORE / "sweeps" / "gammas")
    assert main(["plot", str(runs / "early"), str(runs / "exact"), sweep, "-o", str(picture)]) == 0
    assert "4 runs along env steps" in capsys.readouterr().out
    assert picture.stat().st_size > 1000


def test_a_sweep_that_is_over_is_resumed_to_its_table(before: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = before / "sweeps" / "gammas"
    assert main(["sweep", str(folder / "sweep.yaml"), "--dir", str(folder), "--resume"]) == 0
    output = capsys.readouterr().out
    assert "all trials are over" in output
    trials = [json.loads(line) for line in (BEFORE / "sweeps" / "gammas" / "trials.jsonl").read_text().splitlines()]
    assert all(f"{trial['score']:g}" in output for trial in trials if trial.get("score") is not None)


def test_a_file_of_relaax_gives_the_same_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["config", "import", str(BEFORE / "relaax" / "app.yaml")]) == 0
    output = capsys.readouterr().out
    assert "28 settings" in output
    for key in ("parameter_server.bind", "algorithm.path", "algorithm.RMSProp.decay", "algorithm.num_gradients"):
        assert f"{key}: " in output
    shutil.copy(BEFORE / "relaax" / "imported.yaml", tmp_path)
    made, earlier = (load_config(tmp_path / name).model_dump() for name in ("app.yaml", "imported.yaml"))
    assert {**made, "name": ""} == {**earlier, "name": ""}
