"""NodeLocal: the newest files are used, wherever the run comes back, and never a part of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from surreal.base.errors import ConfigError
from surreal.plugins.clusters.redis.node_local import NodeLocal


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


def on(node: str, run_dir: Path) -> NodeLocal:
    return NodeLocal("demo", run_dir, run_dir.parent / node)


def start(node: str, run_dir: Path) -> str | None:
    """Fetch on a node, and return what its server finds."""
    local = on(node, run_dir)
    local.fetch()
    file = local.folder / "aof"
    return file.read_text() if file.exists() else None


def write(node: str, run_dir: Path, text: str) -> None:
    (on(node, run_dir).folder / "aof").write_text(text)


def test_files_follow_the_run_to_another_node(run_dir: Path) -> None:
    assert start("a", run_dir) is None
    write("a", run_dir, "first")
    on("a", run_dir).keep()
    assert not on("a", run_dir).folder.exists()
    assert start("b", run_dir) == "first"
    write("b", run_dir, "second")
    on("b", run_dir).keep()
    assert start("a", run_dir) == "second"
    assert not (run_dir / "redis").exists()


def test_after_a_failure_files_are_used_on_the_same_node_only_while_they_are_the_newest(run_dir: Path) -> None:
    start("a", run_dir)
    write("a", run_dir, "first")
    assert start("a", run_dir) == "first"  # the node came back
    assert start("b", run_dir) is None  # the run went elsewhere
    write("b", run_dir, "second")
    assert start("a", run_dir) is None  # what was left here is older
    assert start("b", run_dir) is None


def test_a_move_that_was_cut_short_counts_for_nothing(run_dir: Path) -> None:
    start("a", run_dir)
    write("a", run_dir, "whole")
    (run_dir / "redis.new").mkdir()  # the job was killed while it copied
    (run_dir / "redis.new" / "aof").write_text("par")
    assert start("a", run_dir) == "whole"
    on("a", run_dir).keep()
    # Killed after copying back, before the shared files were gone.
    shutil.copytree(run_dir / "redis", run_dir / "copy")
    assert start("b", run_dir) == "whole"
    shutil.move(run_dir / "copy", run_dir / "redis")
    assert start("b", run_dir) == "whole"


def test_a_disk_that_cannot_be_written_is_named(run_dir: Path) -> None:
    (run_dir.parent / "file").write_text("")
    with pytest.raises(ConfigError, match=r"--local-disk: .*file/surreal-demo cannot be written: Not a directory"):
        on("file", run_dir).fetch()
