"""Settings of a file, found by path."""

from __future__ import annotations

from pathlib import Path

import pytest

from surreal.base.errors import ConfigError
from surreal.rlx.client.options import Options

OPTIONS = Options(
    {"environment": {"steps": 5, "none": None, "deep": {"a-b": [1]}}, "relaax-rlx-server": {"bind": "h:1"}}
)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("environment/steps", 5), ("environment/deep/a_b", [1]), ("environment/deep/a-b", [1]),
        ("relaax_rlx_server/bind", "h:1"), ("relaax-rlx-server/bind", "h:1"), ("environment/none", "default"),
        ("environment/steps/more", "default"), ("nothing/steps", "default"), ("", "default"),
    ],
)  # fmt: skip
def test_setting_is_found_by_its_path(path: str, expected: object) -> None:
    assert OPTIONS.get(path, "default") == expected
    assert OPTIONS.get("environment/nothing") is None


def test_what_is_found_is_as_it_was_written() -> None:
    assert OPTIONS.get("environment/deep") == {"a-b": [1]}
    assert Options({"a-b": 1, "a_b": 2, 3: 4}).get("a_b") == 2


def test_section_is_one_or_an_error() -> None:
    OPTIONS.check_section("nothing")
    OPTIONS.check_section("relaax_rlx_server")
    with pytest.raises(ConfigError, match="must hold settings"):
        Options({"rlx": 5}).check_section("rlx")


def test_default_file_may_be_missing_and_a_named_one_not(tmp_path: Path) -> None:
    assert Options.read(None, tmp_path / "none.yaml").get("a", 1) == 1
    with pytest.raises(ConfigError, match=r"none\.yaml"):
        Options.read(tmp_path / "none.yaml")
    (tmp_path / "app.yaml").write_text("environment: {max-steps: 7}")
    assert Options.read(None, tmp_path / "app.yaml").get("environment/max_steps") == 7
