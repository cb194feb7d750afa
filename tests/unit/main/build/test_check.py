"""Whether a run can go on, before anything of it is started."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from surreal.config import load_config
from surreal.errors import CheckpointError
from surreal.main.build.check import check_resumable


def test_a_run_of_which_nothing_is_anywhere_cannot_go_on(tmp_path: Path) -> None:
    """Its folder may be empty on a new machine, if there are other places."""
    stores = json.dumps(["run", str(tmp_path / "backup")])
    config = load_config("cartpole-dqn", [f"checkpoint.stores={stores}"])
    with pytest.raises(CheckpointError, match=r"demo holds no run to resume, and .*backup/demo/checkpoints no"):
        check_resumable(config, tmp_path / "demo")
