"""Commands of pages, carried out in seconds.

Each is the real command in this process, up to where it would train, serve, or go on until Ctrl-C: `surreal run` gets
`--check`, a program of the clone `--help`, and what serves is replaced by a function that takes the same arguments.
What follows there is what tests/e2e is about.
"""

from __future__ import annotations

import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from surreal import __version__
from surreal.cli.program import main
from surreal.config import load_config
from surreal.rlx.client.gym_driver import DriverCounts
from surreal.run.lockstep.check import check_run
from surreal.run.process.arguments import RoleArguments
from surreal.run.process.roles import Role
from tests.integration.pages.desk import Desk
from tests.pages import ROOT, Block

#: What commands get beside what the pages say.
_ADDED = {
    "doctor": ["--only", "redis"],
    "run": ["--check"],
    "runs clean": ["--yes"],
    "runs delete": ["--yes"],
    "sweep": ["--check"],
    "top": ["--once"],
    "watch": ["--episodes", "1"],
}
#: Modules of processes, whose arguments are read and whose configuration is checked.
_ROLES = ("agent", "learner", "eval", "parameter_server", "rlx_server")


class Commands:
    """Carries out commands in the current folder."""

    def __init__(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        self._desk = desk
        self._monkeypatch = monkeypatch
        # Windows that nobody sees.
        monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
        for role in _ROLES:
            monkeypatch.setattr(f"surreal.run.roles.{role}.run_role", _check_role)
        for place in (
            "surreal.plugins.clusters.redis.server.serve",
            "surreal.run.roles.rlx_server.serve_policy",
            "surreal.plugins.dashboard.commands.serve",
            "surreal.plugins.clusters.scaling.serving.serve",
        ):
            monkeypatch.setattr(place, lambda *_, **__: None)
        monkeypatch.setattr("surreal.run.roles.rlx_client.run_envs", lambda *_, **__: DriverCounts())

    def carry_out(self, block: Block) -> None:
        """Carry out the commands of a block; each must succeed."""
        for command in [*block.marks.get("setup", "").splitlines(), *block.commands()]:
            words = shlex.split(self._desk.read(command))
            if words[:1] == ["surreal"]:
                words += shlex.split(block.marks.get("options", ""))
            if words:
                self._carry_out(words)

    def _carry_out(self, words: Sequence[str]) -> None:
        program = {
            "cd": self._cd,
            "export": self._export,
            "git": self._git,
            "make": self._make,
            "pip": self._pip,
            "python": self._python,
            "surreal": self._surreal,
        }.get(words[0])
        assert program is not None, f"no test carries out {words[0]}: have one do it, or mark the block"
        program(words[1:])

    def _surreal(self, words: Sequence[str]) -> None:
        if words[0] == "sweep" and "--resume" in words:
            return  # tests/e2e/test_sweep.py goes on with one
        if "--terminal" in words:
            return  # tests/unit/envs/terminal has one
        if words[0] == "profile":
            return  # tests/e2e/test_profile.py records runs
        known = next((name for name in _ADDED if list(words[: len(name.split())]) == name.split()), "")
        assert main([*words, *_ADDED.get(known, [])]) == 0

    def _cd(self, words: Sequence[str]) -> None:
        self._monkeypatch.chdir(words[0])

    def _export(self, words: Sequence[str]) -> None:
        """Set the address; the Redis here is open to all, so other variables are only looked up."""
        for name, _, value in (word.partition("=") for word in words):
            assert f"`{name}`" in (ROOT / "docs" / "security.md").read_text(), f"there is no variable {name}"
            if name == "SURREAL_REDIS":
                self._monkeypatch.setenv(name, value.removeprefix("rediss://"))

    def _git(self, words: Sequence[str]) -> None:
        assert words[0] == "clone", "the clone is there: it has this test"

    def _make(self, words: Sequence[str]) -> None:
        subprocess.run(["make", "-n", *words], cwd=ROOT, check=True, capture_output=True)

    def _python(self, words: Sequence[str]) -> None:
        self._monkeypatch.setattr(sys, "argv", [words[0], *words[1:], "--help"])
        with pytest.raises(SystemExit) as end:
            runpy.run_path(str(ROOT / words[0]), run_name="__main__")
        assert end.value.code in (0, None)

    def _pip(self, words: Sequence[str]) -> None:
        assert words[0] == "install"
        setup = (ROOT / "setup.py").read_text()
        for extra in re.findall(r"\[([\w-]+)\]", " ".join(words)):
            assert f'"{extra}": [' in setup, f"there is no extra {extra}"
        for wheel in (word for word in words if word.endswith(".whl")):
            assert Path(wheel).name == f"surreal_rl-{__version__}-py3-none-any.whl"


def _check_role(role: Role, _: Any, arguments: RoleArguments) -> int:
    if arguments.config is not None:
        check_run(load_config(arguments.config, arguments.overrides))
    return 0
