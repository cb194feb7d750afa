"""NodeLocal: the newest files are used, wherever the run comes back, and never a part of them."""

from __future__ import annotations

import os
import shutil
import socket
import stat
from pathlib import Path

import pytest

from surreal.base.errors import ConfigError, FolderError
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


@pytest.mark.parametrize("target", ["elsewhere", "nowhere"])
def test_a_link_in_place_of_the_folder_is_refused_and_what_it_leads_to_stays(run_dir: Path, target: str) -> None:
    (run_dir.parent / "elsewhere").mkdir()
    (run_dir.parent / "elsewhere" / "file").write_text("of another user")
    (run_dir.parent / "a").mkdir()
    on("a", run_dir).folder.symlink_to(run_dir.parent / target)
    with pytest.raises(ConfigError, match=r"--local-disk: .*a/surreal-demo is not a folder; remove it"):
        on("a", run_dir).fetch()
    assert [path.name for path in (run_dir.parent / "elsewhere").iterdir()] == ["file"]
    assert not (run_dir.parent / "nowhere").exists()
    assert not (run_dir / "redis.token").exists()


def test_the_folder_of_another_user_is_refused(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start("a", run_dir)
    write("a", run_dir, "first")
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    with pytest.raises(ConfigError, match=rf"a/surreal-demo belongs to user {own}; remove it, or choose another"):
        on("a", run_dir).fetch()
    assert (on("a", run_dir).folder / "aof").read_text() == "first"


def test_other_users_cannot_enter_the_folder(run_dir: Path) -> None:
    on("a", run_dir).folder.mkdir(mode=0o755, parents=True)
    start("a", run_dir)
    assert stat.S_IMODE(on("a", run_dir).folder.stat().st_mode) == 0o700
    on("a", run_dir).keep()
    (run_dir / "redis").chmod(0o755)
    start("a", run_dir)
    assert stat.S_IMODE(on("a", run_dir).folder.stat().st_mode) == 0o700


def test_files_that_cannot_be_brought_back_stay_and_the_error_names_their_place(run_dir: Path) -> None:
    start("a", run_dir)
    write("a", run_dir, "first")
    run_dir.rename(run_dir.with_name("away"))
    run_dir.write_text("")  # the shared file system is gone
    where = f"the experience stays in {on('a', run_dir).folder}, because .*: not a directory; a job that starts on "
    with pytest.raises(FolderError, match=where + socket.gethostname()):
        on("a", run_dir).keep()
    run_dir.unlink()
    run_dir.with_name("away").rename(run_dir)
    assert start("a", run_dir) == "first"


def test_a_copy_that_fails_halfway_leaves_nothing_in_the_run_folder(run_dir: Path) -> None:
    start("a", run_dir)
    write("a", run_dir, "first")
    broken = on("a", run_dir).folder / "broken"
    broken.symlink_to("nowhere")
    with pytest.raises(FolderError, match=r"--local-disk: the experience stays in .*, because .*No such file"):
        on("a", run_dir).keep()
    assert sorted(path.name for path in run_dir.iterdir()) == ["redis.token"]
    broken.unlink()
    on("a", run_dir).keep()
    assert start("b", run_dir) == "first"
