"""The process of an app's environment program: it starts `environment.run`, and ends the program when it ends itself.

    python -m surreal.run.launch.environment --command 'python environment/training.py' --folder APP ...

The program is any shell command. It gets `--config`, `--rlx-server`, `--exploit` and `--show-ui` added, as
`surreal.rlx.TrainingBase` reads them, and the server's token in $SURREAL_RLX_TOKEN. The launcher starts each process in
its own session, so a signal to the session reaches everything that the shell has started.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import psutil
import typer

from surreal.base.system.command_line import read_command_line
from surreal.rlx.client.options import TOKEN_VARIABLE, find_token
from surreal.run.process.ending import print_error
from surreal.run.process.interrupts import follow_parent, release_checkpoint_signal, stop_at_signals

_POLL_S = 0.05
_SHELLS = ("sh", "bash", "dash")


@dataclass(frozen=True)
class _ProgramArguments:
    command: Annotated[str, typer.Option()]
    folder: Annotated[Path, typer.Option()]
    config: Annotated[str, typer.Option()]
    rlx_server: Annotated[str, typer.Option()]
    exploit: Annotated[bool, typer.Option("--exploit")] = False
    show_ui: Annotated[bool, typer.Option("--show-ui")] = False
    token_file: Annotated[str | None, typer.Option()] = None


def main(argv: Sequence[str]) -> int:
    """Run the program until it ends or a signal comes; returns its exit code."""
    arguments = read_command_line(_ProgramArguments, argv, name=__name__)
    stop = stop_at_signals()
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # for the program, see `TrainingBase`
    release_checkpoint_signal()  # the same signal
    follow_parent()
    added = ["--config", arguments.config, "--rlx-server", arguments.rlx_server]
    added += ["--exploit", str(arguments.exploit), "--show-ui", str(arguments.show_ui)]
    try:
        process = subprocess.Popen(  # noqa: S602 - a command from the app's file
            f"{arguments.command} {shlex.join(added)}",
            shell=True,
            cwd=arguments.folder,
            env=_environment(arguments.token_file),
            stdin=subprocess.DEVNULL,
        )
    except Exception as error:
        print_error(error)
        return 1
    signal.signal(signal.SIGUSR1, lambda *_: _pass_on(signal.SIGUSR1, process.pid))
    while process.poll() is None:
        if stop.wait(_POLL_S):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # this process is in the session, too
            os.killpg(0, signal.SIGTERM)
            process.wait()
            return 0
    if process.returncode < 0:  # end by the same signal, so that the launcher restarts this process
        with suppress(OSError):  # SIGKILL has no handler
            signal.signal(-process.returncode, signal.SIG_DFL)
        os.kill(os.getpid(), -process.returncode)
    return process.returncode


def _pass_on(number: int, pid: int) -> None:
    """Pass a signal on to the program, which shows or hides itself; a shell around it would end."""
    with suppress(psutil.Error):
        started = psutil.Process(pid)
        for program in started.children() if started.name() in _SHELLS else [started]:
            program.send_signal(number)


def _environment(token_file: str | None) -> dict[str, str]:
    token = find_token(token_file, "rlx.token_file")
    # `python` is the current one; its output comes line by line.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    given = {} if token is None else {TOKEN_VARIABLE: token}
    return {"PYTHONUNBUFFERED": "1", **os.environ, "PATH": path, **given}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
