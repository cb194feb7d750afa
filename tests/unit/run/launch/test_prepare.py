"""Which run, folder and configuration `surreal run` means."""

from __future__ import annotations

from pathlib import Path

import pytest

from surreal.base.errors import ConfigError
from surreal.run.launch.check import RunOptions, prepare
from surreal.run.process.run_folder import RUN_NAME, RunFolder


@pytest.fixture
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder `runs/first` of a run with the id k9."""
    monkeypatch.chdir(tmp_path)
    folder = Path("runs/first")
    folder.mkdir(parents=True)
    RunFolder(folder).config_path.write_text("name: k9\nenv: {id: CartPole-v1}\nlearner: {gamma: 0.5}\n")
    (folder / RUN_NAME).write_text("k9\n")
    return folder


@pytest.mark.parametrize("name", ["k9", "first", "runs/first"])
def test_a_run_is_resumed_by_id_folder_name_or_path_without_naming_its_settings(ended: Path, name: str) -> None:
    prepared = prepare(RunOptions(None, run=name, resume=True))
    assert (prepared.run, prepared.folder.path) == ("k9", ended.absolute())
    assert prepared.config.learner.gamma == 0.5
    assert prepare(RunOptions("cartpole-dqn", run=name, resume=True)).folder.path == ended.absolute()


def test_a_run_in_which_nothing_can_act_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    none = ("agent.count=0",)
    prepare(RunOptions("cartpole-dqn", none, has_companions=True))  # as `surreal run parameter-server`
    with pytest.raises(ConfigError, match=r"agent.count is 0 \(--set\), and so is rlx.servers: nothing would act"):
        prepare(RunOptions("cartpole-dqn", none))
    assert prepare(RunOptions("cartpole-dqn", none, redis="redis://somewhere:6379")).config.agent.count == 0
    assert prepare(RunOptions("cartpole-rlx", none)).config.rlx.servers > 0


def test_a_run_that_is_not_there_is_named_with_those_that_are(ended: Path) -> None:
    with pytest.raises(ConfigError, match=r"k8 is not a run's folder, name or id below runs; runs has first"):
        prepare(RunOptions(None, run="k8", resume=True))
    with pytest.raises(ConfigError, match="--resume needs the run to continue"):
        prepare(RunOptions(None, resume=True))
