"""The configuration of a run, as TensorBoard reads it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tensorboardX.proto import event_pb2, plugin_hparams_pb2

from surreal.config import load_config
from surreal.run.session.learner_process import describe_run, hyperparameters


def events_of(file: Path) -> list[event_pb2.Event]:
    data, events = file.read_bytes(), []
    while data:
        length = int.from_bytes(data[:8], "little")
        events.append(event_pb2.Event.FromString(data[12 : 12 + length]))
        data = data[16 + length :]
    return events


def test_configuration_is_text_and_hyperparameters_and_shows_no_password(tmp_path: Path) -> None:
    config = load_config("cartpole-dqn", ["redis.address=redis://:hush@host:6379", "learner.batch_size=77"])
    describe_run(config, "my-run", tmp_path)
    (file,) = (tmp_path / "tensorboard").iterdir()
    assert b"hush" not in file.read_bytes()
    header, text, experiment, session = events_of(file)
    assert header.file_version == "brain.Event:2"
    (value,) = text.summary.value
    assert "batch_size: 77" in value.tensor.string_val[0].decode()
    assert {found.metadata.plugin_data.plugin_name for found in experiment.summary.value} == {"hparams"}
    content = session.summary.value[0].metadata.plugin_data.content
    start = plugin_hparams_pb2.HParamsPluginData.FromString(content).session_start_info
    assert start.group_name == "my-run"
    assert start.hparams["learner.batch_size"].number_value == 77
    assert start.hparams["env.id"].string_value == "CartPole-v1"


def test_lists_are_words_and_what_is_unset_is_left_out() -> None:
    found = hyperparameters(load_config("cartpole-dqn", ["model.args.hidden_sizes=[7, 8]"]))
    assert found["model.args.hidden_sizes"] == "7, 8"
    assert "learner.max_updates" not in found


def test_folder_that_cannot_be_written_is_no_failure(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "tensorboard").write_text("in the way")
    describe_run(load_config("cartpole-dqn"), "my-run", tmp_path)
    assert "the configuration is not written for TensorBoard" in caplog.text
