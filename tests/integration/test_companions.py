"""The components of `surreal run`, and environment programs beside a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from surreal.base.errors import ConfigError
from surreal.config import load_config
from surreal.run.launch.companions import Companions, RunPlace, server_of
from surreal.run.launch.starting import Spawner
from surreal.run.process.ending import Ending, ExitCode
from surreal.run.process.interrupts import Interrupts
from surreal.run.process.roles import COMPONENTS, Part, launcher_overrides, parts_of
from surreal.run.process.run_folder import ADDRESS_NAME

APP = """\
version: 1
env: {id: CartPole-v1}
rlx: {servers: 1, port: 7099}
agent: {count: 0}
environment:
  run: python program.py
  n_environments: 2
"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    path = tmp_path / "app.yaml"
    path.write_text(APP)
    return path


def run_environments(app: Path, *overrides: str) -> tuple[Ending, list[str]]:
    lines: list[str] = []
    parts = parts_of(["environment"])
    companions = Companions(parts, str(app), overrides, None, Spawner(), lambda text: lines.append(str(text)))
    return companions.execute(Interrupts()), lines


def test_words_say_what_runs() -> None:
    assert parts_of([]) == parts_of(["all"]) == COMPONENTS["all"]
    assert parts_of(["environment", "rlx-server"]) == {"environment", "rlx-server"}
    starts_run = {word for word in COMPONENTS if Part.PARAMETER_SERVER in parts_of([word])}
    assert starts_run == {"all", "servers", "parameter-server"}
    with pytest.raises(ConfigError, match="speaks WebSocket itself"):
        parts_of(["wsproxy"])


def test_what_was_not_asked_for_is_left_out_of_the_run(app: Path) -> None:
    config = load_config(app, launcher_overrides(parts_of(["servers"])))
    assert (config.rlx.servers, config.environment.count) == (1, 0)
    config = load_config(app, launcher_overrides(parts_of(["parameter-server"])))
    assert (config.rlx.servers, config.environment.count) == (0, 0)
    assert launcher_overrides(parts_of([])) == []
    with pytest.raises(ConfigError, match="no server would answer it"):
        load_config(app, launcher_overrides(parts_of(["parameter-server", "environment"])))


def test_programs_find_the_server_where_the_app_says() -> None:
    assert server_of(load_config("cartpole-rlx", ["rlx.port=7099"])) == "rlx://127.0.0.1:7099"
    assert server_of(load_config("cartpole-rlx", ["relaax_rlx_server.bind=h:1"])) == "h:1"
    with pytest.raises(ConfigError, match=r"rlx\.port is 0"):
        server_of(load_config("cartpole-rlx"))


def test_programs_are_told_apart_and_what_they_print_is_shown(app: Path) -> None:
    (app.parent / "program.py").write_text("import sys; print('exploit' if 'True' in sys.argv else 'learn')\n")
    ending, lines = run_environments(app, "environment.exploit=true")
    assert ending == Ending("all environments have played their episodes")
    assert lines[0] == "environments connect to rlx://127.0.0.1:7099"
    assert sorted(lines[1:]) == ["environment-0 | exploit", "environment-1 | learn"]


def test_a_program_that_fails_ends_them_all(app: Path) -> None:
    (app.parent / "program.py").write_text("raise SystemExit('no game here')\n")
    ending, _ = run_environments(app)
    assert ending.exit_code is ExitCode.FAILED
    assert "failed: no game here" in ending.reason


def test_the_end_of_a_run_whose_redis_is_gone_already_is_noticed(app: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "runs" / "r"
    run_dir.mkdir(parents=True)
    address = run_dir / ADDRESS_NAME
    address.write_text(f"unix://{tmp_path}/nowhere r\n")
    lines: list[str] = []
    place = RunPlace("r", f"unix://{tmp_path}/nowhere", run_dir)
    parts = parts_of(["metrics-server", "environment"])
    (app.parent / "program.py").write_text("import time; print('begun'); time.sleep(60)\n")

    def say(text: str) -> None:
        lines.append(text)
        if "begun" in text:
            address.unlink(missing_ok=True)

    assert Companions(parts, str(app), (), place, Spawner(), say).execute(Interrupts()) == Ending("the run is over")


def test_an_app_without_a_program_says_so(app: Path) -> None:
    for override, message in (
        ("environment.run=null", "environment.run is not set"),
        ("environment.n_environments=0", "environment.n_environments is 0"),
    ):
        with pytest.raises(ConfigError, match=message):
            run_environments(app, override)
