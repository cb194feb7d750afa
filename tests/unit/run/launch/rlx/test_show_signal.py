"""An environment program is told to show itself through the process that the launcher knows."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import signal
told = []
signal.signal(signal.SIGUSR1, lambda *_: told.append(1))
print("ready", flush=True)
while not told:
    signal.pause()
print("told", flush=True)
"""


def test_sigusr1_reaches_the_program_and_not_the_shell_around_it(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    arguments = ["--command", "python program.py", "--folder", str(tmp_path), "--config", "-", "--rlx-server", "h:1"]
    with subprocess.Popen(
        [sys.executable, "-m", "surreal.run.launch.environment", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGUSR1)
        assert process.stdout.readline() == "told\n"
        assert process.wait(60) == 0
