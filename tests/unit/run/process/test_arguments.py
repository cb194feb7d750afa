"""Arguments of the role processes."""

from __future__ import annotations

import pytest

from surreal.config import load_config
from surreal.run.process.arguments import parse
from surreal.run.process.roles import AGENT, EVAL, LEARNER, PARAMETER_SERVER


@pytest.mark.parametrize("level", ["info", "INFO", "Info"])
def test_log_levels_are_read_in_any_case(level: str) -> None:
    arguments = parse(AGENT, ["cartpole-dqn", "--log-level", level])
    assert arguments.log_level == "info"
    assert load_config("cartpole-dqn", arguments.overrides).log_level == "info"


@pytest.mark.parametrize("url", ["s3://bucket/run", "gs://bucket/run", "file:///tmp/run"])
def test_the_folder_of_a_run_is_no_url(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(AGENT, ["cartpole-dqn", "--run-dir", url])
    assert caught.value.code == 2
    refusal = (
        f"'{url}' is a URL, but a run's folder is on this machine; checkpoint.restore and `surreal play` take URLs"
    )
    assert refusal in " ".join(capsys.readouterr().err.replace("│", " ").split())


PLACE = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


def set_place(monkeypatch: pytest.MonkeyPatch, **changes: str) -> None:
    for name, value in (PLACE | changes).items():
        monkeypatch.setenv(name, value)


def test_torchruns_variables_say_which_rank_a_learner_is(monkeypatch: pytest.MonkeyPatch) -> None:
    set_place(monkeypatch)
    arguments = parse(LEARNER, ["cartpole-dqn", "--ranks", "4", "--set", "replay.shards=2"])
    assert arguments.place is not None
    assert (arguments.place.rank, arguments.place.count, arguments.place.local_rank) == (1, 2, 1)
    assert load_config("cartpole-dqn", arguments.overrides).learner.ranks == 2, "what is there counts"
    assert not arguments.resume
    assert parse(AGENT, ["cartpole-dqn"]).place is None


def test_ranks_that_were_started_again_go_on_with_their_run(monkeypatch: pytest.MonkeyPatch) -> None:
    set_place(monkeypatch, TORCHELASTIC_RESTART_COUNT="1")
    assert parse(LEARNER, ["cartpole-dqn"]).resume


def test_a_single_process_of_torchrun_is_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    set_place(monkeypatch, RANK="0", WORLD_SIZE="1")
    assert parse(LEARNER, ["cartpole-dqn"]).place is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"RANK": "2"}, "$RANK is 2; it must be 0 .. 1"),
        ({"WORLD_SIZE": "two"}, "must be whole numbers"),
        ({"MASTER_PORT": ""}, "$RANK is set, but not $MASTER_PORT"),
    ],
)
def test_variables_that_make_no_sense_are_refused(
    changes: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    set_place(monkeypatch, **changes)
    with pytest.raises(SystemExit) as caught:
        parse(LEARNER, ["cartpole-dqn"])
    assert caught.value.code == 2
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_an_index_may_be_found_by_the_process_where_others_act_too() -> None:
    assert parse(AGENT, ["--run", "demo", "--index", "auto"]).index is None
    assert parse(AGENT, ["--run", "demo", "--index=3"]).index == 3
    for role, text in ((AGENT, "some"), (EVAL, "auto")):
        with pytest.raises(SystemExit):
            parse(role, ["--run", "demo", "--index", text])


def test_a_shard_may_be_the_name_of_a_pod() -> None:
    arguments = parse(PARAMETER_SERVER, ["--run", "demo", "--shard=ps-1/2"])
    assert (arguments.index, arguments.overrides) == (1, ("parameter_server.servers=2",))
    for text in ("ps-2/2", "ps/2", "1/2-1", "-/2"):
        with pytest.raises(SystemExit):
            parse(PARAMETER_SERVER, ["--run", "demo", f"--shard={text}"])


@pytest.mark.parametrize("argv", [["--run-dir", "--resume"], ["--set", "-h"], ["cartpole-dqn", "--run", "--debug"]])
def test_an_option_is_no_value_of_another(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(AGENT, argv)
    assert caught.value.code == 2
    *_, line = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and "it needs a value" in line
    assert parse(AGENT, ["--run=--resume", "--run-dir", "there"]).run == "--resume"
