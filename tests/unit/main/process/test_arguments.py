"""Arguments of the role processes."""

from __future__ import annotations

import pytest

from surreal.config import load_config
from surreal.main.process.arguments import parse
from surreal.main.process.roles import AGENT


@pytest.mark.parametrize("level", ["info", "INFO", "Info"])
def test_log_levels_are_read_in_any_case(level: str) -> None:
    arguments = parse(AGENT, ["cartpole-dqn", "--log-level", level], "")
    assert arguments.log_level == "info"
    assert load_config("cartpole-dqn", arguments.overrides).log_level == "info"


@pytest.mark.parametrize("url", ["s3://bucket/run", "gs://bucket/run", "file:///tmp/run"])
def test_the_folder_of_a_run_is_no_url(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(AGENT, ["cartpole-dqn", "--run-dir", url], "")
    assert caught.value.code == 2
    refusal = (
        f"'{url}' is a URL, but a run's folder is on this machine; checkpoint.restore and `surreal play` take URLs"
    )
    assert refusal in capsys.readouterr().err
