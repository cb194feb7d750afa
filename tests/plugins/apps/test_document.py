"""Files that are edited: what is not asked for stays as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surreal.base.errors import ConfigError
from surreal.config.yaml_tree import parse
from surreal.plugins.apps.document import (
    back_up,
    check_text,
    get_value,
    join_sections,
    parse_document,
    read_document,
    save_text,
    set_value,
    split_sections,
    to_text,
)

TEXT = """\
# Of the whole file.
version: 1

# Of the environment.
env:
  id: CartPole-v1   # beside
  # above
  num_envs: 8

# Of nothing in particular.

learner: {gamma: 0.5}
"""


def test_sections_of_a_file_are_pieces_that_make_it_up() -> None:
    parts = split_sections(TEXT)
    assert list(parts) == ["version", "env", "learner"]
    assert parts["env"].startswith("\n# Of the environment.\nenv:\n")
    assert join_sections(parts) == TEXT


@given(st.lists(st.sampled_from(["a: 1\n", "# x\n", "\n", "  b: 2\n", "c:\n", "  - d\n"]), max_size=12))
def test_no_line_is_lost_where_no_section_is_there_twice(lines: list[str]) -> None:
    text = "".join(f"{line[0]}{number}{line[1:]}" if line[0] in "ac" else line for number, line in enumerate(lines))
    assert join_sections(split_sections(text)) == text


def test_setting_a_value_keeps_comments_and_order() -> None:
    document = parse_document(TEXT, "app.yaml")
    set_value(document, "env.id", "Acrobot-v1")
    set_value(document, "learner.args.mini_batch", None)
    text = to_text(document)
    assert "# Of the whole file." in text
    assert "  id: Acrobot-v1" in text
    assert "# beside" in text
    assert "# Of nothing in particular." in text
    assert get_value(parse_document(text, ""), "learner") == {"gamma": 0.5, "args": {"mini_batch": None}}


def test_a_setting_that_is_new_stands_with_those_of_its_section() -> None:
    document = parse_document(TEXT, "app.yaml")
    set_value(document, "env.kwargs.max_episode_steps", 9)
    set_value(document, "env.num_envs", 4)
    assert "  num_envs: 4\n  kwargs:\n    max_episode_steps: 9\n\n# Of nothing" in to_text(document)


@pytest.mark.parametrize("value", ["on", "1e3", "null", "~", "", "a: b", "# no", "plain", "1_000", "0x1", [1, "no"]])
def test_text_is_read_again_as_the_text_that_it_is(value: object) -> None:
    document = parse_document("name: x\n", "app.yaml")
    set_value(document, "name", value)
    assert parse(to_text(document), "")[0] == {"name": value}


def test_a_key_below_a_number_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"learner.gamma is 0.5, not a section with settings"):
        set_value(parse_document(TEXT, "app.yaml"), "learner.gamma.x", 1)


def test_earlier_files_are_kept_under_numbers(tmp_path: Path) -> None:
    path = tmp_path / "app.yaml"
    assert back_up(path) is None
    path.write_text("env: {id: CartPole-v1}\n")
    assert save_text(path, "env: {id: Acrobot-v1}\n") == tmp_path / "app.yaml.~1~"
    assert save_text(path, "env: {id: Pendulum-v1}\n") == tmp_path / "app.yaml.~2~"
    assert (tmp_path / "app.yaml.~1~").read_text() == "env: {id: CartPole-v1}\n"
    assert (tmp_path / "app.yaml.~2~").read_text() == "env: {id: Acrobot-v1}\n"


def test_what_a_run_would_refuse_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "app.yaml"
    with pytest.raises(ConfigError, match=r"learner.gamma is 'x'; it must be a number \(app.yaml line 2\)"):
        check_text(path, "env: {id: CartPole-v1}\nlearner: {gamma: x}\n")
    with pytest.raises(ConfigError):
        save_text(path, "nonsense: 1\n")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_read_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="`surreal new NAME` makes an app"):
        read_document(tmp_path / "app.yaml")
    (tmp_path / "app.yaml").write_text("- 1\n")
    with pytest.raises(ConfigError, match="has no sections"):
        read_document(tmp_path / "app.yaml")
    (tmp_path / "app.yaml").write_text("a: {\n")
    with pytest.raises(ConfigError, match=r"app.yaml line \d is not valid YAML"):
        read_document(tmp_path / "app.yaml")
