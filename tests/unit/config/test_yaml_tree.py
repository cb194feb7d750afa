"""Two parsers of YAML, of which libyaml's is the fast one: they read the same, and refuse with the same words."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from surreal.base.errors import ConfigError
from surreal.config import yaml_tree
from surreal.config.preset_files import preset_names, preset_path

BY_ITSELF = pytest.mark.skipif(not yaml.__with_libyaml__, reason="PyYAML has no libyaml here")
TEXTS = (
    "", "# nothing\n", "a: 1e5\nb: 1e-3\nc: 1_000\nd: .5e3\ne: 1.0\nf: 2026-11-28\ng: 12:30\n",
    "base: &base {x: 1, y: [1, 2]}\nother:\n  <<: *base\n  y: 3\n", "a: |\n  two\n  lines\nb: >\n  one\n  line\n",
    "a: 'it''s'\nb: \"\\u00e9 \\x41\"\nc: é\n", "a: [1, {b: 2}]\nc: ~\nd: yes\ne: 0x1f\nf: 0o17\ng: .inf\nh: -.nan\n",
)  # fmt: skip
BROKEN = (
    "a: [1",
    "a: 1\na: 2\n",
    "a: 1\n  b: 2\n",
    "a: *nothing\n",
    "1: a\n",
    "a: \t- b\n",
    "a: !!python/name:os.system\n",
)


def parse_slowly(text: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, dict[str, str]]:
    with monkeypatch.context() as patch:
        patch.setattr(yaml_tree, "_FastLoader", yaml_tree._Loader)
        return yaml_tree.parse(text, "app.yaml")


@BY_ITSELF
@pytest.mark.parametrize("text", [*TEXTS, *(preset_path(name).read_text() for name in preset_names())])
def test_values_and_their_places_are_the_same(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert repr(yaml_tree.parse(text, "app.yaml")) == repr(parse_slowly(text, monkeypatch))


@BY_ITSELF
@pytest.mark.parametrize("text", BROKEN)
def test_what_is_broken_is_refused_in_the_same_words(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError) as slow:
        parse_slowly(text, monkeypatch)
    with pytest.raises(ConfigError) as fast:
        yaml_tree.parse(text, "app.yaml")
    assert (str(fast.value), fast.value.source) == (str(slow.value), slow.value.source)


@BY_ITSELF
def test_libyaml_reads_what_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_tree, "_Loader", None)
    assert yaml_tree.parse("a: 1\n", "app.yaml") == ({"a": 1}, {"a": "app.yaml line 1"})
