"""New apps, and what changes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from surreal.base.errors import ConfigError, EnvError
from surreal.config import load_config
from surreal.plugins.apps.creating import new_app, set_settings, switch_algorithm, switch_environment, switch_local
from surreal.plugins.apps.document import get_value, read_document
from surreal.plugins.apps.environments import find_template, templates
from surreal.plugins.apps.local_copy import copy_algorithm


@pytest.fixture
def bandit(tmp_path: Path) -> Path:
    """The app.yaml of a new app."""
    new_app(tmp_path / "bandit", "bandit", None)
    return tmp_path / "bandit" / "app.yaml"


def test_a_new_app_has_all_that_a_run_needs_and_a_comment_beside_each_setting(bandit: Path) -> None:
    names = {str(path.relative_to(bandit.parent)) for path in bandit.parent.rglob("*") if path.is_file()}
    assert names == {
        ".gitignore", "README.md", "app.yaml", "environment/bandit.py", "environment/test_training.py",
        "environment/training.py",
    }  # fmt: skip
    config = load_config(bandit)
    assert (config.name, config.environment.count, config.rlx.servers, config.agent.count) == ("bandit", 1, 1, 0)
    assert config.environment.folder == str(bandit.parent)
    assert config.learner.class_path == "surreal.learner.PolicyGradientLearner"
    before = ""
    for line in bandit.read_text().splitlines():
        is_setting = line.startswith("  ") and not line.lstrip().startswith("#") and not line.endswith("args:")
        assert not is_setting or "#" in line or before.lstrip().startswith("#"), line
        before = line
    assert "{{" not in bandit.with_name("README.md").read_text()


def test_names_of_the_ancestor_mean_ours(tmp_path: Path) -> None:
    change = new_app(tmp_path / "a", "openai-gym", None)
    assert change.configuration is not None
    assert change.configuration.name == "cartpole-trpo"
    for number, (name, found) in enumerate({"da3c": "a3c", "dppo": "ppo", "policy-gradient": "pg"}.items()):
        change = new_app(tmp_path / str(number), "bandit", name)
        assert change.configuration is not None
        assert change.configuration.name == f"bandit-{found}"


def test_the_templates_name_alone_brings_an_environment_that_the_algorithm_suits(tmp_path: Path) -> None:
    for name, env_id in {"ddpg": "Pendulum-v1", "rainbow": "ALE/Pong-v5", "dqn": "CartPole-v1"}.items():
        new_app(tmp_path / name, "openai-gym", name)
        assert load_config(tmp_path / name / "app.yaml").env.id == env_id
    with pytest.raises(ConfigError, match=r"no ddpg settings for this kind of environment\..* ddpg suits Pendulum-v1"):
        new_app(tmp_path / "named", "CartPole-v1", "ddpg")


@pytest.mark.parametrize(
    ("environment", "algorithm", "configuration"),
    [
        ("HalfCheetah-v5", "sac", "halfcheetah-sac"),  # a preset of its own
        ("Walker2d-v5", "ppo", "pendulum-ppo"),  # continuous actions
        ("MountainCar-v0", "ppo", "cartpole-ppo"),  # a vector, and choices
        ("ALE/Breakout-v5", "dqn", "atari-dqn"),
        ("ALE/Breakout-v5", "trpo", "image-trpo"),
    ],
)
def test_settings_are_chosen_by_pair(environment: str, algorithm: str, configuration: str, tmp_path: Path) -> None:
    change = new_app(tmp_path / "app", environment, algorithm)
    assert change.configuration is not None
    assert change.configuration.name == configuration
    config = load_config(tmp_path / "app" / "app.yaml")
    assert config.env.id == environment
    assert (config.run.stop_at_return is None) == (configuration != "halfcheetah-sac")
    assert [wrapper.on_client for wrapper in config.env.wrappers if wrapper.name in ("atari", "life_loss")] in (
        [], [True, True],
    )  # fmt: skip


def test_what_cannot_be_made_is_one_clear_error_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for name, environment, algorithm, message in (
        ("there", "bandit", None, "already exists"),
        ("a b", "bandit", None, "is not a name for an app"),
        ("new", "bandet", None, "did you mean bandit"),
        ("new", "bandit", "dqnn", "did you mean dqn"),
        (
            "new",
            "bandit",
            "ddpg",
            "It has settings for a2c, a3c, dqn, pg, ppo, sac, trpo, vtrace; ddpg suits Pendulum-v1$",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            new_app(tmp_path / name, environment, algorithm)
    with pytest.raises(EnvError, match="did you mean CartPole-v1"):
        new_app(tmp_path / "new", "CartPol-v1", None)
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_another_environment_replaces_program_readme_and_sections_and_keeps_the_old_ones(bandit: Path) -> None:
    bandit.write_text(bandit.read_text() + "\n# Mine.\nseed: 5\n")
    change = switch_environment(bandit, "CartPole-v1", has_files=True)
    assert {path.name for path in change.kept} == {"app.yaml.~1~", "environment.~1~", "README.md.~1~"}
    assert change.configuration is not None
    assert change.configuration.name == "cartpole-pg"  # the settings for an arm would not do
    folder = bandit.parent
    assert (folder / "environment" / "gym_env.py").exists()
    assert not (folder / "environment" / "bandit.py").exists()
    assert (folder / "environment.~1~" / "bandit.py").exists()
    config = load_config(bandit)
    assert (config.env.id, config.env.observation_space, config.seed) == ("CartPole-v1", None, 5)
    assert "# Mine.\nseed: 5" in bandit.read_text()
    change = switch_environment(bandit, "MountainCar-v0", has_files=False)  # the same settings suit it
    assert change.configuration is None


def test_another_algorithm_replaces_its_sections_alone(bandit: Path) -> None:
    text = bandit.read_text().replace("environment:\n", "# Mine.\nenvironment:\n").replace("steps: 3000", "steps: 77")
    bandit.write_text(text)
    switch_algorithm(bandit, "dqn")
    config = load_config(bandit)
    assert config.learner.class_path == "surreal.learner.DQNLearner"
    assert config.environment.model_extra is not None
    assert config.environment.model_extra["steps"] == 77
    assert bandit.read_text().partition("\nmodel:")[0] == text.partition("\nmodel:")[0]


def test_settings_for_other_environments_are_taken_with_a_warning(bandit: Path) -> None:
    change = switch_algorithm(bandit, "cartpole-ppo")
    assert "made for another kind of environment" in change.warning
    assert load_config(bandit).learner.class_path == "surreal.learner.PPOLearner"


def test_a_setting_is_set_or_nothing_is_written(bandit: Path) -> None:
    set_settings(bandit, {"learner.gamma": "0.75", "environment.report-every": "7"})
    assert load_config(bandit).learner.gamma == 0.75
    assert "report_every: 7 " in bandit.read_text()
    text = bandit.read_text()
    for key, value, message in (
        ("learner.gama", "1", "did you mean learner.gamma"),
        ("learner.gamma", "high", "must be a number"),
        ("learner.gamma", "{", "is not valid YAML"),
    ):
        with pytest.raises(ConfigError, match=message):
            set_settings(bandit, {"learner.n_step": "2", key: value})
    assert bandit.read_text() == text


def test_the_local_algorithm_is_switched_on_and_off(bandit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="`surreal generate -a` copies it there"):
        switch_local(bandit, to_local=True)
    copy_algorithm(bandit)
    assert get_value(read_document(bandit), "learner.class") == "algorithm.learner.PolicyGradientLearner"
    switch_local(bandit, to_local=False)
    assert get_value(read_document(bandit), "learner.class") == "surreal.learner.PolicyGradientLearner"
    switch_local(bandit, to_local=True)
    assert get_value(read_document(bandit), "agent.class") == "algorithm.agent.PolicyAgent"


def test_every_template_says_what_it_is() -> None:
    for template in templates():
        assert template.title.endswith(".")
        assert (template.folders[-1] / "README.md").exists()
        assert template.sections("app", "")["environment"]["template"] == template.name
        assert find_template(template.name).name == template.name
        for alias in template.aliases:
            assert find_template(alias).name == template.name
