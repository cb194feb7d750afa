"""A game in Godot 3 as an app: its server is killed, and it still learns."""

from __future__ import annotations

import os
import re
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace


def test_balls_learn_to_stay_on_their_beams_though_the_server_is_killed(
    workplace: Workplace, require_tool: Any
) -> None:
    require_tool("godot3-server")
    assert workplace.run("new", "balls", "-e", "godot")[0] == 0
    game = "environment.run=godot3-server --path environment --goal 85"
    command = workplace.start("run", "-c", "balls/app.yaml", "--set", game, "--set", "rlx.port=0")
    workplace.wait_for(lambda: "episode 20:" in command.output, "the first episodes")
    os.kill(workplace.role_pid("rlx-server"), signal.SIGKILL)
    assert command.wait() == 0, command.output
    assert re.search(r"solved after \d+ episodes", command.output)
    assert "the server closed the connection" in command.output
    assert workplace.processes() == []
