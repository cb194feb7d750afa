"""`surreal doctor` as a person calls it: what it looks at, what it prints, how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from surreal.base.errors import ConfigError
from surreal.cli.program import main
from surreal.config import load_config, to_yaml
from surreal.distributed.connection.client import RedisClient
from surreal.plugins.doctor.subject import find_subject
from surreal.run.process import registry
from surreal.run.process.run_folder import RunFolder
from tests.ports import claim_port
from tests.servers import RedisProcess

Start = Callable[..., RedisProcess]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SURREAL_REDIS", raising=False)


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = main(["doctor", *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_healthy_setup_yields_no_warning(capsys: pytest.CaptureFixture[str]) -> None:
    code, answer = as_json(capsys, "cartpole-dqn", "--quick")
    problems = [each for each in answer["findings"] if each["severity"] in ("warning", "error")]
    assert (code, problems) == (0, [])
    sections = list(dict.fromkeys(each["section"] for each in answer["findings"]))
    assert sections == ["installation", "redis", "clocks", "environment", "model"]
    assert answer["subject"] == "cartpole-dqn"


def test_an_environment_of_ones_own_is_tried_and_its_faults_end_with_exit_code_1(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "my_env.py").write_text(
        "import gymnasium\nfrom gymnasium.envs.classic_control import CartPoleEnv\n"
        "class Broken(CartPoleEnv):\n"
        "    def step(self, action):\n"
        "        print('noise')\n"
        "        obs, _, *rest = super().step(action)\n"
        "        return obs, float('nan'), *rest\n"
        "gymnasium.register('Broken-v0', Broken, max_episode_steps=50)\n"
    )
    (tmp_path / "app.yaml").write_text("version: 1\nname: mine\nenv: {id: 'my_env:Broken-v0'}\n")
    code, answer = as_json(capsys, "--only", "environment", "--quick")
    assert (code, answer["subject"], answer["worst"]) == (1, "app.yaml", "error")
    assert "reward-not-finite" in [each["fault"] for each in answer["findings"]]


def test_a_model_is_not_tried_without_its_environment(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "cartpole-dqn", "--set", "env.id=CartPol-v1", "--only", "environment", "--only", "model"])
    shown = capsys.readouterr().out
    assert code == 1 and "did you mean CartPole-v1?" in shown and "the model was not tried" in shown
    assert shown.splitlines()[0] == "environment" and shown.splitlines()[-1].startswith("1 error, 0 warnings, 1 hint")


def test_warnings_end_with_exit_code_1_only_if_they_are_to(
    capsys: pytest.CaptureFixture[str], start_redis: Start
) -> None:
    server = start_redis(maxmemory="64mb")
    with server.client() as client:
        client.config_set("client-output-buffer-limit", "normal 1mb 1mb 10")
    arguments = ["doctor", "--redis", server.address, "--only", "redis", "--quick"]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "  warning  client-output-buffer-limit is normal" in shown and "           -> redis-cli CONFIG SET" in shown
    assert main([*arguments, "--strict"]) == 1
    assert main(["doctor", "--redis", f"127.0.0.1:{claim_port()}", "--only", "redis"]) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nobody"], "nobody is not a preset, a file or a run"),
        (["missing.yaml"], "missing.yaml does not exist"),
        (["--only", "heart"], "--only is 'heart'; it must be one of installation, redis"),
        (["cartpole-dqn", "--only", "run"], "--only run needs a run: "),
        (["--only", "model"], "--only model needs a preset, a file or a run"),
        (["--set", "seed=1"], "--set changes a configuration"),
        (["cartpole-dqn", "--set", "seed=x"], "seed"),
    ],
)
def test_wrong_arguments_end_with_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_what_is_meant_is_found(redis_server: RedisProcess, run_id: str, tmp_path: Path) -> None:
    assert find_subject(None).config is None
    config = load_config("cartpole-dqn")
    over = tmp_path / "runs" / "over"
    over.mkdir(parents=True)
    (over / "app.yaml").write_text(to_yaml(config))
    subject = find_subject("runs/over")
    assert subject.run is None and subject.config is not None and not subject.has_ended  # an app's folder
    (over / "run.id").write_text("over-1")
    subject = find_subject("runs/over")
    assert subject.run is None and subject.config is not None and subject.has_ended
    assert subject.folder == over
    # A run that goes on here is meant before the app in this folder.
    (tmp_path / "app.yaml").write_text(to_yaml(config))
    assert find_subject(None).source == "app.yaml"
    with RedisClient(redis_server.address, run=run_id) as client:
        registry.register(client, config, registry.Registrant("learner", leads=True))
    folder = RunFolder(tmp_path / "runs" / "alive")
    folder.claim()
    folder.write_address(redis_server.address, run_id)
    for subject in (find_subject(None), find_subject("runs/alive"), find_subject(run_id, redis=redis_server.address)):
        assert (subject.run, subject.addresses) == (run_id, [redis_server.address])
    with pytest.raises(ConfigError, match="is not a preset, a file or a run"):
        find_subject("another", redis=redis_server.address)
