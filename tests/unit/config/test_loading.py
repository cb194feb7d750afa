"""Loading: what is accepted, and the one sentence that refuses the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from surreal.base.errors import ConfigError
from surreal.config import load_config, preset_names, preset_path, to_yaml
from surreal.config.preset_files import preset_extra, preset_title
from surreal.config.schema.sections import ReplayConfig
from surreal.config.yaml_tree import parse
from surreal.config.yaml_tree import write as write_yaml
from surreal.envs.ids import missing_package

SMALL = """\
version: 1
env:
  id: CartPole-v1
learner:
  batch_size: 32
  args:
    initial_learning_rate: 1e-3
"""


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str, name: str = "app.yaml") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def refusal(source: str | Path, *overrides: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_config(source, overrides)
    return caught.value


def test_file_sets_what_it_names_and_leaves_the_rest_at_defaults(write) -> None:
    config = load_config(write(SMALL))
    assert (config.env.id, config.learner.batch_size, config.learner.gamma) == ("CartPole-v1", 32, 0.99)
    assert config.learner.args == {"initial_learning_rate": 0.001}
    assert config.name == "app"


@pytest.mark.parametrize("name", preset_names())
def test_the_pages_that_a_preset_serves_are_there(name: str) -> None:
    pages = load_config(name).rlx.pages
    assert pages is None or (Path(pages) / "index.html").is_file()


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_loads_and_has_a_title(name: str) -> None:
    config = load_config(name)
    assert config.name == name
    assert config.run.stop_at_return is not None or config.run.max_env_steps is not None
    assert preset_title(name).startswith(config.env.id.removeprefix("surreal/").split("-")[0].removesuffix("Dict"))
    needed = missing_package(config.env.id, "")
    assert (f"[{preset_extra(name)}]" in str(needed)) == (needed is not None)


@pytest.mark.parametrize("name", preset_names())
def test_written_configuration_loads_as_the_same(name: str, write) -> None:
    wrapped = [] if load_config(name).env.is_game else ["env.wrappers=[{name: time_limit}]"]
    config = load_config(name, ["redis.address=redis://me:secret@host:1/0", *wrapped])
    again = load_config(write(to_yaml(config)))
    assert again.model_copy(update={"python_path": []}) == config
    assert again.shared() == config.shared()


@pytest.mark.parametrize(
    ("address", "hidden"),
    [
        ("rediss://me:secret@host:1/0", "rediss://me:***@host:1/0"),
        ("redis+cluster://me:secret@a:1,b:2", "redis+cluster://me:***@a:1,b:2"),
    ],
)
def test_passwords_can_be_hidden(address: str, hidden: str) -> None:
    config = load_config("cartpole-dqn", [f"redis.address='{address}'"])
    assert "secret" in to_yaml(config)
    shown = to_yaml(config, hide_passwords=True)
    assert "secret" not in shown
    assert hidden in shown


def test_overrides_win_in_their_order_and_are_yaml(write) -> None:
    config = load_config(
        write(SMALL),
        [
            "learner.batch_size=64",
            "learner.batch_size=128",
            "learner.args.double=false",
            "model.args.hidden_sizes=[8, 8]",
            "replay.capacity=1e5",
            "replay.max_bytes=64mb",
            "redis.address=unix:///tmp/redis.sock",
        ],
    )
    assert config.learner.batch_size == 128
    assert config.learner.args == {"initial_learning_rate": 0.001, "double": False}
    assert config.model.args == {"hidden_sizes": [8, 8]}
    assert config.replay.capacity == 100_000
    assert config.replay.max_bytes == 64 * 2**20
    assert config.redis.address == "unix:///tmp/redis.sock"


@pytest.mark.parametrize("text", ["1e5", "54e36a9d83", "1_0e-3", "-.5E+2", "1.5", "yes", "0x1f", "~", "a: b"])
def test_texts_that_look_like_something_else_are_read_as_they_were_written(text: str) -> None:
    assert parse(write_yaml({"key": text, "number": 1e-7}), "here")[0] == {"key": text, "number": 1e-7}


def test_a_text_that_begins_like_a_number_is_text() -> None:
    assert parse("{a: 54e36a9d83, b: 1e5, c: 1e-3, d: 2e400x}", "here")[0] == {
        "a": "54e36a9d83", "b": 100_000, "c": 0.001, "d": "2e400x",
    }  # fmt: skip


def test_an_item_of_a_list_can_be_overridden(write) -> None:
    path = write(SMALL.replace("  id: CartPole-v1\n", "  id: CartPole-v1\n  wrappers:\n  - {name: reward_clip}\n"))
    config = load_config(path, ["env.wrappers.0.args={low: 0}"])
    assert config.env.wrappers[0].args == {"low": 0}
    assert "is a list of 1; 3 is not one of its numbers" in str(refusal(path, "env.wrappers.3.args={}"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("  batch_sise: 3", "learner.batch_sise is not a setting (app.yaml line 8); did you mean learner.batch_size?"),
        ("  n_step: 0", "learner.n_step is 0; it must be >= 1 (app.yaml line 8)"),
        ("  gamma: 1.5", "learner.gamma is 1.5; it must be <= 1.0 (app.yaml line 8)"),
        ("  gamma: high", "learner.gamma is 'high'; it must be a number (app.yaml line 8)"),
        ("  n_step: 2.5", "learner.n_step is 2.5; it must be a whole number (app.yaml line 8)"),
        ("  n_step: true", "learner.n_step is true; it must be a whole number (app.yaml line 8)"),
        ("  n_step:", "learner.n_step is empty; it must be a whole number (app.yaml line 8)"),
        ("device: gpu", "device is 'gpu'; it must be auto, cpu, cuda, cuda:N (the GPU of that number, from 0) or mps"),
        ("agent: {device: 'cuda:-1'}", "agent.device is 'cuda:-1'; it must be auto, cpu, cuda, cuda:N"),
        ("leaner: {}", "leaner is not a setting (app.yaml line 8); did you mean learner?"),
        ("capacity: 3", "capacity is not a setting (app.yaml line 8); did you mean replay.capacity?"),
        ("replay: 3", "replay is 3; it must be a mapping of names to values (app.yaml line 8)"),
        ("eval: {show_ui: 1}", "eval.show_ui is 1; it must be true or false (app.yaml line 8)"),
        ("replay: {max_bytes: 3 qb}", "replay.max_bytes is '3 qb'; a size is a number of bytes"),
        ("replay: {max_bytes: -1}", "replay.max_bytes is -1; it must be >= 1 (app.yaml line 8)"),
        ("redis: {address: somewhere}", "redis.address is 'somewhere'; an address is host:port, redis://"),
        ("redis: {address: 'host:99999'}", "redis.address is 'host:99999'; an address is host:port"),
        ("agent: {exploration: 2}", "agent.exploration.value is 2; it must be <= 1.0 (app.yaml line 8)"),
        ("agent: {exploration: {type: line}}", "agent.exploration.type is 'line'; it must be one of 'constant',"),
        ("agent: {exploration: {start: 1}}", "agent.exploration.type is missing; it must be given"),
        (
            "agent: {exploration: {type: linear}}",
            "agent.exploration.steps is missing (app.yaml line 8); it has no default",
        ),
        (
            "agent: {exploration: {type: linear, stebs: 1}}",
            "agent.exploration.stebs is not a setting (app.yaml line 8); did you mean agent.exploration.steps?",
        ),
        (
            "agent: {exploration: {type: piecewise, points: [[5, 1.0], [5, 0.1]]}}",
            "the steps of points must be >= 0 and rise",
        ),
        ("broadcast: {policy: 'a b'}", "broadcast.policy is 'a b'; it must be 1 to 64 letters"),
        ("  batch_size: 3", "learner.batch_size is given twice (app.yaml line 5 and app.yaml line 8)"),
        ("3: x", "3: a key must be text; quote it (app.yaml line 8)"),
        ("model: [", "app.yaml line 9 is not valid YAML"),
        ("model: !!python/object:os.system {}", "app.yaml line 8 is not valid YAML"),
        ("version: 1", "version is given twice"),
    ],
)
def test_refusal_names_key_value_limit_and_place(line: str, message: str, write) -> None:
    assert message in str(refusal(write(f"{SMALL}{line}\n")))


def test_error_carries_key_and_source(write) -> None:
    error = refusal(write(f"{SMALL}  n_step: 0\n"))
    assert (error.key, error.source) == ("learner.n_step", "app.yaml line 8")


def test_misspelling_is_told_before_what_it_leaves_missing(write) -> None:
    error = refusal(write("env:\n  idd: CartPole-v1\n"))
    assert str(error) == ("env.idd is not a setting (app.yaml line 2); did you mean env.id? (also wrong: env.id)")


@pytest.mark.parametrize("version", ["1.1.0", "2", "0", "true", "'1'", "[1]"])
def test_other_versions_are_refused_before_anything_else(version: str, write) -> None:
    error = refusal(write(f"version: {version}\nenvironment:\n  run: ./lab\n"))
    assert "this Surreal reads version 1 (app.yaml line 1)" in str(error)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["learner.batch_sise=3"], "learner.batch_sise is not a setting (--set); did you mean learner.batch_size?"),
        (["learner.batch_size=0"], "learner.batch_size is 0; it must be >= 1 (--set)"),
        (["learner.batch_size"], "is not KEY=VALUE"),
        (["=3"], "is not KEY=VALUE"),
        (["a..b=3"], "is not KEY=VALUE"),
        (["learner.batch_size={"], "--set learner.batch_size line 1 is not valid YAML"),
        (["env.id.name=x"], "env.id is 'CartPole-v1', which has no settings"),
        (["env=null"], "env is missing"),
        (["version=2"], "this Surreal reads version 1 (--set)"),
    ],
)
def test_wrong_override_is_refused(overrides: list[str], message: str, write) -> None:
    assert message in str(refusal(write(SMALL), *overrides))


def test_place_of_a_setting_is_remembered(write) -> None:
    config = load_config(write(SMALL), ["learner.args.double=true"])
    assert config.source_of("learner.batch_size") == "app.yaml line 5"
    assert config.source_of("learner.args.double") == "--set"
    assert config.source_of("learner.args.initial_learning_rate") == "app.yaml line 7"
    assert config.source_of("learner.args.not_there") == "app.yaml line 6"
    assert config.source_of("replay.capacity") == ""


def test_an_override_of_a_section_hides_the_places_below_it(write) -> None:
    config = load_config(write(SMALL), ["learner={batch_size: 16}"])
    assert config.source_of("learner.batch_size") == "--set"


def test_an_override_of_a_section_keeps_the_settings_that_it_does_not_name(write) -> None:
    path = write(f"{SMALL}agent:\n  exploration: {{type: linear, start: 1.0, end: 0.1, steps: 100}}\n")
    config = load_config(path, ["learner={gamma: 0.9, args: {double: false}}", "agent={exploration: {end: 0.2}}"])
    assert (config.learner.gamma, config.learner.batch_size) == (0.9, 32)
    assert config.learner.args == {"initial_learning_rate": 0.001, "double": False}
    assert config.agent.exploration.model_dump(include={"start", "end"}) == {"start": 1.0, "end": 0.2}
    other = load_config(path, ["learner={class: surreal.learner.DDPGLearner, args: {tau: 0.1}}"])
    assert other.learner.args == {"tau": 0.1}  # those of the former class make no sense here
    assert load_config(path, ["run={max_global_step: 7000}"]).run.max_env_steps == 7000
    assert load_config(path, ["learner.args={double: false}"]).learner.args == {"double": False}
    assert load_config(path, ["agent={}"]).agent == load_config(path).agent


def test_max_global_step_is_max_env_steps(write) -> None:
    path = write(f"{SMALL}run:\n  max_global_step: 5000\n")
    config = load_config(path)
    assert config.run.max_env_steps == config.run.max_global_step == 5000
    assert config.source_of("run.max_env_steps") == "app.yaml line 9"
    assert load_config(path, ["run.max_env_steps=6000"]).run.max_env_steps == 6000
    assert load_config(path, ["run.max_global_step=7000"]).run.max_env_steps == 7000
    both = write(f"{SMALL}run:\n  max_global_step: 5000\n  max_env_steps: 5000\n", "both.yaml")
    assert "are one setting; give one of them (both.yaml line 9)" in str(refusal(both))


def test_empty_section_means_defaults(write) -> None:
    assert load_config(write(f"{SMALL}replay:\n")).replay == ReplayConfig()


def test_anchors_and_merges_work_and_own_keys_win(write) -> None:
    text = "x: &x\n  id: A-v0\n  num_envs: 2\nenv:\n  <<: *x\n  id: B-v0\n"
    error = refusal(write(text))
    assert "x is not a setting (app.yaml line 1)" in str(error)
    inline = "env: {<<: {id: A-v0, num_envs: 2}, id: B-v0}\n"
    config = load_config(write(inline))
    assert (config.env.id, config.env.num_envs) == ("B-v0", 2)


def test_mapping_that_contains_itself_is_refused(write) -> None:
    assert "contains itself" in str(refusal(write("env:\n  id: A-v0\n  kwargs: &a {b: *a}\n")))


@pytest.mark.parametrize("text", ["", "- a\n", "text\n"])
def test_file_that_is_no_mapping_is_refused(text: str, write) -> None:
    assert refusal(write(text)).source


def test_missing_file_and_misspelt_preset(tmp_path: Path) -> None:
    assert "does not exist" in str(refusal(tmp_path / "nothing"))
    assert "does not exist" in str(refusal("no/such.yaml"))
    assert str(refusal("cartpole-dnq")) == "cartpole-dnq is neither a file nor a preset; did you mean cartpole-dqn?"
    with pytest.raises(ConfigError, match="there are acrobot-a2c"):
        preset_path("zzz")


def test_unreadable_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "app.yaml"
    path.write_bytes(b"env: \xff\xfe")
    assert "app.yaml cannot be read" in str(refusal(path))


def test_folders_of_classes_are_absolute_and_survive_a_copy(write, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    config = load_config(write(f"{SMALL}python_path: [../shared]\n"))
    assert config.python_path == [str(tmp_path.parent / "shared"), str(tmp_path)]
    copy = tmp_path / "other" / "app.yaml"
    copy.write_text(to_yaml(config), encoding="utf-8")
    assert load_config(copy).python_path[:2] == config.python_path
    assert load_config("cartpole-dqn").python_path == []


@pytest.mark.parametrize(("stem", "name"), [("my run", "my-run"), ("_x", "x"), ("---", "surreal")])
def test_name_comes_from_the_file(stem: str, name: str, write) -> None:
    assert load_config(write(SMALL, f"{stem}.yaml")).name == name


def test_sections_may_be_written_with_hyphens(tmp_path: Path) -> None:
    path = tmp_path / "app.yaml"
    path.write_text("env: {id: CartPole-v1}\nrelaax-rlx-server:\n  bind: localhost:7001\n")
    config = load_config(path)
    assert config.relaax_rlx_server.bind == "localhost:7001"
    assert config.source_of("relaax_rlx_server.bind") == "app.yaml line 3"
    path.write_text(path.read_text() + "relaax_rlx_server: {bind: localhost:7002}\n")
    with pytest.raises(ConfigError, match="relaax-rlx-server and relaax_rlx_server are one section"):
        load_config(path)


def test_the_folder_of_a_program_is_the_files_own_or_relative_to_it_and_stays_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "app.yaml"
    for given, expected in (("", tmp_path), (", folder: inner", tmp_path / "inner"), (", folder: /usr", Path("/usr"))):
        path.write_text(f"env: {{id: CartPole-v1}}\nrlx: {{servers: 1}}\nenvironment: {{run: make play{given}}}\n")
        config = load_config(path)
        assert config.environment.folder == str(expected)
        copy = tmp_path / "elsewhere" / "app.yaml"
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(to_yaml(config))
        assert load_config(copy).environment.folder == str(expected)
